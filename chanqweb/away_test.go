package chanqweb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Rates are current, or the page shows since when there are no rates.
func TestOldRatesAreNotShownAsCurrent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		end := time.Now()
		shown := func(until time.Time, path string) string {
			return shop.open(everything, func(c *chanqweb.Config) { c.History = webshop.SamplesUntil(until) }).see(path)
		}
		fresh := shown(end, "/")
		require.Contains(t, fresh, "333")
		require.Contains(t, fresh, "222")
		require.NotContains(t, fresh, "nothing since")
		old := shown(end.Add(-17*time.Minute), "/")
		require.NotContains(t, old, "333")
		require.NotContains(t, old, "222")
		require.Contains(t, old, "nothing since "+end.Add(-17*time.Minute).UTC().Format("15:04 UTC"))

		require.NotContains(t, shown(end, "/q/mail/?span=day"), "The charts end before now")
		old = shown(end.Add(-17*time.Minute), "/q/mail/?span=day")
		require.Contains(t, old, "The charts end before now, nothing since")
		require.Contains(t, old, `ready <b>–</b>`, "an old figure is not shown as current")
	})
}

// Figures that are read rarely, because the read is slow, are shown with their age.
func TestOldFiguresAreMarked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if strings.Contains(op.Text, "ready") {
				time.Sleep(500 * time.Millisecond) // a slow database: figures are read again after ten seconds
			}
			return f
		})
		defer shop.Faults.Inject(nil)
		require.NotContains(t, s.see("/"), "figures ")
		require.Eventually(t, func() bool {
			return strings.Contains(s.see("/"), "figures ") && strings.Contains(s.see("/q/mail/"), "These figures are")
		}, patience, tick)
	})
}
