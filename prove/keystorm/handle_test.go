package keystorm_test

import (
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/kills"
	"github.com/chanq/chanq/prove/testdb/crew"
)

// handle processes a lease, settles it in one of the possible ways, and prints the outcome.
func (w *worker) handle(l *chanq.Lease[string]) {
	number, at := parse(l.Body)
	e := kills.Event{Kind: kills.Got, At: time.Now().UnixNano(), Name: nameOf(l.Key, number), Attempt: l.Attempt, Lease: w.leases.Add(1), Deadline: l.Deadline().UnixNano()}
	if l.Attempt == 1 {
		e.Latency = max(1, time.Duration(e.At-at))
	}
	kills.Tell(e)
	switch {
	case w.roll(100) == 0:
		_ = l.Extend(context.Background(), time.Hour)    // it holds its key at most as long as this process runs
		crew.Rest(l.Context(), w.moment(w.LeaseFor*3/2)) // some of them longer than a lease
	case hot(l.Key):
		crew.Rest(l.Context(), w.moment(10*w.Work)) // so that some messages wait behind it
	default:
		crew.Rest(l.Context(), w.moment(w.Work))
	}
	switch n := w.roll(100); {
	case n < 85:
		w.settle(e, l, kills.Ack, l.Ack)
	case n < 90:
		w.settle(e, l, kills.Nack, func() error { return l.Nack(chanq.RetryAfter(w.moment(300*time.Millisecond), errors.New("try again"))) })
	case n < 92:
		w.settle(e, l, kills.Release, l.Release)
	case n < 93:
		w.settle(e, l, snooze, func() error { return l.Nack(chanq.Snooze(w.moment(300*time.Millisecond), nil)) })
	case n < 95:
		w.settle(e, l, kills.DeadLetter, func() error { return l.Nack(chanq.DeadLetter(errors.New("enough"))) })
	default:
		w.ackTx(e, l)
	}
}

// about prints the outcome of the lease of e.
func about(e kills.Event, k kills.Kind, err error) {
	e.Kind, e.At, e.Latency, e.Deadline = k, 0, 0, 0
	if err != nil {
		e.Error = err.Error()
	}
	kills.Tell(e)
}

// asks prints that the lease is going to be settled: from now on its reader does not process it.
func asks(e kills.Event, l *chanq.Lease[string], how kills.How) {
	e.Kind, e.At, e.Latency, e.Deadline, e.How = kills.Settling, 0, 0, l.Deadline().UnixNano(), how
	kills.Tell(e)
}

func (w *worker) settle(e kills.Event, l *chanq.Lease[string], how kills.How, ask func() error) {
	err := w.outcome(e, l, how, ask)
	about(e, kills.OutcomeOf(err), err)
}

func (w *worker) outcome(e kills.Event, l *chanq.Lease[string], how kills.How, ask func() error) error {
	asks(e, l, how)
	if err := ask(); err != nil {
		return err
	}
	return l.Wait(context.Background())
}

// ackTx acks in a transaction that takes some time, and is sometimes rolled back: then the message is released.
func (w *worker) ackTx(e kills.Event, l *chanq.Lease[string]) {
	shard := w.queue.origin(l)
	tx, err := w.shards[shard].DB.BeginTx(context.Background(), nil)
	if err == nil {
		defer func() { _ = tx.Rollback() }() // perhaps for the second time
		err = l.AckTx(context.Background(), tx)
	}
	if err == nil {
		crew.Rest(l.Context(), w.moment(min(w.Databases[shard].late(), 300*time.Millisecond)))
	}
	if err != nil || w.roll(4) == 0 {
		if tx != nil {
			_ = tx.Rollback()
		}
		if errors.Is(err, chanq.ErrLeaseLost) {
			about(e, kills.Lost, nil)
			return
		}
		err := w.outcome(e, l, kills.Nack, func() error { return l.Nack(chanq.RetryAfter(0, errors.New("rolled back"))) })
		outcome := kills.OutcomeOf(err)
		// After AckTx the consumer did not wait for this lease at its end, and the message might be gone.
		if errors.Is(err, chanq.ErrClosed) || errors.Is(err, chanq.ErrSettled) {
			outcome = kills.Lost
		}
		about(e, outcome, err)
		return
	}
	asks(e, l, ackTx)
	if err := tx.Commit(); err != nil {
		about(e, kills.Unknown, nil)
		return
	}
	about(e, kills.Confirmed, nil)
}
