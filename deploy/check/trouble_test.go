package check

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/chanqprom"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/trouble"
)

// scraped are the series that Prometheus reads, and their values.
func scraped(t testing.TB, m *chanqprom.Metrics) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	found := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		if i := strings.LastIndex(line, "} "); i > 0 && !strings.HasPrefix(line, "#") {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
			require.NoError(t, err, line)
			found[line[:i+1]] = v
		}
	}
	return found
}

// every is how often Prometheus scrapes.
const every = 15 * time.Second

// fired is an alert that was sent.
type fired struct {
	alert, severity  string
	summary, runbook string        // as it was sent last
	from, until      time.Duration // since the first scrape; until is 0 if it did not end
}

// replay evaluates the alerts on scrapes, as Prometheus does.
func replay(t *testing.T, scrapes []map[string]float64) (all []fired) {
	t.Helper()
	storage := teststorage.New(t)
	defer storage.Close()
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 100_000), storage)
	var loaded []*rules.AlertingRule
	for name, r := range alerts(t) {
		expr, err := parser.ParseExpr(r.Expr)
		require.NoError(t, err)
		loaded = append(loaded, rules.NewAlertingRule(name, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
			labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, nil))
	}
	open := map[string]int{} // what fires, by its labels
	known := map[string]labels.Labels{}
	for i, now := range scrapes {
		at := time.Unix(0, 0).Add(time.Duration(i) * every)
		into := storage.Appender(context.Background())
		for name, v := range now {
			if known[name].IsEmpty() {
				series, err := parser.ParseMetric(name)
				require.NoError(t, err, name)
				known[name] = labels.NewBuilder(series).Set("job", "chanq").Labels()
			}
			_, err := into.Append(0, known[name], timestamp.FromTime(at), v)
			require.NoError(t, err)
		}
		for name, series := range known {
			if _, scraped := now[name]; !scraped {
				_, err := into.Append(0, series, timestamp.FromTime(at), math.Float64frombits(value.StaleNaN))
				require.NoError(t, err)
				delete(known, name)
			}
		}
		require.NoError(t, into.Commit())
		still := map[string]bool{}
		for _, r := range loaded {
			_, err := r.Eval(context.Background(), 0, at, query, nil, 0)
			require.NoError(t, err, r.Name())
			for _, a := range r.ActiveAlerts() {
				if a.State != rules.StateFiring {
					continue
				}
				id := a.Labels.String()
				if _, before := open[id]; !before {
					open[id] = len(all)
					all = append(all, fired{alert: r.Name(), severity: a.Labels.Get("severity"), from: at.Sub(time.Unix(0, 0))})
				}
				one := &all[open[id]]
				one.summary, one.runbook = a.Annotations.Get("summary"), a.Annotations.Get("runbook_url")
				still[id] = true
			}
		}
		for id, n := range open {
			if !still[id] {
				all[n].until = at.Sub(time.Unix(0, 0))
				delete(open, id)
			}
		}
	}
	return all
}

// report is the alert of a fault.
type report struct {
	alert, severity, section string
	after, by                time.Duration // when it is sent, after the fault
	says                     string        // a regular expression
}

var reports = map[string]report{
	"messages of one type die":        {"ChanqDead", "ticket", "messages-of-one-type-fail", 1 * time.Minute, 2 * time.Minute, `^orders: about 6 messages were dead-lettered in the last hour$`},
	"all attempts fail":               {"ChanqFailing", "page", "failing", 5 * time.Minute, 6 * time.Minute, `^orders: (all|\d+) of the last \d+ attempts failed(: POST https://pay.example/charge: 503 Service Unavailable)?$`},
	"handlers hang, with a backlog":   {"ChanqFailure", "page", "stuck", 3 * time.Minute, 4 * time.Minute, `^orders: all \d messages in hand have been leased for .*, by web-6$`},
	"handlers hang, nothing is ready": {"ChanqFailure", "page", "stuck", 3 * time.Minute, 4 * time.Minute, `^orders: all \d messages in hand have been leased for .*, by web-6$`},
	"one of eight hangs":              {"ChanqWarning", "ticket", "stuck", 4 * time.Minute, 5 * time.Minute, `^orders: 1 of \d+ messages in hand has been leased for .*, by web-6$`},
	"the consumer is killed":          {"ChanqFailure", "page", "consumer-lost", 2*time.Minute + 20*time.Second, 3 * time.Minute, `^orders: consumer web-6 is not heard, with 3 messages in hand, the last taken .* ago; no other runs$`},
	"a table is locked":               {"ChanqDatabase", "page", "locked", 2 * time.Minute, 3 * time.Minute, `^orders: locked by .* \(session \d+\)( for .*)? \(queues: 1\)$`},
	"the file is locked":              {"ChanqDatabase", "page", "locked", 2 * time.Minute, 3 * time.Minute, `: another connection has the write lock of the file \(queues: 2\)$|: the file is locked for writing by .* \(queues: 2\)$`},
	"no consumer runs":                {"ChanqFailure", "page", "no-consumer", 2 * time.Minute, 3 * time.Minute, `^orders: no consumer runs; 12 messages wait, the oldest for .*$`},
	"the queue is paused":             {"ChanqPaused", "ticket", "a-paused-queue", 60 * time.Minute, 61 * time.Minute, `^orders: paused for .* by ada: deploying 4.2$`},
	"a dead message blocks its key":   {"ChanqFailure", "page", "blocked-key", 2 * time.Minute, 3 * time.Minute, `^orders: 8 ready messages of 1 key wait for dead messages of the same key, for .*$`},
	"the database does not answer":    {"ChanqDatabase", "page", "unreachable", 2 * time.Minute, 3 * time.Minute, `^(healthy|orders): the database does not answer \(queues: [23]\)$`},
}

// TestEachFaultIsOneAlert causes each fault for six minutes and a half, a pause for more than an hour, and repairs it. It scrapes the metrics every 15 s, on
// engines with a real clock every second. The alert of the fault is the only one during it and in the 20 minutes after it. It ends
// within a minute after the repair.
func TestEachFaultIsOneAlert(t *testing.T) {
	require.Len(t, reports, len(trouble.Faults))
	inRunbook := sections(t)
	for _, fault := range trouble.Faults {
		for _, e := range fault.Engines {
			if e.Name == testdb.EmulatorVersions.Name { // as Emulator, here
				continue
			}
			t.Run(fault.Name+"/"+e.Name, func(t *testing.T) {
				t.Parallel()
				if !e.Bubble && slices.ContainsFunc(fault.Engines, func(e testdb.Engine) bool { return e.Bubble }) {
					testdb.Soak(t) // a minute on a real clock
				}
				want := reports[fault.Name]
				require.NotZero(t, want)
				var scrapes []map[string]float64
				began, repaired := 0, 0
				testdb.Run(t, e, func(world *testdb.World) {
					m := chanqprom.New(chanqprom.Config{MaxAge: time.Nanosecond, Limits: chanqfindings.Limits{Stuck: limit(e)}})
					world.Within(30 * time.Minute)
					w := trouble.NewWard(world, m.Hooks())
					w.Healthy()
					watcher := w.DB
					if fault.Name == "the file is locked" { // the programs' statements wait for the lock: chanq ui has connections of its own
						_, watcher = w.Connect()
					}
					w.Cleanup(m.WatchAll(watcher, chanq.Config{Dialect: e.ChanqDialect()}))
					watch := func(n int) {
						for range n {
							scrapes = append(scrapes, scraped(w, m))
							time.Sleep(map[bool]time.Duration{true: every, false: time.Second}[e.Bubble])
						}
					}
					watch(4)
					end := fault.Cause(w)
					if !e.Bubble {
						found := fmt.Sprintf("chanq_finding{kind=%q,queue=\"orders\"}", fault.Finds[0])
						testdb.Eventually(w, "it is found", func() bool { return scraped(w, m)[found] == 1 })
					}
					began = len(scrapes)
					watch(26)
					end()
					if e.Bubble {
						time.Sleep(every)
					} else {
						found := fmt.Sprintf("chanq_finding{kind=%q,queue=\"orders\"}", fault.Finds[0])
						testdb.Eventually(w, "it is not found any more", func() bool { v, read := scraped(w, m)[found]; return read && v == 0 })
					}
					if fault.Name == "the queue is paused" {
						last := scrapes[len(scrapes)-1]
						for range 4 * 55 {
							scrapes = append(scrapes, last)
						}
					}
					repaired = len(scrapes)
					watch(12)
				})
				if t.Skipped() {
					return
				}
				for range 4 * 20 {
					scrapes = append(scrapes, scrapes[len(scrapes)-1])
				}
				sent := replay(t, scrapes)
				require.Len(t, sent, 1, "%+v", sent)
				one := sent[0]
				require.Equal(t, want.alert+" "+want.severity, one.alert+" "+one.severity, "%+v", one)
				require.Regexp(t, want.says, one.summary)
				require.Equal(t, runbooks+want.section, one.runbook)
				require.Contains(t, inRunbook, want.section)
				after := one.from - time.Duration(began)*every
				require.LessOrEqual(t, after, want.by)
				if e.Bubble {
					require.GreaterOrEqual(t, after, want.after-every)
				}
				require.NotZero(t, one.until, "it does not end")
				require.LessOrEqual(t, one.until-time.Duration(repaired)*every, time.Minute)
				t.Logf("%s after %v, ended %v after the repair: %s", one.alert, after, one.until-time.Duration(repaired)*every, one.summary)
			})
		}
	}
}

// limit is Limits.Stuck of an engine.
func limit(e testdb.Engine) time.Duration {
	if e.Bubble {
		return 0
	}
	return 3 * time.Second
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
	acked := func() float64 { return scraped(t, m)[`chanq_settled_messages_total{outcome="attempted",queue="post"}`] }
	send()
	require.Eventually(t, func() bool { return acked() == 1 }, time.Minute, 10*time.Millisecond)
	before := scraped(t, m)
	for range 3 {
		send()
	}
	require.Eventually(t, func() bool { return acked() == 4 }, time.Minute, 10*time.Millisecond)
	now := scraped(t, m)
	require.EqualValues(t, 4, now[`chanq_attempted_messages_total{queue="post"}`])
	require.Zero(t, now[`chanq_sent_messages_total{queue="post"}`])
	for _, scrape := range []map[string]float64{before, now} { // of a few statements, one is slow where the machine pauses for a second
		maps.DeleteFunc(scrape, func(name string, _ float64) bool { return strings.HasPrefix(name, "chanq_statement_duration_seconds") })
	}
	require.Empty(t, replay(t, slices.Concat(slices.Repeat([]map[string]float64{before}, 8), slices.Repeat([]map[string]float64{now}, 80))))
	c.Stop()
	require.NoError(t, <-handled)
}
