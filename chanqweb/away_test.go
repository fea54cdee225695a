package chanqweb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
)

// Rates are current, or the page shows since when there are no rates.
func TestOldRatesAreNotShownAsCurrent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		end := time.Now()
		shown := func(until time.Time, path string) string {
			return shop.open(everything, func(c *chanqweb.Config) { c.History = webshop.SamplesUntil(until) }).see(path)
		}
		fresh := rowOf(t, shown(end, "/"), "mail")
		require.Contains(t, fresh, "333")
		require.Contains(t, fresh, "222")
		require.NotContains(t, fresh, "nothing since")
		old := rowOf(t, shown(end.Add(-17*time.Minute), "/"), "mail")
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
		s.see("/q/mail/")
		shop.slow(1500*time.Millisecond, "WITH ready") // figures are read again after six seconds
		defer shop.Faults.Inject(nil)
		require.NotContains(t, s.see("/q/mail/"), "No figures since")
		require.Eventually(t, func() bool {
			return strings.Contains(s.see("/"), "figures 6 s old") && strings.Contains(s.see("/q/mail/"), "No figures since") && strings.Contains(s.see("/q/mail/"), `data-state="old"`)
		}, patience, tick)
	})
}

// The page of a queue is as old as the oldest of its figures.
func TestOldConsumersAreMarked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		s.see("/q/mail/")
		shop.slow(time.Minute, "chanq__consumers")
		defer shop.Faults.Inject(nil)
		time.Sleep(10 * time.Second)
		require.Contains(t, s.see("/q/mail/"), `data-state="old"`)
		require.NotContains(t, rowOf(t, s.see("/"), "mail"), " old<", "its counts are new")
	})
}

// An upgrade has been begun, or a table was dropped.
func TestAQueueWithoutItsTablesStaysOnTheOverview(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		s.see("/")
		_, err := shop.DB.ExecContext(t.Context(), "DROP TABLE chanq_mail__dead")
		require.NoError(t, err)
		for range 5 {
			time.Sleep(5 * time.Second)
			require.Contains(t, rowOf(t, s.see("/"), "mail"), "run chanq migrate")
		}
		require.Contains(t, s.see("/"), "chanq migrate mail")
		_, err = shop.DB.ExecContext(t.Context(), "DELETE FROM chanq__queues")
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.NotContains(t, s.see("/"), `id="q-mail"`)
	})
}
