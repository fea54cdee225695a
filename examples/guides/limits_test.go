package guides

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// engines are the three databases; PostgreSQL in the long tier.
var engines = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.Postgres}

// fourAtATime is for calls of a service that bears four at a time.
var fourAtATime = chanq.Spec{Kind: chanq.KindOrdered, Slots: 1, MaxKeys: 4}

// keyOf spreads the messages of a tenant over n keys.
func keyOf(tenant string, n int) string { return fmt.Sprintf("%s#%d", tenant, rand.IntN(n)) }

// reserve takes the next moment of a resource, which has one per interval, and returns how far away it is.
func reserve(ctx context.Context, tx *sql.Tx, names chanq.Names, resource string, interval time.Duration) (time.Duration, error) {
	const take = `UPDATE limits SET next_at = ?1 + CASE WHEN next_at > {now} THEN next_at ELSE {now} END WHERE resource = ?2`
	const wait = `SELECT next_at - ?1 - {now} FROM limits WHERE resource = ?2`
	ms := interval.Milliseconds()
	if _, err := tx.ExecContext(ctx, names.SQL(take), ms, resource); err != nil { // locks the row until the commit
		return 0, err
	}
	var left int64
	err := tx.QueryRowContext(ctx, names.SQL(wait), ms, resource).Scan(&left)
	return time.Duration(max(left, 0)) * time.Millisecond, err
}

// sendReserved sends a message that is due at the next moment of its resource.
func sendReserved(ctx context.Context, calls *chanq.Queue[string], body string) error {
	return chanq.InTx(ctx, calls.DB(), func(ctx context.Context, tx *sql.Tx) error {
		delay, err := reserve(ctx, tx, calls.Names(), "bank", 100*time.Millisecond) // 10 per second
		if err == nil {
			_, err = calls.SendTx(ctx, tx, chanq.Message[string]{Body: body, Delay: delay})
		}
		return err
	})
}

// inTime is a handler that waits for the next moment of its resource.
func inTime(calls *chanq.Queue[string], call func(body string)) chanq.Handler[string] {
	return func(ctx context.Context, lease *chanq.Lease[string]) error {
		var wait time.Duration
		err := chanq.InTx(ctx, calls.DB(), func(ctx context.Context, tx *sql.Tx) (err error) {
			wait, err = reserve(ctx, tx, calls.Names(), "bank", 100*time.Millisecond)
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-time.After(wait):
			call(lease.Body)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handled runs three programs, each with eight workers, until n messages are acked.
func handled[T any](w *testdb.World, name string, n int64, fn chanq.Handler[T]) {
	w.Helper()
	var consumers []*chanq.Consumer[T]
	var all sync.WaitGroup
	for range 3 {
		_, db := w.Connect()
		c := testdb.Start(w, testdb.OpenOn[T](w, db, name, chanq.Config{History: chanq.HistoryOff}), chanq.ConsumerConfig{})
		consumers = append(consumers, c)
		all.Go(func() { _ = c.Handle(8, fn) })
	}
	w.Eventually("all are acked", func() bool {
		acked := int64(0)
		for _, c := range consumers {
			acked += c.Stats().Acked
		}
		return acked == n
	})
	for _, c := range consumers {
		c.Stop()
	}
	all.Wait()
}

func TestNoMoreThanFourMessagesAreHandledAtATime(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := w.Queue("exports", chanq.Config{History: chanq.HistoryOff, Spec: fourAtATime})
		testdb.Send(w, q, testdb.Texts(slices.Repeat([]string{"x"}, 40)...)...)
		var now, most atomic.Int64
		handled(w, "exports", 40, func(context.Context, *chanq.Lease[string]) error {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
			return nil
		})
		require.EqualValues(w, 4, most.Load())
	})
}

func TestNoMoreThanTwoMessagesOfATenantAreHandledAtATime(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := w.Queue("exports", chanq.Config{History: chanq.HistoryOff, Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
		send := func(tenant string, n int) {
			var ms []chanq.Message[string]
			for range n {
				ms = append(ms, chanq.Message[string]{Body: tenant, Key: keyOf(tenant, 2)})
			}
			testdb.Send(w, q, ms...)
		}
		send("ada", 40)
		send("bob", 10)
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		var order []string
		handled(w, "exports", 50, func(_ context.Context, l *chanq.Lease[string]) error {
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				now[l.Body] += n
				most[l.Body] = max(most[l.Body], now[l.Body])
				if n > 0 {
					order = append(order, l.Body)
				}
			}
			count(1)
			time.Sleep(20 * time.Millisecond)
			count(-1)
			return nil
		})
		require.Equal(w, map[string]int{"ada": 2, "bob": 2}, most)
		require.Less(w, strings.LastIndex(strings.Join(order, " "), "bob"), 160, "bob does not wait for ada: %v", order)
	})
}

// withLimit creates the table of the recipe.
func withLimit(w *testdb.World) *chanq.Queue[string] {
	w.Helper()
	q := w.Queue("calls", chanq.Config{History: chanq.HistoryOff})
	w.Define("CREATE TABLE limits (resource varchar(100) PRIMARY KEY, next_at bigint NOT NULL)")
	w.Exec("INSERT INTO limits (resource, next_at) VALUES ('bank', 0)")
	return q
}

// requireSpaced requires that the n-th moment is n intervals after the first.
func requireSpaced(w *testdb.World, begin time.Time, moments []time.Time) {
	w.Helper()
	slices.SortFunc(moments, time.Time.Compare)
	for i, at := range moments {
		require.GreaterOrEqual(w, at.Sub(begin), time.Duration(i)*100*time.Millisecond-2*time.Millisecond, "%d of %v after %v", i, moments, begin)
	}
}

func TestSendsThatReserveAreDueOneAfterAnother(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := withLimit(w)
		begin := time.Now()
		var all sync.WaitGroup
		for range 3 {
			_, db := w.Connect()
			mine := testdb.OpenOn[string](w, db, "calls", chanq.Config{History: chanq.HistoryOff})
			all.Go(func() {
				for range 8 {
					if err := sendReserved(w.Soon(), mine, "x"); err != nil {
						w.Errorf("send: %v", err)
					}
				}
			})
		}
		all.Wait()
		moments := map[chanq.ID]time.Time{}
		for _, state := range []chanqadmin.State{chanqadmin.StateScheduled, chanqadmin.StateReady} { // one may become ready in between
			page, err := testdb.Peek(w.Soon(), q, state, 100)
			require.NoError(w, err)
			for _, e := range page {
				moments[e.ID] = e.DueAt
			}
		}
		due := slices.Collect(maps.Values(moments))
		require.Len(w, due, 24)
		requireSpaced(w, begin, due)
		if w.Engine.Bubble {
			require.LessOrEqual(w, due[23].Sub(begin), 2400*time.Millisecond, "no moment is left out")
		}
	})
}

// Even after all workers were away, and for retries.
func TestHandlersThatReserveCallOneAfterAnother(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := withLimit(w)
		testdb.Send(w, q, testdb.Texts(slices.Repeat([]string{"x"}, 20)...)...)
		time.Sleep(500 * time.Millisecond)
		begin := time.Now()
		var mu sync.Mutex
		var calls []time.Time
		handled(w, "calls", 20, inTime(q, func(string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, time.Now())
		}))
		require.Len(w, calls, 20)
		requireSpaced(w, begin, calls)
	})
}
