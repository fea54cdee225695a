package mssqlnotify_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/mssqltest/memnet"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/netproxy"
	"github.com/chanq/chanq/prove/testdb/sqlkind"
)

// Consumers with separate *sql.DBs and Notifiers simulate processes.

// server is an emulator with the queue orders.
type server struct {
	*mssqltest.Server
	t *testing.T
}

func inBubble(t *testing.T, test func(*testing.T)) { testdb.InBubble(t, true, test) }

func newServer(t *testing.T, o mssqltest.Options) *server {
	testdb.Emulator.Require(t)
	o.InMemory = true // so that it can run in a bubble
	s := &server{mssqltest.Start(t, o), t}
	require.NoError(t, chanq.Migrate(t.Context(), s.DB(), "orders", chanq.Config{}))
	return s
}

// owner opens the queue in a process without a Notifier.
func (s *server) owner(ctx context.Context) *chanq.Queue[int] {
	s.t.Helper()
	q, err := chanq.Open[int](ctx, s.DB(), "orders", chanq.Config{})
	require.NoError(s.t, err)
	return q
}

type process struct {
	db       *sql.DB
	notifier *mssqlnotify.Notifier
	queue    *chanq.Queue[int]
}

// process connects to dsn as a separate process.
func (s *server) process(ctx context.Context, dsn string, cfg mssqlnotify.Config) *process {
	s.t.Helper()
	c, err := testdb.Emulator.Connect(dsn)
	require.NoError(s.t, err)
	p := &process{db: sql.OpenDB(c)}
	p.notifier = mssqlnotify.New(p.db, cfg)
	s.t.Cleanup(func() {
		require.NoError(s.t, p.notifier.Close())
		require.NoError(s.t, p.db.Close())
	})
	p.queue, err = chanq.Open[int](ctx, p.db, "orders", chanq.Config{Notifier: p.notifier})
	require.NoError(s.t, err)
	return p
}

// idle starts a consumer in another process.
func (s *server) idle(ctx context.Context, dsn string) *chanq.Consumer[int] {
	s.t.Helper()
	return consume(s.t, ctx, s.process(ctx, dsn, mssqlnotify.Config{}).queue, rarely)
}

// waitingSessions waits until n sessions are in a request: a process without a lock tries again
// within 12 s, and a process that lost its lock listens again 5 s later.
func (s *server) waitingSessions(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return len(s.Waiting()) == n }, testdb.Patience, time.Millisecond, "%d wait", n)
}

// consume starts a consumer that ends with the test, even if the test fails.
func consume(t *testing.T, ctx context.Context, q *chanq.Queue[int], cfg chanq.ConsumerConfig) *chanq.Consumer[int] {
	t.Helper()
	c, err := q.Consume(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		defer cancel()
		_ = c.Shutdown(bound)
	})
	return c
}

func send(t *testing.T, ctx context.Context, q *chanq.Queue[int], body int) {
	t.Helper()
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(ctx, chanq.Message[int]{Body: body})
	require.NoError(t, err)
	require.NoError(t, p.Close(ctx))
}

func receive(t *testing.T, ctx context.Context, c *chanq.Consumer[int]) int {
	t.Helper()
	select {
	case l := <-c.C():
		require.NoError(t, l.Ack())
		require.NoError(t, l.Wait(ctx))
		return l.Body
	case <-ctx.Done():
		require.FailNow(t, "blocked")
		return 0
	}
}

// The server's clock is stopped, so no request ends on its own.
func TestTwoOfFiveProcessesWaitAndCloseEndsItImmediately(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		s := newServer(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true})
		got := make(chan int, 100)
		long := rarely
		long.LeaseFor = time.Hour // the test advances the server's clock while messages are acked
		var notifiers []*mssqlnotify.Notifier
		var all []*chanq.Consumer[int]
		for range 5 {
			p := s.process(ctx, s.DSN(), mssqlnotify.Config{})
			c := consume(t, ctx, p.queue, long)
			notifiers, all = append(notifiers, p.notifier), append(all, c)
			go func() {
				for l := range c.C() {
					got <- l.Body
					_ = l.Ack()
				}
			}()
		}
		s.waitingSessions(2)
		require.Eventually(t, func() bool {
			for _, c := range all {
				if c.Stats().Looks == 0 {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
		require.Len(t, s.Waiting(), 2)
		locks := func() int { return len(s.Locks()) }
		require.Eventually(t, func() bool { return locks() == 2 }, time.Minute, time.Millisecond, "two are taken")
		owner := s.owner(ctx)
		for i, c := range all {
			send(t, ctx, owner, i)
			for len(s.Waiting()) > 0 && len(got) == 0 {
				s.Clock().Advance(2 * time.Millisecond)
			}
			require.Equal(t, i, <-got)
			s.waitingSessions(min(2, len(all)-i))
			require.NoError(t, c.Shutdown(ctx))
			require.NoError(t, notifiers[i].Close())
			s.waitingSessions(min(2, len(all)-i-1))
		}
		require.Eventually(t, func() bool { return locks() == 0 }, time.Minute, time.Millisecond)
	})
}

// The request of a stopped process ends at its timeout or with a find, and releases the lock,
// although the process does not read the response.
func TestAStoppedProcessDoesNotKeepItsLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := newServer(t, mssqltest.Options{})
		dsn, err := url.Parse(s.DSN())
		require.NoError(t, err)
		proxy, err := netproxy.Listen(memnet.Network, dsn.Host)
		require.NoError(t, err)
		t.Cleanup(proxy.Close) // after the end of the processes: go-mssqldb 1.11.2 passes the buffer of a cut connection to the next one while it still reads
		frozen := *dsn
		frozen.Host = proxy.Addr().String()
		for range 2 {
			s.idle(ctx, frozen.String())
		}
		s.waitingSessions(2)
		healthy := s.idle(ctx, s.DSN())
		require.Eventually(t, func() bool { return healthy.Stats().Looks > 0 }, testdb.Patience, time.Millisecond)
		proxy.Set(netproxy.Silence)
		defer proxy.Set(netproxy.Conditions{})
		owner := s.owner(ctx)
		send(t, ctx, owner, 1)
		require.Equal(t, 1, receive(t, ctx, healthy))
	})
}

func TestABusyConsumerReleasesItsLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := newServer(t, mssqltest.Options{})
		slow := rarely
		slow.Prefetch = 1
		var busy []*chanq.Consumer[int]
		for range 2 {
			busy = append(busy, consume(t, ctx, s.process(ctx, s.DSN(), mssqlnotify.Config{}).queue, slow))
		}
		s.waitingSessions(2)
		idle := s.idle(ctx, s.DSN())
		require.Eventually(t, func() bool { return idle.Stats().Looks > 0 }, testdb.Patience, time.Millisecond)
		owner := s.owner(ctx)
		n := 0
		for busy[0].Stats().Buffered == 0 || busy[1].Stats().Buffered == 0 {
			n++
			send(t, ctx, owner, n)
			require.Eventually(t, func() bool {
				return int(busy[0].Stats().Claimed+busy[1].Stats().Claimed+idle.Stats().Claimed) == n
			}, 15*time.Second, time.Millisecond)
			for len(idle.C()) > 0 {
				receive(t, ctx, idle)
			}
		}
		send(t, ctx, owner, n+1)
		require.Equal(t, n+1, receive(t, ctx, idle))
	})
}

// chanq does not count the connection of a Notifier: a consumer needs 5, and the application one.
func TestANotifierTakesOneConnectionOfTheLimit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx := testdb.Soon(t)
		s := newServer(t, mssqltest.Options{})
		p := s.process(ctx, s.DSN(), mssqlnotify.Config{})
		p.db.SetMaxOpenConns(5)
		_, err := p.queue.Consume(ctx, rarely)
		require.ErrorContains(t, err, "SetMaxOpenConns(6)")
		p.db.SetMaxOpenConns(7)
		c := consume(t, ctx, p.queue, rarely)
		s.waitingSessions(1)
		held, err := p.db.Conn(ctx)
		require.NoError(t, err)
		send(t, ctx, s.owner(ctx), 1)
		require.Equal(t, 1, receive(t, ctx, c))
		require.NoError(t, held.Close())
	})
}

// The statements of five processes, first without messages and then with a message.
func TestStatementsOfIdleConsumers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var asked sqlkind.Counter
		s := newServer(t, mssqltest.Options{OnRequest: asked.Count})
		var all []*chanq.Consumer[int]
		for range 5 {
			all = append(all, consume(t, ctx, s.process(ctx, s.DSN(), mssqlnotify.Config{Every: 5 * time.Millisecond}).queue, chanq.ConsumerConfig{}))
		}
		s.waitingSessions(2)
		const idle, messages = 4, 20
		pass(ctx, 2*time.Second) // before that the consumers poll in quick succession
		asked.Take()
		pass(ctx, idle*time.Second)
		n := asked.Take()
		t.Logf("%d s of 5 idle consumers: %v", idle, n)
		require.LessOrEqual(t, n[sqlkind.Watch], int64(2*(idle+1)+3*3), "one a second of the two with a lock, and tries of the others")
		require.LessOrEqual(t, n[sqlkind.NextDue]+n[sqlkind.Rescan]+n[sqlkind.Claim], int64(5*(idle+2)), "one a second each, as without")

		owner := s.owner(ctx)
		claimed := func() (sum int64) {
			for _, c := range all {
				sum += c.Stats().Claimed
			}
			return sum
		}
		began := time.Now()
		for i := range messages {
			send(t, ctx, owner, i)
			require.Eventually(t, func() bool { return claimed() == int64(i+1) }, testdb.Patience, time.Millisecond)
		}
		took := time.Since(began)
		n = asked.Take()
		t.Logf("%d messages one after another, each with the next idle consumer after %v: %v", messages, took/messages, n)
		require.LessOrEqual(t, n[sqlkind.Claim], int64(2*messages), "usually one process claims")
		require.LessOrEqual(t, n[sqlkind.Watch], int64(2*messages))
	})
}

// pass waits for d, during which nothing should happen.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
