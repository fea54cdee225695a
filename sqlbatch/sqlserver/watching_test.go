package sqlserver_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/memnet"
	"github.com/chanq/chanq/prove/testdb/mssqltest"
	"github.com/chanq/chanq/prove/testdb/mssqltest/engine"
	"github.com/chanq/chanq/prove/testdb/mssqltest/tds"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

// Consumers that watch, each with a *sql.DB of its own, as processes have. They look once
// an hour, so what they get soon they got by a watch.

var hourly = chanq.ConsumerConfig{PollMin: time.Hour, PollMax: time.Hour, WatchEvery: 2 * time.Millisecond}

// process is a consumer with a *sql.DB of its own, reached by dsn.
func process(t *testing.T, ctx context.Context, dsn string, cfg chanq.ConsumerConfig) *chanq.Consumer[int] {
	t.Helper()
	db := connect(t, dsn)
	q, err := chanq.Open[int](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	return consume(t, ctx, q, cfg)
}

// waitingSessions waits until n sessions are in a watch: whoever found no free chair tries
// again within 12 s, and whoever lost his listens again 5 s later.
func (q *queue) waitingSessions(n int) {
	q.t.Helper()
	require.Eventually(q.t, func() bool { return len(q.Engine().Waiting()) == n }, testdb.Patience, time.Millisecond, "%d wait", n)
}

// The server's clock stands still: no watch ends by itself.
func TestOfFiveProcessesTwoWatchAndStopEndsThatAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		q := newQueue(t, mssqltest.Options{ReadCommittedSnapshot: true})
		got := make(chan int, 100)
		watches := hourly
		watches.PollMin = 50 * time.Millisecond // who has no chair yet claims, and listens again after that
		var all []*chanq.Consumer[int]
		for range 5 {
			c := process(t, ctx, q.DSN(), watches)
			all = append(all, c)
			go func() {
				for l := range c.C() {
					got <- l.Body
					_ = l.Ack()
				}
			}()
		}
		q.waitingSessions(2)
		require.Eventually(t, func() bool {
			for _, c := range all {
				if c.Stats().Looks == 0 {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
		require.Len(t, q.Engine().Waiting(), 2)
		locks := func() int { return len(q.Engine().Locks()) }
		require.Eventually(t, func() bool { return locks() == 2 }, time.Minute, time.Millisecond, "two chairs")
		owner, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		for i, c := range all {
			send(t, ctx, owner, i, i)
			for len(q.Engine().Waiting()) > 0 && len(got) == 0 {
				q.Clock().Advance(hourly.WatchEvery)
			}
			require.Equal(t, i, <-got)
			q.waitingSessions(min(2, len(all)-i))
			require.NoError(t, c.Shutdown(ctx))
			q.waitingSessions(min(2, len(all)-i-1))
		}
		require.Eventually(t, func() bool { return locks() == 0 }, time.Minute, time.Millisecond)
	})
}

// Its request ends in its time, or when there is something, and with it the chair, though
// nobody is there to read that.
func TestAProcessThatStandsStillDoesNotKeepItsChair(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		q := newQueue(t, mssqltest.Options{Clock: engine.RealClock{}})
		dsn, err := url.Parse(q.DSN())
		require.NoError(t, err)
		proxy, err := netproxy.Listen(memnet.Network, dsn.Host)
		require.NoError(t, err)
		t.Cleanup(proxy.Close) // after the processes have ended: go-mssqldb 1.11.2 gives the buffer of a connection that is cut to the next one while it still reads
		frozen := *dsn
		frozen.Host = proxy.Addr().String()
		for range 2 {
			process(t, ctx, frozen.String(), hourly)
		}
		q.waitingSessions(2)
		healthy := process(t, ctx, q.DSN(), hourly)
		require.Eventually(t, func() bool { return healthy.Stats().Looks > 0 }, testdb.Patience, time.Millisecond)
		proxy.Set(netproxy.Silence)
		defer proxy.Set(netproxy.Conditions{})
		owner, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		send(t, ctx, owner, 1, 1)
		require.Equal(t, []int{1}, receive(t, ctx, healthy, 1))
	})
}

func TestAConsumerWhoseReadersAreBusyLeavesItsChair(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		q := newQueue(t, mssqltest.Options{Clock: engine.RealClock{}})
		slow := hourly
		slow.Prefetch = 1
		busy := []*chanq.Consumer[int]{process(t, ctx, q.DSN(), slow), process(t, ctx, q.DSN(), slow)}
		q.waitingSessions(2)
		idle := process(t, ctx, q.DSN(), hourly)
		require.Eventually(t, func() bool { return idle.Stats().Looks > 0 }, testdb.Patience, time.Millisecond)
		owner, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		n := 0
		for busy[0].Stats().Buffered == 0 || busy[1].Stats().Buffered == 0 {
			n++
			send(t, ctx, owner, n, n)
			require.Eventually(t, func() bool {
				return int(busy[0].Stats().Claimed+busy[1].Stats().Claimed+idle.Stats().Claimed) == n
			}, 15*time.Second, time.Millisecond)
			for len(idle.C()) > 0 {
				receive(t, ctx, idle, 1)
			}
		}
		send(t, ctx, owner, n+1, n+1)
		require.Equal(t, []int{n + 1}, receive(t, ctx, idle, 1))
	})
}

func TestAWatchIsAmongTheConnectionsThatALimitMustHold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx := testdb.Soon(t)
		q := newQueue(t, mssqltest.Options{Clock: engine.RealClock{}})
		db := connect(t, q.DSN())
		orders, err := chanq.Open[int](ctx, db, "orders", chanq.Config{})
		require.NoError(t, err)
		db.SetMaxOpenConns(6)
		_, err = orders.Consume(ctx, hourly)
		require.ErrorContains(t, err, "SetMaxOpenConns(7)")
		require.ErrorContains(t, err, "1 for watches")
		without, err := orders.Consume(ctx, chanq.ConsumerConfig{})
		require.NoError(t, err, "nothing is left of it")
		require.NoError(t, without.Shutdown(ctx))
		db.SetMaxOpenConns(7)
		c := consume(t, ctx, orders, hourly)
		q.waitingSessions(1)
		held, err := db.Conn(ctx)
		require.NoError(t, err)
		owner, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		send(t, ctx, owner, 1, 1)
		require.Equal(t, []int{1}, receive(t, ctx, c, 1))
		require.NoError(t, held.Close())
		require.NoError(t, c.Shutdown(ctx))
	})
}

// What the server is asked, and how often, by five processes: while nothing comes, and when
// something does.
func TestStatementsOfConsumersThatWatch(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var asked counter
		q := newQueue(t, mssqltest.Options{Clock: engine.RealClock{}, Wire: tds.Options{Observe: asked.observe}})
		var all []*chanq.Consumer[int]
		for range 5 {
			all = append(all, process(t, ctx, q.DSN(), chanq.ConsumerConfig{WatchEvery: 5 * time.Millisecond}))
		}
		q.waitingSessions(2)
		const idle, messages = 4, 20
		pass(ctx, 2*time.Second) // they looked in quick succession before
		asked.take()
		pass(ctx, idle*time.Second)
		n := asked.take()
		t.Logf("%d s of 5 idle consumers: %v", idle, n)
		require.LessOrEqual(t, n[mssqltest.Watch], int64(2*2+3*3), "of the two that sit one in some seconds, and tries of the others")
		require.LessOrEqual(t, n[mssqltest.NextDue]+n[mssqltest.Survey]+n[mssqltest.Claim], int64(5*(idle+2)), "one a second each, as without")

		owner, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
		require.NoError(t, err)
		claimed := func() (sum int64) {
			for _, c := range all {
				sum += c.Stats().Claimed
			}
			return sum
		}
		began := time.Now()
		for i := range messages {
			send(t, ctx, owner, i, i)
			require.Eventually(t, func() bool { return claimed() == int64(i+1) }, testdb.Patience, time.Millisecond)
		}
		took := time.Since(began)
		n = asked.take()
		t.Logf("%d messages one after another, each with the next idle consumer after %v: %v", messages, took/messages, n)
		require.LessOrEqual(t, n[mssqltest.Claim], int64(2*messages), "one process claims, as a rule")
		require.LessOrEqual(t, n[mssqltest.Watch], int64(2*messages))
	})
}

// pass lets time go by in which nothing is to happen.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
