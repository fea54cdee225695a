package chanqweb_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
)

var (
	findingText = regexp.MustCompile(`(?s)<span class="found">(.*?) <small>`)
	seenFor     = regexp.MustCompile(`for (\d+) s or longer$`)
)

// findingsOf returns the texts of the findings of a page.
func findingsOf(page string) (list []string) {
	for _, found := range findingText.FindAllStringSubmatch(page, -1) {
		list = append(list, found[1])
	}
	return list
}

// soon is how long after its threshold a finding may appear, and how long after the end of its fault it may last.
const soon = 15 * time.Second

// Another program has locked a table, or the file, when the web UI is started. It does so again after no page was open for a while.
func TestALockIsNamedFromTheFirstLookOn(t *testing.T) {
	tables := []string{"chanq__queues", "chanq__consumers", "chanq__samples", "chanq__slots", "chanq_sorted"}
	for _, c := range []struct {
		testdb.Engine
		tables []string
		lock   string
		found  string
		idle   time.Duration
	}{
		{testdb.Emulator, tables, "DECLARE @n int; SELECT @n = COUNT(*) FROM dbo.% WITH (TABLOCKX)", `^locked by .+ \(session \d+\)( for .+)?$`, 42 * time.Second},
		{testdb.Postgres, tables[:2], "SET LOCAL application_name = 'nightly-report'; LOCK TABLE %", `^locked by nightly-report \(session \d+\)( for .+)?$`, 16 * time.Second},
		{testdb.SQLiteFile, []string{"the file"}, "UPDATE chanq__queues SET paused = paused", `(is locked for writing by .* \(process \d+\)|has the write lock of the file) for \d+ s or longer$`, 42 * time.Second},
		{testdb.SQLite, []string{"the file"}, "UPDATE chanq__queues SET paused = paused", `(is locked for writing by .* \(process \d+\)|has the write lock of the file) for \d+ s or longer$`, 16 * time.Second},
	} {
		for _, table := range c.tables {
			t.Run(c.Name+" "+table, func(t *testing.T) {
				t.Parallel()
				c.Require(t)
				testdb.InBubble(t, c.Bubble, func(t *testing.T) {
					w := testdb.New(t, c.Engine)
					w.Open()
					s := &shop{&webshop.Shop{T: t, DB: w.DB, Faults: w.Faults}}
					s.Queue("mail", chanq.Config{})
					s.Queue("sorted", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
					_, other := w.Connect()
					_, s.DB = w.Connect() // of the web UI
					site := s.open(everything)
					for range 2 {
						tx, err := other.BeginTx(context.Background(), nil)
						require.NoError(t, err)
						_, err = tx.ExecContext(t.Context(), strings.ReplaceAll(c.lock, "%", table))
						require.NoError(t, err)
						longest := 0
						for began, seen := time.Now(), false; time.Since(began) < 20*time.Second; time.Sleep(time.Second) {
							for _, text := range findingsOf(site.see("/")) {
								require.Regexp(t, c.found, text, "after %v", time.Since(began))
								seen = true
								if last := seenFor.FindStringSubmatch(text); last != nil {
									longest, _ = strconv.Atoi(last[1])
								}
							}
							require.True(t, seen || time.Since(began) < soon)
						}
						if c.Dialect.Name() == "sqlite" {
							require.Greater(t, longest, 10)
						}
						require.NoError(t, tx.Rollback())
						ended := time.Now()
						for page := ""; !strings.Contains(page, "2 queues, no trouble"); time.Sleep(time.Second) {
							require.Less(t, time.Since(ended), soon, page)
							page = site.see("/")
							require.NotContains(t, page, "does not answer")
						}
						time.Sleep(c.idle)
					}
				})
			})
		}
	}
}
