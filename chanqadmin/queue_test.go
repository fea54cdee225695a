package chanqadmin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

func TestWrongArgumentsAreRefused(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		db, cfg := w.Open(), chanq.Config{Label: "east"}
		for words, call := range map[string]func() error{
			"chanq: open east: db is nil":  func() error { _, err := chanqadmin.Open(w.Soon(), nil, "orders", cfg); return err },
			"chanq: open":                  func() error { _, err := chanqadmin.Open(w.Soon(), db, "no such name", cfg); return err },
			"chanq: drop east: db is nil":  func() error { return chanqadmin.Drop(w.Soon(), nil, "orders", cfg, chanqadmin.Change{}) },
			"chanq: drop east: queue name": func() error { return chanqadmin.Drop(w.Soon(), db, "no such name", cfg, chanqadmin.Change{}) },
			`chanq: list queues: Config.Dialect is "oracle"`: func() error {
				_, err := chanqadmin.Queues(w.Soon(), db, chanq.Config{Dialect: "oracle"})
				return err
			},
			"chanq: list queues: db is nil":      func() error { _, err := chanqadmin.Queues(w.Soon(), nil, cfg); return err },
			"chanq: drop east: chanq: no schema": nil,
		} {
			if call != nil {
				require.ErrorContains(t, call(), words)
			}
		}
		list, err := chanqadmin.Queues(w.Soon(), db, chanq.Config{})
		require.NoError(t, err)
		require.Empty(t, list)
		for _, drop := range []error{chanqadmin.Drop(w.Soon(), db, "orders", cfg, chanqadmin.Change{}), chanqadmin.DropWithMessages(w.Soon(), db, "orders", cfg, chanqadmin.Change{})} {
			var op *chanq.OpError
			require.ErrorAs(t, drop, &op)
			require.Equal(t, [2]string{"drop", "east"}, [2]string{op.Op, op.Queue})
			require.ErrorIs(t, drop, chanq.ErrNoSchema)
			require.NotErrorIs(t, drop, chanq.ErrUnavailable)
		}
		_, err = chanqadmin.Open(w.Soon(), db, "orders", cfg)
		require.ErrorIs(t, err, chanq.ErrNoSchema)
		require.NotErrorIs(t, err, chanq.ErrUnavailable)
	})
}

func TestAQueueOfANewerSchemaIsNeitherOpenedNorDropped(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		w.Queue("orders", chanq.Config{})
		_, err := w.DB.Exec("UPDATE chanq__queues SET min_version = min_version + 1000")
		require.NoError(t, err)
		_, err = chanqadmin.Open(w.Soon(), w.DB, "orders", chanq.Config{})
		require.ErrorIs(t, err, chanq.ErrNewerSchema)
		require.ErrorIs(t, chanqadmin.DropWithMessages(w.Soon(), w.DB, "orders", chanq.Config{}, chanqadmin.Change{}), chanq.ErrNewerSchema)
		_, err = w.DB.Exec("UPDATE chanq__queues SET min_version = min_version - 1000")
		require.NoError(t, err)
		q, err := chanqadmin.Open(w.Soon(), w.DB, "orders", chanq.Config{})
		require.NoError(t, err)
		require.NoError(t, chanqadmin.Drop(w.Soon(), w.DB, "orders", chanq.Config{}, chanqadmin.Change{}))
		require.ErrorIs(t, q.Configure(w.Soon(), chanq.Spec{MaxAttempts: 5}, chanqadmin.Change{}), chanq.ErrNoSchema)
		_, err = chanqadmin.Open(w.Soon(), w.DB, "orders", chanq.Config{})
		require.ErrorIs(t, err, chanq.ErrNoSchema, "it is not created again")
	})
}

func TestAQueueIsOpenedAsTheKindThatItIs(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		w.Queue("orders", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4, DeadKey: chanq.DeadKeyHolds}})
		q, err := chanqadmin.Open(w.Soon(), w.DB, "orders", chanq.Config{Label: "east"})
		require.NoError(t, err)
		spec, mark := q.Opened()
		require.Equal(t, chanq.KindOrdered, spec.Kind)
		require.Equal(t, 4, spec.Slots)
		require.Equal(t, chanq.DeadKeyHolds, spec.DeadKey)
		require.Zero(t, mark)
		_, err = q.Get(w.Soon(), chanq.ID{1})
		var op *chanq.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "east", op.Queue)
		require.ErrorIs(t, err, chanq.ErrNotFound)
	})
}

func TestTheHistoryHasWhatAProgramDid(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		admin := testdb.Admin(q)
		testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		leases := testdb.Take(w, c, 3)
		time.Sleep(20 * time.Second)
		require.NoError(t, leases[0].Ack())
		require.NoError(t, leases[1].Nack(chanq.RetryAfter(time.Hour, errors.New("later"))))
		require.NoError(t, leases[2].Nack(chanq.DeadLetter(errors.New("never"))))
		require.NoError(t, c.Flush(w.Soon()))
		time.Sleep(20 * time.Second)
		for _, step := range []time.Duration{chanqadmin.StepFine, chanqadmin.StepMinute, chanqadmin.StepHour} {
			list, err := admin.History(w.Soon(), time.Time{}, step)
			require.NoError(t, err)
			var sum chanqadmin.Sample
			for _, s := range list {
				require.Equal(t, step, s.Step)
				sum.Acked, sum.Nacked, sum.Died, sum.Delivered = sum.Acked+s.Acked, sum.Nacked+s.Nacked, sum.Died+s.Died, sum.Delivered+s.Delivered
				sum.Waits.Add(s.Waits)
				sum.Counted, sum.Leased, sum.Scheduled, sum.Dead = sum.Counted || s.Counted, max(sum.Leased, s.Leased), max(sum.Scheduled, s.Scheduled), max(sum.Dead, s.Dead)
			}
			require.Equal(t, time.Millisecond, sum.Waits.Quantile(1))
			sum.Waits = chanqadmin.Times{}
			require.Equal(t, chanqadmin.Sample{Counted: true, Leased: 3, Scheduled: 1, Dead: 1, Acked: 1, Nacked: 1, Died: 1, Delivered: 3}, sum, step)
		}
		require.NoError(t, c.Shutdown(w.Soon()))
		_, err := admin.History(w.Soon(), time.Time{}, time.Second)
		require.ErrorContains(t, err, "step is 1s")
	})
}

// Two programs: one handles 90 messages in 100 ms each, the other 10 messages in 3 s each. Neither knows the times of both.
func TestTimesOfSeveralProgramsAddUp(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.Memory, testdb.Emulator}, func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		for _, program := range []struct {
			messages   int
			wait, took time.Duration
		}{{90, 20 * time.Second, 100 * time.Millisecond}, {10, 5 * time.Minute, 3 * time.Second}} {
			testdb.Send(w, q, make([]chanq.Message[string], program.messages)...)
			time.Sleep(program.wait)
			own := testdb.OpenOn[string](w, w.DB, "orders", chanq.Config{})
			c := testdb.Start(w, own, chanq.ConsumerConfig{})
			time.AfterFunc(time.Minute, c.Stop)
			require.NoError(w, c.Handle(2, func(context.Context, *chanq.Lease[string]) error { time.Sleep(program.took); return nil }))
			require.NoError(w, c.Shutdown(w.Soon()))
		}
		list, err := testdb.Admin(q).History(w.Soon(), time.Time{}, chanqadmin.StepHour)
		require.NoError(w, err)
		var all chanqadmin.Sample
		for _, s := range list {
			all.Waits.Add(s.Waits)
			all.Calls.Add(s.Calls)
		}
		require.Equal(w, chanqadmin.Times{7: 90, 12: 10}, all.Calls)
		require.Equal(w, chanqadmin.Times{15: 90, 19: 10}, all.Waits)
		within := func(low time.Duration, of chanqadmin.Times, share float64) {
			w.Helper()
			require.Greater(w, of.Quantile(share), low)
			require.LessOrEqual(w, of.Quantile(share), 2*low)
		}
		within(64*time.Millisecond, all.Calls, 0.5)
		within(2048*time.Millisecond, all.Calls, 0.95)
		within(16384*time.Millisecond, all.Waits, 0.5)
		within(262144*time.Millisecond, all.Waits, 0.95)
	})
}

func TestQuantilesOfTimes(t *testing.T) {
	for _, of := range []struct {
		times chanqadmin.Times
		share float64
		want  time.Duration
	}{
		{chanqadmin.Times{}, 0.5, 0},
		{chanqadmin.Times{0: 1}, 0.5, time.Millisecond},
		{chanqadmin.Times{3: 1}, 1, 8 * time.Millisecond},
		{chanqadmin.Times{3: 4, 11: 1}, 0.4, 6 * time.Millisecond},
		{chanqadmin.Times{3: 95, 11: 5}, 0.95, 8 * time.Millisecond},
		{chanqadmin.Times{3: 94, 11: 6}, 0.95, 1195 * time.Millisecond},
		{chanqadmin.Times{29: 1}, 1, 536870912 * time.Millisecond},
	} {
		require.Equal(t, of.want, of.times.Quantile(of.share), of)
	}
}
