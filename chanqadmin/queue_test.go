package chanqadmin_test

import (
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
				sum.Acked, sum.Nacked, sum.Died, sum.Delivered, sum.Waited = sum.Acked+s.Acked, sum.Nacked+s.Nacked, sum.Died+s.Died, sum.Delivered+s.Delivered, sum.Waited+s.Waited
				sum.Counted, sum.Leased, sum.Scheduled, sum.Dead = sum.Counted || s.Counted, max(sum.Leased, s.Leased), max(sum.Scheduled, s.Scheduled), max(sum.Dead, s.Dead)
			}
			require.Less(t, sum.MeanWait(), time.Minute)
			sum.Waited = 0
			require.Equal(t, chanqadmin.Sample{Counted: true, Leased: 3, Scheduled: 1, Dead: 1, Acked: 1, Nacked: 1, Died: 1, Delivered: 3}, sum, step)
		}
		require.NoError(t, c.Shutdown(w.Soon()))
		_, err := admin.History(w.Soon(), time.Time{}, time.Second)
		require.ErrorContains(t, err, "step is 1s")
		require.Zero(t, chanqadmin.Sample{}.MeanWait())
	})
}
