package shards_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/testdb"
)

// The end of a consumer over shards: each row of the table in the package comment of chanq, for each way to handle leases.

type handler = func(context.Context, *chanq.Lease[string]) error

// drainFor is how long handlers may continue in these tests.
const drainFor = 300 * time.Millisecond

// drain is a consumer of 9 messages that is stopped while one handler per shard, or three handlers of any shard, run.
type drain struct {
	*world
	q    *chanqshards.Queue[string]
	c    *chanqshards.Consumer[string]
	run  func(handler) error
	left chan error // the error of the call
	at   time.Time  // when Stop was called
}

func onEachWay(t *testing.T, test func(d *drain)) {
	t.Parallel()
	for _, way := range []struct {
		name string
		cfg  chanq.Config
		run  func(d *drain, fn handler) error
	}{
		{"handle", chanq.Config{}, func(d *drain, fn handler) error { return d.c.Handle(count, fn) }},
		{"ordered", ordered, func(d *drain, fn handler) error { return d.c.Handle(count, fn) }},
		{"batches", chanq.Config{}, func(d *drain, fn handler) error {
			return d.c.HandleBatches(1, 1, 0, func(ctx context.Context, batch []*chanq.Lease[string]) error { return fn(ctx, batch[0]) })
		}},
		{"pipe", chanq.Config{}, func(d *drain, fn handler) error {
			require.NoError(d, chanqshards.Migrate(d.soon(), d.shards(), "output", chanq.Config{}))
			to, err := chanqshards.Open[string](d.soon(), d.shards(), "output", chanq.Config{})
			require.NoError(d, err)
			return chanqshards.Pipe(d.c, to, 1, func(ctx context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				return testdb.Texts("out"), fn(ctx, l)
			})
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			testdb.InBubble(t, true, func(t *testing.T) {
				d := &drain{world: newWorld(t, testdb.Memory, testdb.Memory, testdb.Memory), left: make(chan error, 1)}
				d.q = d.queue(way.cfg)
				for shard := range count {
					d.send(d.q, keyed(d.q, way.cfg, shard, 3)...)
				}
				d.c = d.start(d.q, chanq.ConsumerConfig{LeaseFor: time.Hour, DrainFor: drainFor})
				d.run = func(fn handler) error { return way.run(d, fn) }
				test(d)
			})
		})
	}
}

// stop starts three handlers, waits until the other messages are claimed, and stops the consumer.
func (d *drain) stop(fn handler) (held []*chanq.Lease[string]) {
	d.Helper()
	begun := make(chan *chanq.Lease[string], 9)
	go func() {
		d.left <- d.run(func(ctx context.Context, l *chanq.Lease[string]) error {
			begun <- l
			return fn(ctx, l)
		})
	}()
	for range count {
		held = append(held, testdb.Receive(d, begun, "a handler begins"))
	}
	testdb.Eventually(d, "all are claimed", func() bool { return d.c.Stats().Held == 9 })
	d.at = time.Now()
	d.c.Stop()
	return held
}

// returns requires that the call returns the given time after the stop, and returns its error.
func (d *drain) returns(after time.Duration) error {
	d.Helper()
	err := testdb.Receive(d, d.left, "the call returns")
	require.GreaterOrEqual(d, time.Since(d.at), after)
	require.LessOrEqual(d, time.Since(d.at), after+50*time.Millisecond)
	return err
}

// again requires that n messages are ready and that their attempts were not counted.
func (d *drain) again(n int) {
	d.Helper()
	require.Equal(d, chanqadmin.Stats{Ready: n}, d.counted(d.q))
	for i := range count {
		shard := d.shard(d.q, i)
		for _, l := range testdb.Lease(d, shard, testdb.Counted(d, shard).Ready, time.Minute) {
			require.Equal(d, 1, l.Attempt, "the attempt is not counted")
			require.NoError(d, l.Ack())
		}
	}
}

// counts adds up the numbers that precede text in the errors of shards.
func counts(err error, text string) (sum int) {
	for _, found := range regexp.MustCompile(text+`: (\d+)`).FindAllStringSubmatch(fmt.Sprint(err), -1) {
		n, _ := strconv.Atoi(found[1])
		sum += n
	}
	return sum
}

func TestHandlersThatReturnLateReleaseUncountedInTheirShards(t *testing.T) {
	onEachWay(t, func(d *drain) {
		d.stop(func(ctx context.Context, _ *chanq.Lease[string]) error {
			<-ctx.Done()
			require.ErrorIs(d, context.Cause(ctx), chanq.ErrStopped)
			return ctx.Err()
		})
		require.NoError(d, d.returns(drainFor))
		d.again(9)
	})
}

func TestHandlersThatNeverReturnLoseTheirLeasesOfAllShardsAndAreReported(t *testing.T) {
	onEachWay(t, func(d *drain) {
		gate := make(chan struct{})
		held := d.stop(func(context.Context, *chanq.Lease[string]) error {
			<-gate
			return nil
		})
		err := d.returns(drainFor + time.Second)
		require.ErrorIs(d, err, chanq.ErrStopped)
		require.Equal(d, []int{3, 0, 3}, []int{counts(err, "leases not settled"), counts(err, "settles not confirmed"), counts(err, "handlers not returned")})
		require.Equal(d, chanqadmin.Stats{Ready: 9}, d.counted(d.q))
		close(gate)
		require.NoError(d, d.c.Shutdown(d.soon()), "Shutdown waits for the handlers")
		for _, l := range held {
			require.ErrorIs(d, l.Wait(d.soon()), chanq.ErrLeaseLost)
		}
		d.again(9)
	})
}

func TestShutdownIsBoundedAlthoughAShardIsLost(t *testing.T) {
	onEachWay(t, func(d *drain) {
		const lost = 1
		d.stop(func(_ context.Context, l *chanq.Lease[string]) error {
			if <-l.Stopping(); d.q.Origin(l) == lost {
				d.gone(lost)
			}
			time.Sleep(drainFor / 2)
			return nil
		})
		err := testdb.Receive(d, d.left, "the call returns")
		require.LessOrEqual(d, time.Since(d.at), drainFor+6050*time.Millisecond)
		if err != nil { // no error if handlers of other shards ran and the buffered messages were released before
			require.ErrorContains(d, err, "orders/place1")
		}
		for _, other := range []string{"place0", "place2"} {
			require.NotContains(d, fmt.Sprint(err), other, "the other shards have stored all settles")
		}
	})
}

func TestACallEndsAlthoughAShardNeverOpens(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		w.queue(chanq.Config{})
		w.gone(1)
		q := w.open(chanq.Config{})
		c := w.start(q, chanq.ConsumerConfig{})
		ended := make(chan error, 1)
		go func() {
			ended <- c.HandleBatches(1, 10, 0, func(context.Context, []*chanq.Lease[string]) error {
				c.Stop()
				return nil
			})
		}()
		w.send(q, of(q, 0, 1, "a")...)
		require.NoError(w, testdb.Receive(w, ended, "the end"))
		require.Zero(w, testdb.Counted(w, w.shard(q, 0)))
	})
}
