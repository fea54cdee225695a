package chanq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

// Errors that callers branch on, with errors.Is.
var (
	// ErrLeaseLost: the lease ended before the settle; the message is, or will be,
	// delivered to another consumer, or was cancelled. Returned by settles, Wait,
	// AckTx and Extend, and the cause of a Lease.Context.
	ErrLeaseLost = lease.ErrLost
	// ErrSettled: the lease was settled before, by this holder.
	ErrSettled = lease.ErrSettled
	// ErrStopped: the consumer has stopped, and the time that handlers have then is over. The cause of the end of a Lease.Context,
	// and of an error of Handle that says what was left.
	ErrStopped = lease.ErrStopped
	// ErrClosed: of sends, Close of the producer has begun; of settles, Shutdown of
	// the consumer has given up; of Receive, the consumer has stopped.
	ErrClosed = batch.ErrClosed
	// ErrNoSchema: the tables of the queue are missing or older than this version
	// of chanq. Run Migrate, or the command chanq migrate.
	ErrNoSchema = errors.New("chanq: no schema")
	// ErrNewerSchema: the tables were made by a newer chanq. Upgrade the program.
	ErrNewerSchema = errors.New("chanq: newer schema")
	// ErrSpec: a field of Config.Spec is not zero and differs from what the database says of the queue. The error names the field and
	// both values.
	ErrSpec = errors.New("chanq: another spec")
	// ErrShards: the tables are not those of the shard that Config.Shard says, or of a queue by itself. The
	// error says what the database has.
	ErrShards = errors.New("chanq: other shards")
	// ErrUnavailable: Open or StoredConfig had no answer from the database, or Migrate no connection, so nothing is known about the
	// queue. Call again later.
	ErrUnavailable = errors.New("chanq: database does not answer")
	// ErrNotDurable: the database may lose what it has confirmed. The error says which
	// setting it is; Config.Durability takes the database as it is.
	ErrNotDurable = errors.New("chanq: commits are not durable")
	// ErrTooLarge: a body (Spec.MaxBody), its headers or one of its keys exceed
	// their limit.
	ErrTooLarge = errors.New("chanq: too large")
	// ErrNotEmpty: Drop of a queue that has messages.
	ErrNotEmpty = errors.New("chanq: queue is not empty")
	// ErrNotFound: no message has this ID.
	ErrNotFound = errors.New("chanq: no such message")
)

// Cause is why a message is dead.
type Cause = sqlbatch.Cause

// The causes.
const (
	CauseExhausted   = sqlbatch.CauseExhausted   // its last attempt failed (Spec.MaxAttempts)
	CauseRejected    = sqlbatch.CauseRejected    // its handler returned DeadLetter
	CauseExpired     = sqlbatch.CauseExpired     // its TTL was over
	CauseUndecodable = sqlbatch.CauseUndecodable // its body or its headers cannot be decoded
	CauseUnreadable  = sqlbatch.CauseUnreadable  // its contents could not be read, and that was its last attempt
	CauseKilled      = sqlbatch.CauseKilled      // its handlers die, hang or lose their leases (Config.MaxCrashes)
	CauseOutput      = sqlbatch.CauseOutput      // an output of a Pipe cannot be stored
)

// ReasonExpired is the last error of a message that was dead-lettered because its TTL was over.
const ReasonExpired = base.ReasonExpired

// errMadeByHand: no lease belongs to the Delivery.
var errMadeByHand = errors.New("chanq: no lease: this Delivery was made by hand, or is that of a hook; leases come from a Consumer (to test a handler, see chanq.Outcome)")

// OpError is a failed operation on a queue.
type OpError struct {
	Op    string // "send", "ack", "claim" …
	Queue string // Config.Label, or the name of the queue; "" for the transaction of InTx ("begin", "commit")
	ID    ID     // of the message, where one is meant
	// Unknown: the database may or may not have applied the operation. Sending again
	// with the same Message.ID stores nothing twice while the message is in the queue (see
	// Message.ID); settling again is safe, also after redelivery.
	Unknown bool
	Err     error
}

func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString("chanq: " + e.Op)
	if e.Queue != "" {
		b.WriteString(" " + e.Queue)
	}
	if !e.ID.IsZero() {
		fmt.Fprintf(&b, " %s", e.ID)
	}
	if e.Unknown {
		b.WriteString(" (outcome unknown)")
	}
	fmt.Fprintf(&b, ": %s", strings.TrimPrefix(e.Err.Error(), "chanq: "))
	return b.String()
}

func (e *OpError) Unwrap() error { return e.Err }

// BatchError is returned by SendBatch when some of its messages were not stored,
// and by AckTx when some of its leases were not held. Errs has an entry for each
// message, in order, nil for those about which there is nothing to say.
type BatchError struct {
	Op   string // "send" or "ack"
	Errs []error
}

func (e *BatchError) Error() string {
	failed := 0
	var first error
	for _, err := range e.Errs {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("chanq: %s: %d of %d messages failed; first: %s",
		e.Op, failed, len(e.Errs), strings.TrimPrefix(errorText(first), "chanq: "))
}

// Unwrap returns the errors of the messages that failed.
func (e *BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Unsent is a message that a Producer was handed through its channel and could
// not store.
type Unsent[T any] struct {
	Message Message[T] // with its ID: sent again, it is not stored twice while it is in the queue
	Err     error
}

// UnsentError is returned by Producer.Close with the messages that were handed
// over through its channel and are not known to be stored.
type UnsentError[T any] struct{ Unsent []Unsent[T] }

func (e *UnsentError[T]) Error() string {
	return fmt.Sprintf("chanq: close: %d messages not stored; first: %s",
		len(e.Unsent), strings.TrimPrefix(e.Unsent[0].Err.Error(), "chanq: "))
}

// Unwrap returns the error of each message.
func (e *UnsentError[T]) Unwrap() []error {
	errs := make([]error, len(e.Unsent))
	for i := range e.Unsent {
		errs[i] = e.Unsent[i].Err
	}
	return errs
}
