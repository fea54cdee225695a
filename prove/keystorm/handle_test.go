package keystorm_test

import (
	"context"
	"errors"
	"time"

	"github.com/chanq/chanq"
)

// handle works on a lease, settles it in one of the ways there are, and tells what came of
// it.
func (w *worker) handle(l *chanq.Lease[string]) {
	number, at := parse(l.Body)
	e := event{Kind: got, At: now(), Key: l.Key, Number: number, Lease: w.leases.Add(1), Deadline: l.Deadline().UnixNano()}
	if l.Attempt == 1 {
		e.Took = max(1, time.Duration(e.At-at))
	}
	tell(e)
	switch {
	case w.roll(100) == 0:
		_ = l.Extend(context.Background(), time.Hour) // which holds its key no longer than this process lives
		rest(l.Context(), w.moment(w.LeaseFor*3/2))   // longer than a lease, some of them
	case hot(l.Key):
		rest(l.Context(), w.moment(10*w.Work)) // so that some wait behind it
	default:
		rest(l.Context(), w.moment(w.Work))
	}
	switch n := w.roll(100); {
	case n < 85:
		w.settle(e, l, ack, ended, l.Ack)
	case n < 90:
		w.settle(e, l, "nack", returned, func() error { return l.Nack(w.moment(300*time.Millisecond), errors.New("try again")) })
	case n < 92:
		w.settle(e, l, "release", returned, l.Release)
	case n < 93:
		w.settle(e, l, "snooze", returned, func() error { return l.ReleaseAfter(w.moment(300 * time.Millisecond)) })
	case n < 95:
		outcome := ended
		if w.Holds { // it comes again
			outcome = returned
		}
		w.settle(e, l, bury, outcome, func() error { return l.DeadLetter(errors.New("enough")) })
	default:
		w.ackTx(e, l)
	}
}

// about tells something of the lease of e.
func about(e event, k kind, err error) {
	e.Kind, e.At = k, 0
	e.Deadline, e.Took = 0, 0
	if err != nil {
		e.How = err.Error()
	}
	tell(e)
}

// asks tells that the lease is going to be settled: from here on its reader is done with it.
func asks(e event, l *chanq.Lease[string], how string) {
	e.Kind, e.At, e.How, e.Deadline, e.Took = settling, 0, how, l.Deadline().UnixNano(), 0
	tell(e)
}

func (w *worker) settle(e event, l *chanq.Lease[string], how string, outcome kind, ask func() error) {
	asks(e, l, how)
	err := ask()
	if err == nil {
		err = l.Wait(context.Background())
	}
	switch {
	case err == nil:
		about(e, outcome, nil)
	case errors.Is(err, chanq.ErrLeaseLost), errors.Is(err, chanq.ErrSettled): // after AckTx, if the message is gone
		about(e, lost, nil)
	case isUnknown(err):
		about(e, unknown, nil)
	default:
		about(e, failed, err)
	}
}

// ackTx acks in a transaction that takes its time, and is rolled back now and then: then the
// message is given back.
func (w *worker) ackTx(e event, l *chanq.Lease[string]) {
	tx, err := w.shards[l.Shard].DB.BeginTx(context.Background(), nil)
	if err == nil {
		defer func() { _ = tx.Rollback() }() // again, perhaps
		err = l.AckTx(context.Background(), tx)
	}
	if err == nil {
		rest(l.Context(), w.moment(min(w.Databases[l.Shard].late(), 300*time.Millisecond)))
	}
	if err != nil || w.roll(4) == 0 {
		if tx != nil {
			_ = tx.Rollback()
		}
		if errors.Is(err, chanq.ErrLeaseLost) {
			about(e, lost, nil)
			return
		}
		w.settle(e, l, "nack", returned, func() error { return l.Nack(0, errors.New("rolled back")) })
		return
	}
	asks(e, l, ackTx)
	if err := tx.Commit(); err != nil {
		about(e, unknown, nil)
		return
	}
	about(e, ended, nil)
}
