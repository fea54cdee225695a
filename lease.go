package chanq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

// Lease is a message with its body, held by this process for a limited time. It has the methods of its Delivery: Ack,
// AckTx, Nack, Settle, Release, Wait, Extend, Context, Deadline and Stopping.
//
// A test can make a Lease for your handler: see Outcome. Its methods that settle or extend return an error.
type Lease[T any] struct {
	Delivery
	Body T
}

// Delivery is a Lease without the body, for code about leases of any queue, such as a Middleware. Settle it once, by
// Settle, Ack, Nack, Release or AckTx; the consumer extends it until then. Its methods are safe for concurrent use; its
// fields belong to the reader. A copy is the same delivery.
type Delivery struct {
	ID ID
	// Queue is the queue of the message: Config.Label, or its name.
	Queue string
	// As in the Message.
	Key, DedupKey, Type string
	Headers             map[string]string
	Priority            Priority
	// Attempt counts the claims of this message that were or might have been deliveries, including this one. Released
	// claims do not count. An expired one counts until the next Nack, so Attempt can exceed Spec.MaxAttempts: see
	// Failures.
	Attempt int
	// Fence is the fencing token. It grows with every claim of this message, and no two claims have the same fence,
	// even if the message is sent again or the database is restored. Pass it on with each write to another system. For
	// a row: UPDATE … SET …, fence = f WHERE id = … AND fence <= f. If no row changes, a later holder has written. See
	// docs/guides/long-jobs.md.
	Fence int64
	// Times of the database's clock, in milliseconds. ExpiresAt is when the TTL is over, or zero.
	EnqueuedAt, DueAt, ExpiresAt time.Time

	lease *lease.Lease
}

// Context returns a context with the values of Consume's context. It is cancelled with ErrLeaseLost when the lease is
// known to be lost, at its Deadline at the latest, with ErrCancelled if its message was cancelled, and with ErrStopped
// when the consumer has stopped and the time to drain is over. Stop does not cancel it (see Stopping), and neither does
// a successful settle. The first call costs a timer.
func (d *Delivery) Context() context.Context {
	if d.lease == nil {
		return context.Background()
	}
	return d.lease.Context()
}

// Deadline returns when the lease expires by this process's clock, unless it is extended. It is early rather than late.
func (d *Delivery) Deadline() time.Time {
	if d.lease == nil {
		return time.Time{}
	}
	return base.WallTime(d.lease.Period.Deadline())
}

// Ack marks the message as done: it leaves the queue. The ack joins the next batch and costs no additional round trip.
// Ack returns immediately, unless the backlog of settles is full. Wait returns the outcome; for many leases use the
// function Ack.
//
// It returns ErrLeaseLost if the loss is already known, ErrSettled, or ErrClosed after the consumer has stopped.
func (d *Delivery) Ack() error { return d.settle(lease.Ack) }

// Settle does what Consumer.Handle does with a handler's error: nil acks, and any other error is Nack(err). Use it in
// your loop: l.Settle(work(l.Context(), l)). After AckTx, pass nil if you have committed. It returns as Ack does.
func (d *Delivery) Settle(err error) error {
	switch {
	case err != nil:
		return d.Nack(err)
	case d.lease != nil && holderOf(d.lease).ackedInTx(d.lease):
		return nil
	}
	return d.Ack()
}

// Nack releases the message as a failed attempt. It is due again after ConsumerConfig.Backoff, or dead after the last
// attempt (Spec.MaxAttempts). RetryAfter, Snooze and DeadLetter work as in a handler's error. Up to 2000 bytes of the
// cause's text are stored; nil keeps the previous text and calls no hook. After ErrStopped no attempt counts, unless
// the cause is a DeadLetter. It returns as Ack does.
func (d *Delivery) Nack(cause error) error {
	if d.lease == nil {
		return errMadeByHand
	}
	if err := lease.NotHeld(d.lease); err != nil {
		return err
	}
	o := Outcome(cause)
	if cause == nil {
		o.Kind = OutcomeRetry
	}
	return holderOf(d.lease).settle(d, o, 0, cause)
}

// Release releases the message as if it had not been claimed: its due time is unchanged, and no attempt counts.
// Consumers of this process find it with their next claim, others within about 1 s. It returns as Ack does.
func (d *Delivery) Release() error { return d.settle(lease.Release) }

// Wait waits until the lease is settled and the outcome is known, or ctx is cancelled. It returns nil if the settle is
// in the database, ErrLeaseLost, or an *OpError, whose Unknown says that the outcome is not known.
func (d *Delivery) Wait(ctx context.Context) error {
	if d.lease == nil {
		return errMadeByHand
	}
	if err := homeOf(d.lease).outsideTx(ctx, afterCommit); err != nil {
		return homeOf(d.lease).failed("wait", err)
	}
	return deliveryError(d.lease, d.lease.Wait(ctx))
}

// Stopping returns a channel that is closed when the consumer stops. A long handler watches it, saves its progress and
// returns l.Release(), so that no attempt counts: see docs/guides/long-jobs.md. The channel is nil for a Delivery that
// you made yourself.
func (d *Delivery) Stopping() <-chan struct{} {
	if d.lease == nil {
		return nil
	}
	return holderOf(d.lease).engine.Stopped()
}

// Extend makes the lease last at least span (100 ms to 100 years) from now, by the database's clock, in one round trip.
// You need it for jobs longer than ConsumerConfig.MaxExtend. While another session has locked the row, Extend waits
// until ctx is cancelled.
//
// It returns ErrLeaseLost if the lease is lost. After an Unknown *OpError, Deadline is unchanged. On a plain queue you
// can extend and settle an expired lease, but its Context stays cancelled.
func (d *Delivery) Extend(ctx context.Context, span time.Duration) error {
	if span < minLease || span > sqlbatch.MaxDelay {
		return fmt.Errorf("chanq: extend: span is %v: must be from %v to %v", span, minLease, sqlbatch.MaxDelay)
	}
	if d.lease == nil {
		return errMadeByHand
	}
	if err := homeOf(d.lease).outsideTx(ctx, "call it before InTx"); err != nil {
		return homeOf(d.lease).failed("extend", err)
	}
	err := d.lease.ExtendBy(ctx, span)
	switch {
	case err == nil, errors.Is(err, ErrLeaseLost), err == ErrSettled, err == ErrClosed:
		return err
	}
	if failed := (*lease.FailedError)(nil); errors.As(err, &failed) {
		return deliveryError(d.lease, err)
	}
	return homeOf(d.lease).fail("extend", err)
}

// Ack acks many leases, even of several queues, and waits for the outcomes. It costs the same as Delivery.Ack and Wait
// for each.
//
// After a nil error all acks are in the database. Otherwise a *BatchError has an entry for each lease, in order: nil,
// or an *OpError, for example of ErrLeaseLost. If ctx is cancelled first, the acks handed over are Unknown, and the
// consumer continues with them; the other leases stay held. With the context of InTx use AckTx.
func Ack[T any](ctx context.Context, leases ...*Lease[T]) error {
	all, err := leasesOf(leases)
	if err != nil {
		return err
	}
	for _, l := range all {
		if err := homeOf(l).outsideTx(ctx, "use AckTx"); err != nil {
			return homeOf(l).failed("ack", err)
		}
	}
	return ack(ctx, all)
}

// leasesOf returns the leases without their bodies, or an error if a lease is nil or was made by hand.
func leasesOf[T any](leases []*Lease[T]) ([]*lease.Lease, error) {
	all := make([]*lease.Lease, len(leases))
	for i, l := range leases {
		switch {
		case l == nil:
			return nil, fmt.Errorf("chanq: ack: lease %d is nil", i)
		case l.lease == nil:
			return nil, fmt.Errorf("chanq: ack: lease %d: %w", i, errMadeByHand)
		}
		all[i] = l.lease
	}
	return all, nil
}

func ack(ctx context.Context, leases []*lease.Lease) error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Settle(ctx, lease.Ack, lease.Settlement{})
		if errs[i] == ErrSettled {
			if first := slices.Index(leases[:i], l); first >= 0 {
				errs[i] = errs[first] // its outcome is that of the first occurrence
			}
		}
	}
	for i, l := range leases {
		unknown := false
		if errs[i] == nil {
			errs[i] = deliveryError(l, l.Wait(ctx))
			unknown = errs[i] != nil && errs[i] == ctx.Err()
		}
		if op := (*OpError)(nil); errs[i] != nil && !errors.As(errs[i], &op) {
			errs[i] = leaseError(l, "ack", unknown, errs[i])
		}
	}
	return batchError("ack", errs)
}

// doomed stores the fields that the Dead hook reports, for a message whose settle may dead-letter it. It does not
// retain the body.
func (d *Delivery) doomed() {
	if homeOf(d.lease).cfg.Hooks.Dead != nil {
		about := &Delivery{Key: d.Key, DedupKey: d.DedupKey, Type: d.Type, Headers: d.Headers}
		d.lease.Rare.Write().About.Store(about)
	}
}

// Failures returns how many attempts have failed before this one. Expired leases are not failed attempts. It is one
// less than Attempt for a Delivery that you made yourself.
func (d *Delivery) Failures() int {
	if d.lease == nil {
		return max(0, d.Attempt-1)
	}
	return d.lease.Failures() - 1
}

// settle passes the lease to its consumer.
func (d *Delivery) settle(op lease.Op) error {
	if d.lease == nil {
		return errMadeByHand
	}
	return d.lease.Settle(context.Background(), op, lease.Settlement{})
}

// homeOf returns the queue of a lease.
func homeOf(l *lease.Lease) *queue { return holderOf(l).queue }

// deliveryError converts the error of an operation on a lease for callers.
func deliveryError(l *lease.Lease, err error) error {
	if failed := (*lease.FailedError)(nil); errors.As(err, &failed) {
		return leaseError(l, failed.Op, failed.Unknown, failed.Err)
	}
	return err
}

func leaseError(l *lease.Lease, op string, unknown bool, err error) error {
	return &OpError{Op: op, Queue: homeOf(l).cfg.Label, ID: l.Item.ID, Unknown: unknown, Err: err}
}
