package sqlserver_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/sqlkind"
)

// availability records the Availability hook.
type availability struct {
	mu     sync.Mutex
	events map[string][]bool // by part
}

func (a *availability) hooks() chanq.Hooks {
	return chanq.Hooks{Availability: func(e chanq.AvailabilityEvent) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.events == nil {
			a.events = map[string][]bool{}
		}
		a.events[e.Part] = append(a.events[e.Part], e.Up)
	}}
}

// requireAlternating checks that down and up alternate. A consumer that stops while the database is down is
// not notified that it is up.
func (a *availability) requireAlternating(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for part, events := range a.events {
		for i, up := range events {
			require.Equal(t, i%2 == 1, up, "%s: %v", part, events)
		}
	}
}

// longLease configures a consumer that knows the outcome of a settle whose answer was lost: no other consumer can have
// had the message meanwhile.
var longLease = chanq.ConsumerConfig{LeaseFor: 20 * time.Second, PollEvery: 20 * time.Millisecond}

// shortLease configures a consumer whose leases end soon, so that the test also covers the repetition of a claim whose
// answer was lost.
var shortLease = chanq.ConsumerConfig{LeaseFor: 400 * time.Millisecond, PollEvery: 20 * time.Millisecond}

// life has messages that end in every possible way, and the outcome of each. A body has the way in which its message
// ends.
type life struct {
	t        *testing.T
	ctx      context.Context
	sent     []chanq.Message[string]
	extended <-chan struct{} // what the message "extend" waits for

	mu        sync.Mutex
	confirmed map[string]bool // permanently in the database
	gave      map[string]bool // released once, confirmed
}

func newLife(t *testing.T, ctx context.Context) *life {
	l := &life{t: t, ctx: ctx, confirmed: map[string]bool{}, gave: map[string]bool{}}
	for _, way := range []string{"ack", "nack", "release", "dead-letter", "extend"} {
		for i := range 3 {
			l.sent = append(l.sent, chanq.Message[string]{Body: way + " " + strconv.Itoa(i)})
		}
	}
	return l
}

// send stores the messages without and with keys.
func (l *life) send(p *chanq.Producer[string]) {
	l.t.Helper()
	_, err := p.SendBatch(l.ctx, l.sent...)
	require.NoError(l.t, err)
	for i := range 3 {
		m := chanq.Message[string]{Body: "ack key " + strconv.Itoa(i), DedupKey: strconv.Itoa(i)}
		receipt, err := p.Send(l.ctx, m)
		require.NoError(l.t, err)
		require.False(l.t, receipt.Duplicate)
		l.sent = append(l.sent, m)
	}
}

// live settles all deliveries of the consumer until every message has ended.
func (l *life) live(c *chanq.Consumer[string]) {
	l.t.Helper()
	var handlers sync.WaitGroup
	for lease := range c.All() {
		l.mu.Lock()
		again := l.confirmed[lease.Body]
		l.mu.Unlock()
		require.False(l.t, again, "%s was delivered after its end was confirmed", lease.Body)
		handlers.Go(func() {
			if l.settle(lease) == len(l.sent) {
				c.Stop()
			}
		})
	}
	handlers.Wait()
	require.NoError(l.t, c.Shutdown(l.ctx))
	require.NoError(l.t, c.Err())
	require.NoError(l.t, l.ctx.Err(), "%v ended of %d", l.confirmed, len(l.sent))
}

// settle ends a lease and returns how many messages have ended permanently.
func (l *life) settle(lease *chanq.Lease[string]) int {
	way, _, _ := strings.Cut(lease.Body, " ")
	l.mu.Lock()
	gave := l.gave[lease.Body]
	l.mu.Unlock()
	last := true
	switch {
	case way == "nack" && !gave:
		last = false
		_ = lease.Nack(chanq.RetryAfter(0, context.Canceled))
	case way == "release" && !gave:
		last = false
		_ = lease.Release()
	case way == "dead-letter":
		_ = lease.Nack(chanq.DeadLetter(context.Canceled))
	default:
		if way == "extend" && l.extended != nil {
			select {
			case <-l.extended:
			case <-lease.Context().Done():
			case <-l.ctx.Done():
			}
		}
		_ = lease.Ack()
	}
	err := lease.Wait(l.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		if last {
			l.confirmed[lease.Body] = true
		} else {
			l.gave[lease.Body] = true
		}
	}
	return len(l.confirmed)
}

// requireEnded checks that the database has the dead-lettered messages, and nothing else.
func (l *life) requireEnded(q *chanq.Queue[string]) {
	l.t.Helper()
	stats, err := testdb.Admin(q).Stats(l.ctx)
	require.NoError(l.t, err)
	require.Equal(l.t, []int{0, 0, 0, 3}, []int{stats.Ready, stats.Scheduled, stats.Leased, stats.Dead})
}

// runLife sends and ends all messages on a server with a fault of one kind of statement.
func runLife(t *testing.T, rcsi bool, kind sqlkind.Kind, f mssqltest.Fault) {
	inBubble(t, func(t *testing.T) { oneLife(t, rcsi, kind, f) })
}

func oneLife(t *testing.T, rcsi bool, kind sqlkind.Kind, f mssqltest.Fault) {
	ctx := testdb.Soon(t)
	srv := newQueue(t, mssqltest.Options{ReadCommittedSnapshot: rcsi}).Server
	var seen availability
	q, err := chanq.Open[string](ctx, srv.DB(), "orders", chanq.Config{Hooks: seen.hooks(), StatementTimeout: 5 * time.Second})
	require.NoError(t, err)
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	f.Match = sqlkind.Is(kind)
	struck := srv.Inject(f)
	l := newLife(t, ctx)
	if kind == sqlkind.Extend {
		l.extended = struck.Fired()
	}
	l.send(p)
	require.NoError(t, p.Close(ctx))
	cfg := longLease
	if kind == sqlkind.Claim || l.extended != nil {
		cfg = shortLease
	}
	c, err := q.Consume(ctx, cfg)
	require.NoError(t, err)
	l.live(c)
	select {
	case <-struck.Fired():
	default:
		require.Fail(t, "the fault did not occur")
	}
	l.requireEnded(q)
	seen.requireAlternating(t)
}

func TestNothingIsLostAfterAnyFaultAtAnyStatement(t *testing.T) {
	t.Parallel()
	faults := []struct {
		name  string
		fault mssqltest.Fault
	}{
		{"reset before it runs", mssqltest.Fault{At: mssqltest.Received, Reset: true}},
		{"throttled", mssqltest.Fault{At: mssqltest.Received, Error: 40501}},
		{"unavailable", mssqltest.Fault{At: mssqltest.Received, Error: 40613}},
		{"too many operations", mssqltest.Fault{At: mssqltest.Received, Error: 49918}},
		{"deadlock victim", mssqltest.Fault{At: mssqltest.Applied, Error: 1205, Times: 2}},
		{"lock timeout", mssqltest.Fault{At: mssqltest.Started, Error: 1222, Times: 2}},
		{"reset before commit", mssqltest.Fault{At: mssqltest.Applied, Reset: true}},
		{"reset after commit", mssqltest.Fault{At: mssqltest.Answered, Reset: true, Times: 2}},
		{"session killed before it runs", mssqltest.Fault{At: mssqltest.Received, Error: 596}},
		{"session killed before commit", mssqltest.Fault{At: mssqltest.Applied, Error: 596}},
		{"session ended by the provider", mssqltest.Fault{At: mssqltest.Answered, Error: 40197}},
		{"longer than the timeout", mssqltest.Fault{At: mssqltest.Received, Delay: time.Minute}}, // the driver sends an attention, and it is rolled back
		{"an answer after the timeout", mssqltest.Fault{At: mssqltest.Answered, Delay: time.Minute}},
	}
	rcsi := false
	for _, kind := range []sqlkind.Kind{
		sqlkind.Enqueue, sqlkind.EnqueueNew, sqlkind.Claim, sqlkind.Ack, sqlkind.Nack,
		sqlkind.Release, sqlkind.DeadLetter, sqlkind.Extend,
	} {
		for _, c := range faults {
			f := c.fault
			if kind == sqlkind.Enqueue && f.At == mssqltest.Answered {
				f.Times = 1 // only a keyed enqueue follows an unknown outcome
			}
			snapshots := rcsi
			rcsi = !rcsi // alternately: with thirteen faults, every fault meets both settings over the kinds
			t.Run(string(kind)+" "+c.name, func(t *testing.T) {
				t.Parallel()
				runLife(t, snapshots, kind, f)
			})
		}
	}
}

func TestOfCopiesInTheDoneTableGetReturnsTheLast(t *testing.T) {
	server := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	ctx, id := testdb.Soon(t), chanq.NewID()
	cfg := chanq.Config{Spec: chanq.Spec{Retain: time.Hour}}
	require.NoError(t, chanq.Migrate(ctx, server.DB(), "orders", cfg))
	q, err := chanq.Open[string](ctx, server.DB(), "orders", cfg)
	require.NoError(t, err)
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	for _, body := range []string{"first", "second", "third"} {
		_, err = p.Send(ctx, chanq.Message[string]{ID: id, Body: body})
		require.NoError(t, err)
		leases := testdb.Lease(t, q, 1, time.Minute)
		require.NoError(t, leases[0].Ack())
		server.Clock().Advance(time.Second)
	}
	require.NoError(t, p.Close(ctx))
	e, err := testdb.Admin(q).Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "third", string(e.Body))
}

// Rows of a statement might arrive before the error that undoes it.
func TestATrimThatWasUndoneIsRepeated(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx := testdb.Soon(t)
		srv := newQueue(t, mssqltest.Options{ReadCommittedSnapshot: true}).Server
		require.NoError(t, chanq.Migrate(ctx, srv.DB(), "orders", chanq.Config{Spec: chanq.Spec{Retain: time.Millisecond}}))
		orders, err := chanq.Open[int](ctx, srv.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		send(t, ctx, orders, 1, 3)
		leases := testdb.Lease(t, orders, 3, time.Minute)
		for i, l := range leases {
			require.NoError(t, l.Ack())
			_, err := srv.DB().ExecContext(ctx, "UPDATE dbo.chanq_orders__done SET ended_at = DATEADD(second, @p1, ended_at) WHERE id = @p2", i-9, l.ID[:])
			require.NoError(t, err)
		}

		struck := srv.Inject(mssqltest.Fault{At: mssqltest.Applied, Error: 1205, Match: func(r mssqltest.Request) bool { return strings.Contains(r.Text, "@cut") }})
		consumer := consume(t, ctx, orders, chanq.ConsumerConfig{})
		<-struck.Fired()
		require.Eventually(t, func() bool {
			stats, err := testdb.Admin(orders).Stats(ctx)
			require.NoError(t, err)
			return stats.Done == 0
		}, testdb.Patience, 10*time.Millisecond)
		require.NoError(t, consumer.Shutdown(ctx))
	})
}
