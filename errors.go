package chanq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

// Errors to compare with errors.Is.
var (
	// ErrLeaseLost: the lease was lost before the settle. The message was cancelled, or is redelivered. Lease.Context
	// is cancelled with it.
	ErrLeaseLost = lease.ErrLost
	// ErrCancelled: the message was cancelled or purged while its handler ran. Lease.Context is cancelled with it: see
	// Queue.Cancel. It is also an ErrLeaseLost.
	ErrCancelled = lease.ErrCancelled
	// ErrSettled: this holder has already settled the lease.
	ErrSettled = lease.ErrSettled
	// ErrStopped: the consumer has stopped, and the time for its handlers to drain is over. Lease.Context is cancelled
	// with it.
	ErrStopped = lease.ErrStopped
	// ErrClosed: the producer or consumer is closed. Sends after Close, settles after Shutdown has given up, and
	// Receive after the consumer has stopped return it.
	ErrClosed = batch.ErrClosed
	// ErrNoSchema: the tables of the queue are missing or older than this version of chanq. Run Migrate, or the command
	// chanq migrate.
	ErrNoSchema = errors.New("chanq: no schema")
	// ErrNewerSchema: a newer chanq made the tables. Upgrade the program.
	ErrNewerSchema = errors.New("chanq: newer schema")
	// ErrSpec: a field of Config.Spec is not zero and differs from the stored value. The error names the field and both
	// values.
	ErrSpec = errors.New("chanq: stored spec differs")
	// ErrShards: the stored shard differs from Config.Shard, which can be zero. The error has the stored value.
	ErrShards = errors.New("chanq: stored shard differs")
	// ErrUnavailable: the database did not answer or refused the connection, for example because it does not exist or
	// is starting. Open, StoredConfig and Migrate return it. Try again later.
	ErrUnavailable = errors.New("chanq: database is not available")
	// ErrNotDurable: the database can lose confirmed commits. The error names the setting. Config.Durability can allow
	// it.
	ErrNotDurable = errors.New("chanq: commits are not durable")
	// ErrTooLarge: a body (Spec.MaxBody), its headers, its type or one of its keys exceeds its limit.
	ErrTooLarge = errors.New("chanq: too large")
	// ErrNotEmpty: chanqadmin.Drop was called for a queue with messages.
	ErrNotEmpty = errors.New("chanq: queue is not empty")
	// ErrNotFound: no message has the ID that chanqadmin.Queue.Get was given.
	ErrNotFound = errors.New("chanq: no such message")
)

// Cause is why a message is dead: see chanqadmin.Entry and DeadEvent. Its String is the name of its constant in lower
// case, for example "exhausted".
type Cause = sqlbatch.Cause

// The causes. The table of dead messages stores these numbers.
const (
	CauseExhausted   Cause = 1 // its last attempt failed (Spec.MaxAttempts, or DeadLetterAs)
	CauseRejected    Cause = 2 // its handler returned DeadLetter
	CauseExpired     Cause = 3 // its TTL was over
	CauseUndecodable Cause = 4 // its body or its headers cannot be decoded
	CauseUnreadable  Cause = 5 // its contents could not be read, and that was its last attempt
	CauseKilled      Cause = 6 // its handlers' processes died, or its leases expired (Config.MaxCrashes)
	CauseOutput      Cause = 7 // an output of a Pipe cannot be stored
)

// errMadeByHand: the Delivery has no lease.
var errMadeByHand = errors.New("chanq: no lease: this Delivery was not received from a Consumer; to test a handler, " +
	"use chanq.Outcome")

// OpError is a failed operation on a queue: its statement failed, or an argument is invalid.
type OpError struct {
	Op    string // "open", "send", "ack", "claim" …
	Queue string // Config.Label; "" for the transaction of InTx
	ID    ID     // of the message, if the operation is on one message
	// Unknown: the database might have applied the operation. Send again with the same Message.ID; settling again is
	// safe.
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

// BatchError is returned by SendBatch, Ack and AckTx if some messages failed. Errs has an entry for each message, in
// order: its error, or nil.
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
	return fmt.Sprintf("chanq: %s: %d of %d failed; first: %s", e.Op, len(failed), len(e.Errs), firstOf(failed))
}

// Unwrap returns the errors of the failed messages.
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

// Unsent is a message of Producer.C that could not be stored.
type Unsent[T any] struct {
	Message Message[T] // with its ID, to send it again: see Message.ID; DebounceMax has its default
	Err     error
}

// UnsentError is returned by Producer.Close. It contains the messages of C that are not known to be stored, except
// those that Producer.Unsent returned.
type UnsentError[T any] struct{ Unsent []Unsent[T] }

func (e *UnsentError[T]) Error() string {
	return fmt.Sprintf("chanq: close: messages not stored: %d; first: %s", len(e.Unsent), firstOf(e.Unwrap()))
}

// Unwrap returns the error of each message.
func (e *UnsentError[T]) Unwrap() []error {
	errs := make([]error, len(e.Unsent))
	for i := range e.Unsent {
		errs[i] = e.Unsent[i].Err
	}
	return errs
}
