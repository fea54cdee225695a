package chanq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

// Errors that callers branch on, with errors.Is.
var (
	// ErrLeaseLost: the lease ended before the settle. The message was cancelled, or is redelivered to another consumer. Settles,
	// Wait, AckTx and Extend return it, and Lease.Context ends with it.
	ErrLeaseLost = lease.ErrLost
	// ErrSettled: this holder has already settled the lease.
	ErrSettled = lease.ErrSettled
	// ErrStopped: the consumer has stopped, and the time for its handlers to drain is over. Lease.Context ends with it, and Handle
	// returns it if work was left.
	ErrStopped = lease.ErrStopped
	// ErrClosed: returned by sends after Close of the producer has begun, by settles after Shutdown of the consumer has given up, and
	// by Receive after the consumer has stopped.
	ErrClosed = batch.ErrClosed
	// ErrNoSchema: the tables of the queue are missing or older than this version of chanq. Run Migrate, or the command chanq
	// migrate.
	ErrNoSchema = errors.New("chanq: no schema")
	// ErrNewerSchema: a newer chanq made the tables. Upgrade the program.
	ErrNewerSchema = errors.New("chanq: newer schema")
	// ErrSpec: a field of Config.Spec is not zero and differs from the stored value. The error names the field and both values.
	ErrSpec = errors.New("chanq: stored spec differs")
	// ErrShards: the stored shard differs from Config.Shard, which may be zero. The error has the stored value.
	ErrShards = errors.New("chanq: stored shard differs")
	// ErrUnavailable: the database did not answer or refused the connection, for example because it does not exist or is starting.
	// Open, StoredConfig and Migrate return it. The state of the queue is unknown. The error has the cause. Try again later.
	ErrUnavailable = errors.New("chanq: database is not available")
	// ErrNotDurable: the database may lose confirmed commits. The error names the setting. Config.Durability can allow it.
	ErrNotDurable = errors.New("chanq: commits are not durable")
	// ErrTooLarge: a body (Spec.MaxBody), its headers, its type or one of its keys exceeds its limit.
	ErrTooLarge = errors.New("chanq: too large")
	// ErrNotEmpty: chanqadmin.Drop was called for a queue that has messages.
	ErrNotEmpty = errors.New("chanq: queue is not empty")
	// ErrNotFound: no message has the ID that chanqadmin.Queue.Get was given.
	ErrNotFound = errors.New("chanq: no such message")
)

// Cause is the reason why a message is dead. chanqadmin.Entry and DeadEvent contain it, and chanqadmin.Select selects by it. Its String
// is the name of its constant in lower case, for example "exhausted". chanqadmin.ParseCause parses it.
type Cause = sqlbatch.Cause

// The causes. The table of dead messages stores these numbers.
const (
	CauseExhausted   Cause = 1 // its last attempt failed (Spec.MaxAttempts)
	CauseRejected    Cause = 2 // its handler returned DeadLetter
	CauseExpired     Cause = 3 // its TTL was over
	CauseUndecodable Cause = 4 // its body or its headers cannot be decoded
	CauseUnreadable  Cause = 5 // its contents could not be read, and that was its last attempt
	CauseKilled      Cause = 6 // its handlers' processes died, or its leases expired (Config.MaxCrashes)
	CauseOutput      Cause = 7 // an output of a Pipe cannot be stored
)

// errMadeByHand: the Delivery has no lease.
var errMadeByHand = errors.New("chanq: no lease: this Delivery was not received from a Consumer; to test a handler, use chanq.Outcome")

// OpError is a failed operation on a queue: its statement failed, or an argument is invalid.
type OpError struct {
	Op    string // "open", "send", "ack", "claim" …
	Queue string // Config.Label, or the name of the queue; "" for the transaction of InTx ("begin", "commit")
	ID    ID     // of the message, if the operation is on one message
	// Unknown: the database might or might not have applied the operation. A message that is sent again with the same Message.ID is not
	// stored twice while it is in the queue (see Message.ID). Settling again is safe, also after redelivery.
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

// BatchError is returned by SendBatch if some of its messages were not stored, and by Ack and AckTx if some of the acks failed. Errs
// has an entry for each message, in order: its error, or nil.
type BatchError struct {
	Op   string // "send" or "ack"
	Errs []error
}

// batchError returns a BatchError, or nil if none of the messages has failed.
func batchError(op string, errs []error) error {
	e := &BatchError{Op: op, Errs: errs}
	if len(e.Unwrap()) == 0 {
		return nil
	}
	return e
}

func (e *BatchError) Error() string {
	failed := e.Unwrap()
	return fmt.Sprintf("chanq: %s: %d of %d messages failed; first: %s", e.Op, len(failed), len(e.Errs), firstOf(failed))
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

// firstOf returns the text of the first error, for the text of another error.
func firstOf(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	return strings.TrimPrefix(errorText(errs[0]), "chanq: ")
}

// Unsent is a message that a Producer received through its channel and could not store.
type Unsent[T any] struct {
	Message Message[T] // with its ID: if it is sent again, it is not stored twice while it is in the queue
	Err     error
}

// UnsentError is returned by Producer.Close. It contains the messages that were sent on the producer's channel and are not known to be
// stored, except those that Producer.Unsent returned.
type UnsentError[T any] struct{ Unsent []Unsent[T] }

func (e *UnsentError[T]) Error() string {
	return fmt.Sprintf("chanq: close: %d messages not stored; first: %s", len(e.Unsent), firstOf(e.Unwrap()))
}

// Unwrap returns the error of each message.
func (e *UnsentError[T]) Unwrap() []error {
	errs := make([]error, len(e.Unsent))
	for i := range e.Unsent {
		errs[i] = e.Unsent[i].Err
	}
	return errs
}
