package chanqprom_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/chanqprom"
	"github.com/chanq/chanq/embedded"
)

func opened(t *testing.T, queues ...string) *sql.DB {
	t.Helper()
	db, err := embedded.Open(filepath.Join(t.TempDir(), "q.db"))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	for _, name := range queues {
		require.NoError(t, chanq.Migrate(t.Context(), db, name, chanq.Config{}))
	}
	return db
}

// admin opens a queue for its operators.
func admin(t *testing.T, db *sql.DB, name string) *chanqadmin.Queue {
	t.Helper()
	q, err := chanqadmin.Open(t.Context(), db, name, chanq.Config{})
	require.NoError(t, err)
	return q
}

// Prometheus computes an increase from two values: a counter that begins with its first count hides that
// count.
func TestCountersBeginAtZero(t *testing.T) {
	db := opened(t, "mail")
	m := chanqprom.New(chanqprom.Config{})
	_, err := chanq.Open[string](t.Context(), db, "mail", chanq.Config{Hooks: m.Hooks()})
	require.NoError(t, err)
	defer m.Watch(admin(t, db, "mail"))()
	seen := scrape(t, m)
	for _, name := range []string{`chanq_leases_lost_total{queue="mail"}`, `chanq_handler_errors_total{queue="mail"}`, `chanq_outages_total{part="consumer",queue="mail"}`} {
		require.Equal(t, "0", seen[name], name)
	}
	for name := range seen {
		require.NotContains(t, name, "chanq_delivered", "there is no consumer here")
		require.NotContains(t, name, "chanq_settled", "there is no consumer here")
	}

	// Without Watch: counters of consumers begin with the first claim, counters of producers with the
	// first send.
	m = chanqprom.New(chanqprom.Config{})
	m.Hooks().Claimed(chanq.ClaimedEvent{Queue: "mail/east", Messages: 3})
	m.Hooks().Sent(chanq.SentEvent{Queue: "post", Messages: 3})
	for name, want := range map[string]string{
		`chanq_leases_lost_total{queue="mail/east"}`:                     "0",
		`chanq_handler_errors_total{queue="mail/east"}`:                  "0",
		`chanq_settled_messages_total{outcome="dead",queue="mail/east"}`: "0",
		`chanq_delivered_messages_total{queue="mail/east"}`:              "3",
		`chanq_outages_total{part="consumer",queue="mail/east"}`:         "0",
		`chanq_outages_total{part="producer",queue="post"}`:              "0",
		`chanq_duplicate_messages_total{queue="post"}`:                   "0",
	} {
		require.Equal(t, want, scrape(t, m)[name], name)
	}
	watcher := chanqprom.New(chanqprom.Config{})
	defer watcher.Watch(admin(t, db, "mail"))()
	for name := range scrape(t, watcher) {
		require.NotContains(t, name, "_total", "a program that only watches counts nothing")
	}
}

// A producer or consumer that is closed during an outage no longer counts as being in it.
func TestAnOutageEndsWithItsConsumer(t *testing.T) {
	m := chanqprom.New(chanqprom.Config{})
	h := m.Hooks()
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer", Up: true, Ended: true})
	require.Equal(t, "0", scrape(t, m)[`chanq_parts_in_outage{part="consumer",queue="q"}`])

	refused := func(want string, events ...chanq.HousekeepingEvent) {
		t.Helper()
		for _, e := range events {
			e.Queue, e.Task = "q", "vacuum"
			h.Housekeeping(e)
		}
		require.Equal(t, want, scrape(t, m)[`chanq_housekeeping_refused{queue="q",task="vacuum"}`])
	}
	bad := chanq.HousekeepingEvent{Err: errors.New("no right")}
	refused("1", bad, bad)
	refused("1", chanq.HousekeepingEvent{})
	refused("0", chanq.HousekeepingEvent{Ended: true})
	refused("1", bad)
}

// Unavailable databases do not hide others, and neither do queues with the same name.
func TestUnavailableDatabasesDoNotHideOthers(t *testing.T) {
	var log strings.Builder
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
	well, away, alsoAway := opened(t, "mail"), opened(t, "mail", "post"), opened(t, "mail")
	defer m.Watch(refusing{hung{name: "mail"}})()
	for _, db := range []*sql.DB{away, well, alsoAway} {
		defer m.WatchAll(db, chanq.Config{})()
	}
	gathered := func() {
		t.Helper()
		registry := prometheus.NewRegistry()
		registry.MustRegister(m)
		_, err := registry.Gather()
		require.NoError(t, err)
	}
	require.Equal(t, "1", scrape(t, m)[`chanq_up{queue="mail"}`], "three of four have one")
	gathered()
	require.NoError(t, away.Close())
	require.NoError(t, alsoAway.Close())
	for range 2 {
		gathered()
		seen := scrape(t, m)
		require.Equal(t, "0", seen[`chanq_up{queue=""}`])
		require.Equal(t, "1", seen[`chanq_up{queue="mail"}`])
		require.Equal(t, "0", seen[`chanq_up{queue="post"}`], "it is known from before")
	}
	require.Equal(t, 2, strings.Count(log.String(), "cannot be read"), "post and the list, each once: %s", log.String())
	require.Contains(t, log.String(), "database is closed")
}

// quiet is a queue of which there is nothing to say.
type quiet struct{}

func (quiet) Name() string                                                 { return "quiet" }
func (quiet) Opened() (chanq.Spec, chanq.ShardMark)                        { return chanq.Spec{}, chanq.ShardMark{} }
func (quiet) Now(ctx context.Context) (time.Time, error)                   { return time.Now(), ctx.Err() }
func (quiet) Locks(context.Context) ([]chanqadmin.Lock, error)             { return nil, nil }
func (quiet) Record(context.Context, chanqadmin.Stats) error               { return nil }
func (quiet) Paused(context.Context) (chanqadmin.Pause, error)             { return chanqadmin.Pause{}, nil }
func (quiet) Consumers(context.Context) ([]chanqadmin.ConsumerInfo, error) { return nil, nil }
func (quiet) History(context.Context, time.Time, time.Duration) ([]chanqadmin.Sample, error) {
	return nil, nil
}
func (quiet) List(context.Context, chanqadmin.Select, chanqadmin.List) (chanqadmin.Page, error) {
	return chanqadmin.Page{}, nil
}

// hung is a queue whose database does not respond until it is released.
type hung struct {
	quiet
	name string
}

func (h hung) Label() string { return h.name }
func (h hung) Stats(ctx context.Context) (chanqadmin.Stats, error) {
	<-ctx.Done()
	return chanqadmin.Stats{}, ctx.Err()
}

// ready is a queue that responds to calls whose context has not ended.
type ready struct{ hung }

func (ready) Stats(ctx context.Context) (chanqadmin.Stats, error) {
	return chanqadmin.Stats{}, ctx.Err()
}

func TestHungQueuesDoNotHideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the timeout does not end before the others are read
		m := chanqprom.New(chanqprom.Config{Timeout: 200 * time.Millisecond})
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			defer m.Watch(hung{name: name})()
		}
		defer m.Watch(ready{hung{name: "ready"}})()
		seen := scrape(t, m)
		require.Equal(t, "0", seen[`chanq_up{queue="e"}`])
		require.Equal(t, "1", seen[`chanq_up{queue="ready"}`])
	})
}

// refusing is a queue whose database errors contain its user and host.
type refusing struct{ hung }

func (refusing) Stats(context.Context) (chanqadmin.Stats, error) {
	return chanqadmin.Stats{}, errors.New("connect to 10.1.2.3 as shop: refused")
}

// Errors of a database, for example with names of hosts and users, are only in the log.
func TestErrorsOfDatabasesAreNotServed(t *testing.T) {
	var log strings.Builder
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer m.Watch(refusing{hung{name: "mail"}})()
	for range 3 {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		require.Equal(t, 200, w.Code)
		require.Contains(t, w.Body.String(), `chanq_up{queue="mail"} 0`)
		require.NotContains(t, w.Body.String(), "10.1.2.3")
	}
	require.Equal(t, 1, strings.Count(log.String(), "connect to 10.1.2.3 as shop"), "whole, once: %s", log.String())
}

// A queue that could not be opened is tried again, and so is a queue that was dropped and created again,
// even as another kind.
func TestQueuesThatReturnAreMeasuredAgain(t *testing.T) {
	db := opened(t, "mail")
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: time.Minute})
	defer m.WatchAll(db, chanq.Config{})()
	for _, change := range [][2]string{
		{"UPDATE chanq__queues SET min_version = min_version + 100", "UPDATE chanq__queues SET min_version = min_version - 100"}, // such a queue cannot be opened
		{"ALTER TABLE chanq_mail RENAME TO away", "ALTER TABLE away RENAME TO chanq_mail"},
	} {
		for i, up := range []string{"0", "1"} {
			_, err := db.ExecContext(t.Context(), change[i])
			require.NoError(t, err)
			require.Equal(t, up, scrape(t, m)[`chanq_up{queue="mail"}`], change[i])
		}
	}

	require.NoError(t, chanqadmin.Drop(t.Context(), db, "mail", chanq.Config{}, chanqadmin.Change{}))
	mark := chanq.ShardMark{Count: 2}
	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", chanq.Config{Shard: mark}))
	require.Equal(t, "1", scrape(t, m)[`chanq_up{queue="mail/0"}`], "it is a shard now")
	require.NoError(t, chanqadmin.Drop(t.Context(), db, "mail", chanq.Config{Shard: mark}, chanqadmin.Change{}))

	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}))
	q, err := chanq.Open[string](t.Context(), db, "mail", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
	require.NoError(t, err)
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(t.Context(), chanq.Message[string]{Key: "a"})
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	require.Eventually(t, func() bool {
		seen := scrape(t, m)
		return seen[`chanq_up{queue="mail"}`] == "1" && seen[`chanq_messages{queue="mail",state="ready"}`] == "1"
	}, time.Minute, time.Millisecond)
}

// growing is a queue that nothing consumes, and whose messages wait for longer and longer.
type growing struct {
	hung
	began time.Time
}

func (g growing) Stats(context.Context) (chanqadmin.Stats, error) {
	return chanqadmin.Stats{Ready: 1, OldestReady: time.Since(g.began), Limit: 10_000}, nil
}

// A sentence with durations would be another series at each scrape.
func TestSentencesOfFindingsAreFewSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := chanqprom.New(chanqprom.Config{Limits: chanqfindings.Limits{Stuck: time.Hour}})
		g := growing{hung{name: "mail"}, time.Now()}
		defer m.Watch(g)()
		var texts []string
		for range 4 * 64 {
			seen := scrape(t, m)
			require.Equal(t, "1", seen[`chanq_finding{kind="no-consumer",queue="mail"}`])
			var now []string
			for name := range seen {
				if text, is := strings.CutPrefix(name, `chanq_finding_info{kind="no-consumer",queue="mail",severity="failure",text="no consumer runs; 1 message waits, the oldest for `); is {
					now = append(now, strings.TrimSuffix(text, `"}`))
				}
			}
			require.Len(t, now, 1)
			if !slices.Contains(texts, now[0]) {
				texts = append(texts, now[0])
			}
			time.Sleep(15 * time.Second)
		}
		require.Equal(t, []string{"less than 1 s", "1 min", "2 min", "4 min", "8 min", "16 min", "32 min"}, texts)
	})
}
