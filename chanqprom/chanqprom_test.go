package chanqprom_test

import (
	"context"
	"errors"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqprom"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape returns the lines that Prometheus reads, without comments.
func scrape(t *testing.T, m *chanqprom.Metrics) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body)
	found := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && !strings.HasPrefix(line, "#") {
			found[name+"}"] = value
		}
	}
	return found
}

// unfound returns series without those of findings.
func unfound(seen map[string]string) map[string]string {
	maps.DeleteFunc(seen, func(name, _ string) bool { return strings.HasPrefix(name, "chanq_finding") })
	return seen
}

func TestPrometheusReadsTheOutcomesOfMessages(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "q.db"))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", chanq.Config{}))
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: time.Minute})
	q, err := chanq.Open[string](t.Context(), db, "mail", chanq.Config{Hooks: m.Hooks()})
	require.NoError(t, err)
	stop := m.Watch(admin(t, db, "mail"))
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	for range 3 {
		_, err = p.SendBatch(t.Context(), chanq.Message[string]{Body: "a"}, chanq.Message[string]{Body: "b", DedupKey: "k"}, chanq.Message[string]{Body: "c", Delay: time.Hour})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close(t.Context()))
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{Prefetch: 1})
	require.NoError(t, err)
	require.NoError(t, (<-c.C()).Ack())
	require.NoError(t, (<-c.C()).Nack(chanq.DeadLetter(errors.New("bad"))))
	require.NoError(t, c.Flush(t.Context()))
	require.Eventually(t, func() bool { return c.Stats().Buffered == 1 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { // its first heartbeat waits for nothing and is waited for by nothing
		return scrape(t, m)[`chanq_consumers{queue="mail"}`] == "1"
	}, time.Minute, time.Millisecond)

	seen := scrape(t, m)
	for name, want := range map[string]string{
		`chanq_sent_messages_total{queue="mail"}`:                               "7",
		`chanq_duplicate_messages_total{queue="mail"}`:                          "2",
		`chanq_settled_messages_total{outcome="acked",queue="mail"}`:            "1",
		`chanq_settled_messages_total{outcome="dead",queue="mail"}`:             "1",
		`chanq_messages{queue="mail",state="ready"}`:                            "1",
		`chanq_messages{queue="mail",state="scheduled"}`:                        "3",
		`chanq_messages{queue="mail",state="leased"}`:                           "1",
		`chanq_messages{queue="mail",state="dead"}`:                             "1",
		`chanq_messages{queue="mail",state="done"}`:                             "0",
		`chanq_paused{queue="mail"}`:                                            "0",
		`chanq_consumers{queue="mail"}`:                                         "1",
		`chanq_up{queue="mail"}`:                                                "1",
		`chanq_finding{kind="dead",queue="mail"}`:                               "1",
		`chanq_finding{kind="no-consumer",queue="mail"}`:                        "0",
		`chanq_statement_duration_seconds_count{operation="send",queue="mail"}`: "3",
	} {
		require.Equal(t, want, seen[name], "%s in %v", name, seen)
	}
	require.Contains(t, seen, `chanq_oldest_ready_seconds{queue="mail"}`)
	problems, err := testutil.CollectAndLint(m)
	require.NoError(t, err)
	require.Empty(t, problems)

	stop()
	require.NotContains(t, scrape(t, m), `chanq_up{queue="mail"}`)
}

func TestHooksAreCounted(t *testing.T) {
	m := chanqprom.New(chanqprom.Config{})
	h := m.Hooks()
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer"})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer", Up: true})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "vacuum", Err: errors.New("no right")})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "trim"})
	h.Isolated(chanq.IsolatedEvent{Queue: "q", Part: "producer", Items: 1, Change: 1})
	h.Isolated(chanq.IsolatedEvent{Queue: "q", Part: "producer", Items: 2, Change: 2}) // another producer
	h.Isolated(chanq.IsolatedEvent{Queue: "q", Part: "producer", Change: -1})
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "q"})
	for outcome, err := range map[chanq.OutcomeKind]error{
		chanq.OutcomeRetry: errors.New("x"), chanq.OutcomeSnooze: chanq.Snooze(time.Second, nil), chanq.OutcomeRelease: errors.New("stopped"), chanq.OutcomeAck: nil,
	} {
		h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "q"}, Outcome: outcome, Err: err})
	}
	h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "q", DueAt: time.Now().Add(-4 * time.Minute)}, Outcome: chanq.OutcomeAck, Took: 3 * time.Minute})
	h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "q", DueAt: time.Now().Add(time.Minute)}, Outcome: chanq.OutcomeAck, Took: time.Second}) // by a fast clock
	h.Claimed(chanq.ClaimedEvent{Queue: "q", Messages: 3})
	seen := scrape(t, m)
	for name, want := range map[string]string{
		`chanq_outages_total{part="consumer",queue="q"}`:      "2",
		`chanq_parts_in_outage{part="consumer",queue="q"}`:    "1",
		`chanq_isolated{part="producer",queue="q"}`:           "2",
		`chanq_housekeeping_refused{queue="q",task="vacuum"}`: "1",
		`chanq_housekeeping_refused{queue="q",task="trim"}`:   "0",
		`chanq_leases_lost_total{queue="q"}`:                  "1",
		`chanq_handler_errors_total{queue="q"}`:               "1",
		`chanq_delivered_messages_total{queue="q"}`:           "3",
		`chanq_handler_seconds_sum{queue="q"}`:                "181",
		`chanq_handler_seconds_bucket{queue="q",le="60"}`:     "1",
		`chanq_handler_seconds_bucket{queue="q",le="300"}`:    "2",
		`chanq_wait_seconds_count{queue="q"}`:                 "2",
		`chanq_wait_seconds_bucket{queue="q",le="30"}`:        "1",
		`chanq_wait_seconds_bucket{queue="q",le="300"}`:       "2",
	} {
		require.Equal(t, want, seen[name], name)
	}
}

func TestAllQueuesAreMeasuredIncludingLaterOnes(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "q.db"))
	require.NoError(t, err)
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: time.Minute})
	defer m.WatchAll(db, chanq.Config{})()
	require.Empty(t, scrape(t, m))
	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", chanq.Config{}))
	require.NoError(t, chanq.Migrate(t.Context(), db, "payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, DeadKey: chanq.DeadKeyHolds}}))
	seen := scrape(t, m)
	require.Equal(t, "1", seen[`chanq_up{queue="mail"}`])
	require.Equal(t, "1", seen[`chanq_up{queue="payments"}`])
	for _, name := range []string{"'No such Name'", "CAST(x'ff' AS TEXT)"} { // written by another program
		_, err := db.Exec("UPDATE chanq__queues SET name = " + name + " WHERE name = 'mail'")
		require.NoError(t, err)
		seen = scrape(t, m)
		require.Equal(t, "1", seen[`chanq_up{queue="payments"}`])
		require.Contains(t, seen, map[bool]string{true: `chanq_up{queue="No such Name"}`, false: "chanq_up{queue=\"\uFFFD\"}"}[name == "'No such Name'"])
		_, err = db.Exec("UPDATE chanq__queues SET name = 'mail' WHERE name <> 'payments'")
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	require.Equal(t, map[string]string{`chanq_up{queue=""}`: "0", `chanq_up{queue="payments"}`: "0", "chanq_up{queue=\"\uFFFD\"}": "0"}, unfound(scrape(t, m)), "the database does not answer")
}

// slow is a queue whose database responds slowly.
type slow struct {
	quiet
	looks   atomic.Int64
	hanging atomic.Bool
}

func (s *slow) Label() string { return "slow" }

func (s *slow) Stats(ctx context.Context) (chanqadmin.Stats, error) {
	s.looks.Add(1)
	if s.hanging.Load() {
		<-ctx.Done()
		return chanqadmin.Stats{}, ctx.Err()
	}
	return chanqadmin.Stats{Ready: 1, Paused: true}, nil
}

func TestConcurrentScrapesShareOneRead(t *testing.T) {
	s := &slow{}
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Hour})
	defer m.Watch(s)()
	for range 3 {
		seen := scrape(t, m)
		require.Equal(t, []string{"1", "1"}, []string{seen[`chanq_messages{queue="slow",state="ready"}`], seen[`chanq_paused{queue="slow"}`]})
	}
	require.Equal(t, int64(1), s.looks.Load())
}

func TestAScrapeDoesNotWaitForADatabaseThatHangs(t *testing.T) {
	s := &slow{}
	s.hanging.Store(true)
	m := chanqprom.New(chanqprom.Config{Timeout: 10 * time.Millisecond})
	defer m.Watch(s)()
	require.Equal(t, "1", scrape(t, m)[`chanq_finding{kind="unreachable",queue="slow"}`])
	require.Equal(t, map[string]string{`chanq_up{queue="slow"}`: "0"}, unfound(scrape(t, m)))
}

func TestShardsAreDistinguished(t *testing.T) {
	var shards []chanqshards.Shard
	for _, name := range []string{"east", "west"} {
		db, err := embedded.Open(filepath.Join(t.TempDir(), "q.db"))
		require.NoError(t, err)
		defer db.Close()
		shards = append(shards, chanqshards.Shard{Name: name, DB: db})
	}
	require.NoError(t, chanqshards.Migrate(t.Context(), shards, "mail", chanq.Config{}))
	m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: time.Minute})
	q, err := chanqshards.Open[string](t.Context(), shards, "mail", chanq.Config{Hooks: m.Hooks()})
	require.NoError(t, err)
	var stops []func()
	for i := range q.Shards() {
		a, err := q.Admin(t.Context(), i)
		require.NoError(t, err)
		stops = append(stops, m.Watch(a))
	}
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	message := chanq.Message[string]{DedupKey: "k"}
	_, err = p.Send(t.Context(), message)
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	there, other := shards[q.ShardOf(message)].Name, shards[1-q.ShardOf(message)].Name

	seen := scrape(t, m)
	for name, want := range map[string]string{
		`chanq_sent_messages_total{queue="mail/` + there + `"}`:    "1",
		`chanq_messages{queue="mail/` + there + `",state="ready"}`: "1",
		`chanq_messages{queue="mail/` + other + `",state="ready"}`: "0",
		`chanq_up{queue="mail/` + other + `"}`:                     "1",
		`chanq_consumers{queue="mail/` + other + `"}`:              "0",
	} {
		require.Equal(t, want, seen[name], "%s in %v", name, seen)
	}
	require.NoError(t, shards[1-q.ShardOf(message)].DB.Close())
	seen = scrape(t, m)
	require.Equal(t, "0", seen[`chanq_up{queue="mail/`+other+`"}`])
	require.Equal(t, "1", seen[`chanq_up{queue="mail/`+there+`"}`])
	require.Equal(t, "1", seen[`chanq_messages{queue="mail/`+there+`",state="ready"}`])
	require.NotContains(t, seen, `chanq_messages{queue="mail/`+other+`",state="ready"}`)
	for _, stop := range stops {
		stop()
	}

	// Each event alone, in a program without other events of the queue.
	each := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Timeout: time.Minute})
	defer each.WatchAll(shards[q.ShardOf(message)].DB, chanq.Config{})()
	require.Equal(t, "1", scrape(t, each)[`chanq_up{queue="mail/`+strconv.Itoa(q.ShardOf(message))+`"}`])
}
