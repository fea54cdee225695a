package check

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqprom"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/trouble"
)

// fires are the alerts that report each situation, among others.
var fires = map[string][]string{
	"poison":    {"ChanqDead", "ChanqHandlersFail"},
	"stuck":     {"ChanqHandlersStuck", "ChanqOldestReady", "ChanqStandsStill"},
	"dead":      {"ChanqNoConsumers", "ChanqOldestReady"},
	"slow":      {"ChanqStatementsSlow"},
	"forgotten": {"ChanqOutage"}, // on SQLite; on PostgreSQL others go on, and ChanqDeadRows comes
	"paused":    {"ChanqPaused"},
}

// scraped are the series that Prometheus reads, and their values.
func scraped(t *testing.T, m *chanqprom.Metrics) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	found := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && !strings.HasPrefix(line, "#") {
			found[name+"}"] = value
		}
	}
	return found
}

// TestTheAlertsReportEachSituation sets up each situation, and evaluates the alerts on what is scraped, as if five minutes had passed
// since the situation began, or since the scrape before.
func TestTheAlertsReportEachSituation(t *testing.T) {
	require.Len(t, fires, len(trouble.Situations))
	rules := alerts(t)
	for _, s := range trouble.Situations {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			db, err := embedded.Open(filepath.Join(t.TempDir(), "post.db"))
			require.NoError(t, err)
			defer db.Close()
			m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: 30 * time.Second})
			p := &trouble.Place{DB: db, Queue: "post", Hooks: m.Hooks()}
			require.NoError(t, p.Fill(t.Context(), 20_000))
			defer m.WatchAll(db, chanq.Config{})()
			ctx := context.WithoutCancel(t.Context())
			fix, err := s.Begin(ctx, p)
			require.NoError(t, err)
			first := scraped(t, m)
			before := first
			var firingNow []string
			said := func() bool {
				now := scraped(t, m)
				firingNow = nil
				for name, r := range rules {
					if len(firing(t, fiveMinutes(first, now), r.Expr, 5))+len(firing(t, fiveMinutes(before, now), r.Expr, 5)) > 0 {
						firingNow = append(firingNow, name)
					}
				}
				before = now
				slices.Sort(firingNow)
				return !slices.ContainsFunc(fires[s.Name], func(name string) bool { return !slices.Contains(firingNow, name) })
			}
			for began := time.Now(); !said(); {
				require.Less(t, time.Since(began), 3*time.Minute, "%v of %v", firingNow, fires[s.Name])
			}
			end, err := fix(ctx)
			require.NoError(t, err)
			end()
		})
	}
}

// fiveMinutes are series of two scrapes.
func fiveMinutes(before, now map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		first := before[name]
		if first == "" {
			first = "_"
		}
		lines = append(lines, fmt.Sprintf("%s %sx1 %sx3", name, first, now[name]))
	}
	return strings.Join(lines, "\n")
}

// A healthy program sends with SendTx and acks with AckTx, each in a separate transaction.
func TestNoAlertFiresOnAQueueOfTransactions(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "post.db"))
	require.NoError(t, err)
	defer db.Close()
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: 30 * time.Second})
	require.NoError(t, chanq.Migrate(t.Context(), db, "post", chanq.Config{}))
	q, err := chanq.Open[string](t.Context(), db, "post", chanq.Config{Hooks: m.Hooks()})
	require.NoError(t, err)
	defer m.WatchAll(db, chanq.Config{})()
	send := func() {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = q.SendTx(t.Context(), tx, chanq.Msg("a"))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		q.Wake()
	}
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{})
	require.NoError(t, err)
	handled := make(chan error, 1)
	go func() { // ends with the consumer
		handled <- c.Handle(1, func(ctx context.Context, l *chanq.Lease[string]) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := l.AckTx(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		})
	}()
	acked := func() string { return scraped(t, m)[`chanq_settled_messages_total{outcome="attempted",queue="post"}`] }
	send()
	require.Eventually(t, func() bool { return acked() == "1" }, time.Minute, 10*time.Millisecond)
	before := scraped(t, m)
	for range 3 {
		send()
	}
	require.Eventually(t, func() bool { return acked() == "4" }, time.Minute, 10*time.Millisecond)
	now := scraped(t, m)
	require.Equal(t, "4", now[`chanq_attempted_messages_total{queue="post"}`])
	require.Equal(t, "0", now[`chanq_sent_messages_total{queue="post"}`])
	now[`chanq_messages{queue="post",state="leased"}`], before[`chanq_messages{queue="post",state="leased"}`] = "1", "1" // there is always one
	for _, scrape := range []map[string]string{before, now} {                                                            // of a few statements, one is slow where the machine pauses for a second
		maps.DeleteFunc(scrape, func(name, _ string) bool { return strings.HasPrefix(name, "chanq_statement_duration_seconds") })
	}
	for name, r := range alerts(t) {
		require.Empty(t, firing(t, fiveMinutes(before, now), r.Expr, 5), name)
	}
	c.Stop()
	require.NoError(t, <-handled)
}
