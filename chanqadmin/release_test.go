package chanqadmin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

var everywhere = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.EmulatorVersions, testdb.SQLiteFile, testdb.Postgres, testdb.SQLServer}

// The consumer has leases of ten minutes. Then none of its statements arrives.
func TestTheLeasesOfAConsumerThatIsNotHeardAreReleased(t *testing.T) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			for _, engine := range everywhere {
				testdb.Run(t, engine, func(w *testdb.World) { releases(w, kind) })
			}
		})
	}
}

func releases(w *testdb.World, kind chanq.Kind) {
	spec := chanq.Spec{Kind: kind}
	if kind == chanq.KindOrdered {
		spec.DeadKey = chanq.DeadKeyOpens
	}
	q := w.Queue("orders", chanq.Config{Spec: spec})
	admin := testdb.Admin(q)
	faults, db := w.Connect()
	there := testdb.OpenOn[string](w, db, "orders", chanq.Config{})
	c, err := there.Consume(context.Background(), chanq.ConsumerConfig{Name: "web-6", Prefetch: 3, LeaseFor: 10 * time.Minute})
	require.NoError(w, err)
	testdb.End(w, c)
	testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
	leases := testdb.Take(w, c, 3)
	for _, l := range leases { // the row of an ordered message has a lease when it is extended
		require.NoError(w, l.Extend(w.Soon(), 5*time.Minute))
	}
	entry := func(id chanq.ID) chanqadmin.Entry {
		w.Helper()
		e, err := admin.Get(w.Soon(), id)
		require.NoError(w, err)
		return e
	}
	before := entry(leases[0].ID)
	require.Equal(w, chanqadmin.StateLeased, before.State)
	if kind == chanq.KindPlain {
		require.Less(w, time.Since(before.HeldSince).Abs(), time.Minute)
	} else {
		require.Zero(w, before.HeldSince)
	}

	testdb.Eventually(w, "it is registered", func() bool {
		_, err = admin.Release(w.Soon(), before.Consumer, chanqadmin.Change{})
		return errors.Is(err, chanqadmin.ErrHeard)
	})
	require.ErrorContains(w, err, "chanq: release orders: consumer web-6, heard ")
	require.Equal(w, before, entry(leases[0].ID), "nothing has changed")

	listed, err := admin.Consumers(w.Soon())
	require.NoError(w, err)
	heard := listed[slices.IndexFunc(listed, func(c chanqadmin.ConsumerInfo) bool { return c.ID == before.Consumer })].Heard
	gone := make(chan struct{})
	faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Hold(gone) })
	back := sync.OnceFunc(func() { faults.Inject(nil); close(gone) })
	w.Cleanup(back)
	testdb.Eventually(w, "it is not heard", func() bool {
		found, err := admin.Release(w.Soon(), before.Consumer, chanqadmin.Change{DryRun: true})
		return err == nil && found.Messages == 3 && !found.More
	})
	now, err := admin.Now(w.Soon())
	require.NoError(w, err)
	require.GreaterOrEqual(w, now.Sub(heard), 25*time.Second, "the documents and ErrHeard name this time")
	if w.Engine.Bubble {
		require.Less(w, now.Sub(heard), 26*time.Second)
	}
	require.Equal(w, before, entry(leases[0].ID), "nothing has changed")
	other := testdb.Start(w, q, chanq.ConsumerConfig{Name: "web-7"})
	none, err := admin.Release(w.Soon(), chanq.NewID(), chanqadmin.Change{})
	require.NoError(w, err)
	require.Zero(w, none.Messages, "another consumer")
	done, err := admin.Release(w.Soon(), before.Consumer, chanqadmin.Change{Actor: "ada", Reason: "its host is lost"})
	require.NoError(w, err)
	require.Equal(w, 3, done.Messages)
	logged := lines(w, "orders")
	require.Len(w, logged, 2, "what was refused and what was counted is not in the log")
	require.Equal(w, fmt.Sprintf("release by ada of 3 (consumer=%s) because of \"its host is lost\"", before.Consumer), logged[1])

	again := testdb.Take(w, other, 3)
	fences := map[chanq.ID]int64{}
	for _, l := range again {
		require.Equal(w, 2, l.Attempt)
		fences[l.ID] = l.Fence
	}
	back()
	for _, l := range leases {
		require.Greater(w, fences[l.ID], l.Fence)
		_ = l.Ack()
		require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrLeaseLost)
	}
	for _, l := range again {
		require.NoError(w, l.Ack())
		require.NoError(w, l.Wait(w.Soon()))
	}
}

// Without a producer or a consumer the history has the counts that someone who looks has recorded, once for each sample.
func TestCountsAreRecordedOnceForEachSample(t *testing.T) {
	for _, engine := range everywhere {
		testdb.Run(t, engine, func(w *testdb.World) {
			q := w.Queue("orders", chanq.Config{History: chanq.HistoryOff})
			admin := testdb.Admin(q)
			testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
			record := func(ready int) {
				w.Helper()
				require.NoError(w, admin.Record(w.Soon(), chanqadmin.Stats{Ready: ready, Scheduled: 2, OldestReady: time.Minute}))
			}
			last := func() chanqadmin.Sample {
				w.Helper()
				list, err := admin.History(w.Soon(), time.Time{}, chanqadmin.StepFine)
				require.NoError(w, err)
				require.NotEmpty(w, list)
				return list[len(list)-1]
			}
			testdb.Eventually(w, "both are in one sample", func() bool {
				record(3)
				first := last()
				require.True(w, first.Counted)
				record(7)
				second := last()
				if second.At != first.At {
					return false
				}
				require.Equal(w, first, second, "the sample has counts")
				require.Equal(w, []any{3, 2, time.Minute}, []any{second.Ready, second.Scheduled, second.OldestReady})
				return true
			})
		})
	}
}
