package guarantees

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Handlers of batches.
var handleBatches = []test{
	{"G07_OneBadMessageOfABatchFailsAlone", badOfBatch},
	{"G07_OneBadMessageOfABatchInTransactionsFailsAlone", badOfBatchInTx},
	{"HandleBatchesSettlesByTheError", batchOutcomes},
	{"HandleBatchesContinuesAfterAPanicAndAChangedBatch", batchSurvives},
	{"LeasesOfABatchThatAreNotExtendedAreReleasedInTime", batchLate},
	{"HandleBatchesChecksItsArguments", batchArguments},
}

// batchQueues runs test on a plain queue and on an ordered queue, each with n messages, which have
// n different keys in the ordered queue.
func (w *world) batchQueues(n int, test func(q *chanq.Queue[string], failed *atomic.Int64)) {
	w.Helper()
	for _, cfg := range []chanq.Config{{}, {Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}} {
		name := "plain"
		if cfg.Kind == chanq.KindOrdered {
			name = "ordered"
		}
		var failed atomic.Int64
		cfg.Hooks.Handled = func(e chanq.HandledEvent) {
			if e.Err != nil {
				failed.Add(1)
			}
		}
		q := w.Queue(name, cfg)
		w.sendApart(q, numbers(n)...)
		test(q, &failed)
	}
}

var errBad = errors.New("a bad row")

// onlyBadIsLeft requires that one message has failed one attempt and that no other message is left.
func (w *world) onlyBadIsLeft(q *chanq.Queue[string], c *chanq.Consumer[string], failed *atomic.Int64, n int) {
	w.Helper()
	w.Eventually("all others are acked", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Scheduled: 1} })
	require.EqualValues(w, 1, failed.Load())
	page := w.peek(q, chanqadmin.StateScheduled, 1)
	require.Equal(w, 1, page[0].Attempts)
	require.Contains(w, page[0].LastError, errBad.Error())
	require.EqualValues(w, n, c.Stats().Claimed, "each was claimed once")
}

func badOfBatch(w *world) {
	const n = 500
	w.batchQueues(n, func(q *chanq.Queue[string], failed *atomic.Int64) {
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Backoff: chanq.ExponentialBackoff(time.Hour, time.Hour)})
		sizes := make(chan int, 2*n)
		left := make(chan error, 1)
		go func() {
			left <- c.HandleBatches(1, n, time.Minute, func(_ context.Context, batch []*chanq.Lease[string]) error {
				sizes <- len(batch)
				if slices.ContainsFunc(batch, func(l *chanq.Lease[string]) bool { return l.Body == "250" }) {
					return errBad
				}
				return nil
			})
		}()
		w.onlyBadIsLeft(q, c, failed, n)
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "it returns"))
		require.Equal(w, n, <-sizes, "all together")
		require.Len(w, sizes, n, "then each message alone, once")
	})
}

func badOfBatchInTx(w *world) {
	const n = 20
	w.Open()
	w.Exec("CREATE TABLE stored (body VARCHAR(20) NOT NULL)")
	w.batchQueues(n, func(q *chanq.Queue[string], failed *atomic.Int64) {
		w.Exec("DELETE FROM stored")
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Backoff: chanq.ExponentialBackoff(time.Hour, time.Hour)})
		left := make(chan error, 1)
		go func() {
			left <- c.HandleBatches(1, n, time.Second, func(ctx context.Context, batch []*chanq.Lease[string]) error {
				tx, err := w.DB.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if err := chanq.AckTx(ctx, tx, batch...); err != nil {
					return err
				}
				for _, l := range batch {
					if _, err := tx.ExecContext(ctx, "INSERT INTO stored (body) VALUES ('"+l.Body+"')"); err != nil {
						return err
					}
					if l.Body == "007" {
						return errBad
					}
				}
				return tx.Commit()
			})
		}()
		w.onlyBadIsLeft(q, c, failed, n)
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "it returns"))
		var stored int
		require.NoError(w, w.DB.QueryRowContext(w.Soon(), "SELECT COUNT(*) FROM stored").Scan(&stored))
		require.Equal(w, n-1, stored, "each once")
	})
}

func batchOutcomes(w *world) {
	w.batchQueues(6, func(q *chanq.Queue[string], failed *atomic.Int64) {
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 6 })
		left := make(chan error, 1)
		go func() {
			left <- c.HandleBatches(1, 3, 0, func(_ context.Context, batch []*chanq.Lease[string]) error {
				if batch[0].Body >= "003" {
					return chanq.Snooze(time.Hour, errBad)
				}
				if len(batch) > 1 {
					_ = batch[0].Ack() // "000" is not delivered again
					return chanq.DeadLetter(errBad)
				}
				switch batch[0].Body {
				case "001":
					return chanq.DeadLetter(errBad)
				default:
					return chanq.RetryAfter(time.Hour, errBad)
				}
			})
		}()
		w.Eventually("each is settled", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Scheduled: 4, Dead: 1} })
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "it returns"))
		require.EqualValues(w, 5, failed.Load())
		page := w.peek(q, chanqadmin.StateScheduled, 4)
		for _, e := range page {
			if strings.Contains(string(e.Body), "002") {
				require.Equal(w, 1, e.Attempts)
			} else {
				require.Zero(w, e.Attempts, "a snooze is uncounted")
			}
		}
	})
}

func batchSurvives(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("panics", "fails", "alters", "works")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Backoff: chanq.ExponentialBackoff(time.Hour, time.Hour)})
	w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == 4 })
	left := make(chan error, 1)
	go func() {
		left <- c.HandleBatches(1, 4, 0, func(_ context.Context, batch []*chanq.Lease[string]) error {
			switch body := batch[0].Body; {
			case len(batch) > 1:
				clear(batch) // the slice belongs to the function
				panic("a batch")
			case body == "panics":
				panic(body)
			case body == "fails":
				return errors.New(body)
			case body == "alters":
				batch[0] = nil
			}
			return nil
		})
	}()
	w.Eventually("two messages have failed", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Scheduled: 2} })
	testdb.Send(w, q, testdb.Texts("works")...)
	w.Eventually("the consumer continues", func() bool { return c.Stats().Acked == 3 })
	c.Stop()
	require.NoError(w, testdb.Receive(w, left, "it returns"))
}

// batchLate rolls back a transaction that acked a batch. Handled one by one, the third message then takes
// a long time.
func batchLate(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(6)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease})
	handled, attempts, released := 0, 0, int64(0)
	err := c.HandleBatches(1, 6, time.Minute, func(ctx context.Context, batch []*chanq.Lease[string]) error {
		if len(batch) > 1 {
			tx, err := w.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := chanq.AckTx(ctx, tx, batch...); err != nil {
				return err
			}
			return errBad
		}
		attempts += batch[0].Attempt
		if handled++; handled == 3 {
			time.Sleep(lastingLease * 77 / 100) // a lease that is not extended is released after three quarters of its time
			released = c.Stats().Released
			c.Stop()
		}
		return nil
	})
	require.NoError(w, err)
	require.Zero(w, released)
	require.Equal(w, 3, handled)
	require.Equal(w, 3, attempts, "no lease has expired")
	require.Equal(w, chanqadmin.Stats{Ready: 3}, testdb.Counted(w, q))
	for _, l := range testdb.Lease(w, q, 3, time.Minute) {
		require.Equal(w, 1, l.Attempt, "the attempt is not counted")
	}
}

func batchArguments(w *world) {
	c := testdb.Start(w, w.Queue("work", chanq.Config{}), chanq.ConsumerConfig{})
	fn := func(context.Context, []*chanq.Lease[string]) error { return nil }
	require.ErrorContains(w, c.HandleBatches(0, 1, 0, fn), "workers is 0: must be at least 1")
	require.ErrorContains(w, c.HandleBatches(1, 0, 0, fn), "maxBatch is 0: must be at least 1")
	require.ErrorContains(w, c.HandleBatches(1, 1, -1, fn), "wait is -1ns: must not be negative")
	require.ErrorContains(w, c.HandleBatches(1, 1, 0, nil), "fn must not be nil")
}
