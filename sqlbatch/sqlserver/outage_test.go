package sqlserver_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/sqlkind"
)

// awaitEmpty waits until every message has left its queue. Unlike Stats, it waits for locked rows.
func awaitEmpty(t *testing.T, ctx context.Context, srv *mssqltest.Server) {
	assert.Eventually(t, func() bool {
		var n int
		err := srv.DB().QueryRowContext(ctx, "SELECT COUNT(*) FROM dbo.chanq_orders WITH (READCOMMITTEDLOCK)").Scan(&n)
		return err == nil && n == 0
	}, testdb.Patience, 10*time.Millisecond)
}

// traffic sends and acks while faults occur.
type traffic struct {
	t         *testing.T
	ctx       context.Context
	srv       *mssqltest.Server
	seen      availability
	q         *chanq.Queue[int]
	p         *chanq.Producer[int]
	c         *chanq.Consumer[int]
	mu        sync.Mutex
	delivered map[int]bool
	confirmed map[int]bool
	changed   chan struct{} // another message was delivered
	breaking  sync.WaitGroup
}

func newTraffic(t *testing.T, statement time.Duration) *traffic {
	ctx := testdb.Soon(t)
	f := &traffic{t: t, ctx: ctx, delivered: map[int]bool{}, confirmed: map[int]bool{}, changed: make(chan struct{}, 10_000)}
	f.srv = newQueue(t, mssqltest.Options{ReadCommittedSnapshot: true}).Server
	var err error
	f.q, err = chanq.Open[int](ctx, f.srv.DB(), "orders", chanq.Config{Hooks: f.seen.hooks(), StatementTimeout: statement})
	require.NoError(t, err)
	f.p, err = f.q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	f.c, err = f.q.Consume(ctx, shortLease)
	require.NoError(t, err)
	return f
}

// run sends n messages and acks them, until all have ended in the database.
func (f *traffic) run(n int) {
	f.t.Helper()
	var running sync.WaitGroup
	running.Go(func() {
		for i := range n {
			_, err := f.p.Send(f.ctx, chanq.Message[int]{Body: i})
			assert.NoError(f.t, err)
		}
		awaitEmpty(f.t, f.ctx, f.srv)
		f.c.Stop()
	})
	for l := range f.c.All() {
		f.mu.Lock()
		again := f.confirmed[l.Body]
		f.delivered[l.Body] = true
		f.mu.Unlock()
		// An INSERT with an unknown outcome is repeated: if the message was acked before that, it is a new row.
		require.False(f.t, again && l.Attempt > 1, "%d was delivered after its ack was confirmed", l.Body)
		f.changed <- struct{}{}
		_ = l.Ack()
		running.Go(func() {
			if l.Wait(f.ctx) == nil {
				f.mu.Lock()
				f.confirmed[l.Body] = true
				f.mu.Unlock()
			}
		})
	}
	running.Wait()
	require.NoError(f.t, f.c.Shutdown(f.ctx))
	require.NoError(f.t, f.c.Err())
	require.NoError(f.t, f.p.Close(f.ctx))
	f.breaking.Wait()
	f.srv.DB().SetMaxIdleConns(-1) // idle connections might be broken
	require.Len(f.t, f.delivered, n)
	stats, err := testdb.Admin(f.q).Stats(f.ctx)
	require.NoError(f.t, err)
	require.Zero(f.t, stats.Dead)
	empty, err := f.q.Empty(f.ctx)
	require.NoError(f.t, err)
	require.True(f.t, empty)
	f.seen.requireAlternating(f.t)
}

func TestAStatementThatTimesOutIsRepeated(t *testing.T) {
	t.Parallel()
	for _, kind := range []sqlkind.Kind{sqlkind.Enqueue, sqlkind.Claim, sqlkind.Ack} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				f := newTraffic(t, 200*time.Millisecond)
				// The client's deadline passes, it sends an attention, and the request is rolled back; or the answer arrives too
				// late.
				before := f.srv.Inject(mssqltest.Fault{Match: sqlkind.Is(kind), At: mssqltest.Received, Delay: time.Minute})
				after := f.srv.Inject(mssqltest.Fault{Match: sqlkind.Is(kind), At: mssqltest.Answered, Delay: time.Minute})
				f.run(50)
				<-before.Fired()
				<-after.Fired()
			})
		})
	}
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
