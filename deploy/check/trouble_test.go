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

// fires are the alerts that tell each situation, among others.
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

// TestTheAlertsTellWhatGoesWrong sets up each situation, and has the alerts read what is scraped of it, as
// if that had taken five minutes: since it began, or since the scrape before.
func TestTheAlertsTellWhatGoesWrong(t *testing.T) {
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
			mend, err := s.Begin(ctx, p)
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
			end, err := mend(ctx)
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
