package chanqadmin

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// State is the state of a stored message.
type State string

// The states.
const (
	StateReady     State = "ready"     // due, claimable
	StateScheduled State = "scheduled" // not due yet
	StateLeased    State = "leased"    // claimed, lease running
	StateDead      State = "dead"      // dead-lettered
	StateDone      State = "done"      // kept after its ack, with Spec.Retain
)

// check returns an error if there is no such state.
func (s State) check() error {
	switch s {
	case StateReady, StateScheduled, StateLeased, StateDead, StateDone:
		return nil
	}
	return fmt.Errorf("state %q: must be ready, scheduled, leased, dead or done", s)
}

func (s State) live() bool { return sqlbatch.State(s).Live() }

// Entry is a stored message. Its body is not decoded.
type Entry struct {
	ID       chanq.ID       `json:"id"`
	State    State          `json:"state"`
	Priority chanq.Priority `json:"-"`
	// Attempts counts the claims that were or might have been deliveries: see chanq.Delivery.Attempt. A claim does not count if it
	// found the message expired, undecodable or without attempts left.
	Attempts   int       `json:"attempt"`
	Fence      int64     `json:"fence"` // of the last claim, or greater
	EnqueuedAt time.Time `json:"enqueued_at"`
	// DueAt is when the message was or will be due. Zero for dead and done messages.
	DueAt time.Time `json:"due_at,omitzero"`
	// LeaseUntil is when its lease ends, or ended if it was not claimed since. Zero if there is none.
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// HeldSince is when a leased message was claimed, by the database's clock, whatever its extensions. Zero for other states, and on an
	// ordered queue, whose rows do not say when a message was delivered.
	HeldSince time.Time `json:"held_since,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`   // of a dead or done message
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero if it does not expire
	// LeasedBy is the name of the consumer that holds the lease, and Consumer its ID, if they are known. See Queue.Consumers.
	LeasedBy string   `json:"leased_by,omitempty"`
	Consumer chanq.ID `json:"consumer,omitzero"`
	DedupKey string   `json:"dedup_key,omitempty"`
	Type     string   `json:"type,omitempty"`
	// Key and Slot are for an ordered queue.
	Key  string `json:"key,omitempty"`
	Slot int    `json:"slot,omitempty"`
	// LastError has up to 2,000 characters; another program may have stored a longer text.
	LastError string `json:"last_error,omitempty"`
	// History has the last attempts that failed or whose lease expired, the last one first: at least five, if there were as many.
	History []Attempt `json:"history,omitempty"`
	// Cause and Fingerprint are for a dead message. Fingerprint identifies the group of its error, in hexadecimal digits: errors that
	// differ only in numbers, identifiers or quoted parts have the same fingerprint. It is empty if no error ended the message.
	Cause       chanq.Cause `json:"cause,omitzero"`
	Fingerprint string      `json:"fingerprint,omitempty"`
	// Headers and Body are nil in a List without Bodies. Headers that are not JSON are one header without a name. Size is that of the stored
	// body, in bytes, even without Bodies.
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"-"`
	Size    int               `json:"size"`

	seq int64 // its position in an ordered queue
}

// MarshalJSON returns an object with names such as enqueued_at, the priority by name and times in UTC, without empty fields. A body
// that is text is a string in body; any other body is in body_base64. A List without Bodies has none.
func (e Entry) MarshalJSON() ([]byte, error) {
	for _, t := range []*time.Time{&e.EnqueuedAt, &e.DueAt, &e.LeaseUntil, &e.HeldSince, &e.EndedAt, &e.ExpiresAt} {
		*t = t.UTC()
	}
	type fields Entry
	j := struct {
		fields
		Priority   string  `json:"priority"`
		Body       *string `json:"body,omitempty"`
		BodyBase64 []byte  `json:"body_base64,omitempty"`
	}{fields: fields(e), Priority: e.Priority.String()}
	switch body := string(e.Body); {
	case e.Body == nil && e.Size > 0:
	case utf8.ValidString(body):
		j.Body = &body
	default:
		j.BodyBase64 = e.Body
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // the outer encoder decides
	err := encoder.Encode(j)
	return text.Bytes(), err
}

// UnmarshalJSON returns an error: the JSON of an Entry is for display and is incomplete.
func (e *Entry) UnmarshalJSON([]byte) error {
	return errors.New("chanq: the JSON of an Entry lacks some of its fields: decode it into a type of your own")
}

// RedactedError returns LastError without parts of bodies or headers, for people who may not see bodies. If chanq could not decode,
// read or encode the message, it omits the text of the codec or the driver, which may repeat such parts. Errors of handlers are
// unchanged. Redact does the same with LastError and History.
func (e *Entry) RedactedError() string { return base.Redact(e.LastError) }

// Redact replaces LastError and the errors in History: see RedactedError.
func (e *Entry) Redact() {
	e.LastError = e.RedactedError()
	for i := range e.History {
		e.History[i].Error = base.Redact(e.History[i].Error)
	}
}

// Get returns one message in any state, or ErrNotFound. It costs one round trip.
func (q *Queue) Get(ctx context.Context, id chanq.ID) (Entry, error) {
	return q.one(ctx, id, q.sql.Get(id), withBodies)
}

// GetPart is Get with up to n bytes of the body, beginning at byte from: Entry.Body is only that part, while Size is that of the whole body.
// With n = 0 the database does not read the body. Large bodies are read in parts, without the memory for all of it.
func (q *Queue) GetPart(ctx context.Context, id chanq.ID, from, n int) (Entry, error) {
	if from < 0 || n < 0 || from > sqlbatch.MaxBody || n > sqlbatch.MaxBody {
		return Entry{}, q.refuse("get", "the part is %d bytes from %d on: both must be from 0 to %d", n, from, sqlbatch.MaxBody)
	}
	return q.one(ctx, id, q.sql.Part(id, from, n), withPart)
}

// one returns the message that a statement found.
func (q *Queue) one(ctx context.Context, id chanq.ID, st sqlbatch.Statement, last func(*Entry) []any) (Entry, error) {
	list, err := q.entries(ctx, "get", st, last)
	if err == nil && len(list) == 0 {
		err = &chanq.OpError{Op: "get", Queue: q.Label(), ID: id, Err: chanq.ErrNotFound}
	}
	if err != nil {
		return Entry{}, err
	}
	found := list[0]
	for _, e := range list[1:] {
		// An ID that was sent again after its end may have ended entries of both sends.
		if e.State == found.State && e.EndedAt.After(found.EndedAt) {
			found = e
		}
	}
	return found, nil
}

// withBodies, withSizes and withPart return the destinations of the columns of an entry after its headers.
func withBodies(e *Entry) []any { return []any{&e.Body} }
func withSizes(e *Entry) []any  { return []any{&e.Size} }
func withPart(e *Entry) []any   { return []any{&e.Body, &e.Size} }

// entries runs a statement that returns messages. last returns the destinations of their columns after the headers.
func (q *Queue) entries(ctx context.Context, op string, st sqlbatch.Statement, last func(*Entry) []any) ([]Entry, error) {
	return collect(ctx, q, op, st, func(rows *sql.Rows) (e Entry, err error) {
		var id, headers, key, kind, line, consumer []byte
		var enqueued int64
		var due, lease, ended, expires sql.NullInt64
		var holder, lastError, history sql.NullString
		var cause, fingerprint sql.NullInt64
		columns := []any{&e.State, &id, &e.Priority, &e.Fence, &e.Attempts, &enqueued, &due, &lease, &ended, &expires, &consumer, &holder, &key, &kind, &lastError, &history, &cause, &fingerprint, &headers}
		columns = append(columns, last(&e)...)
		if q.ordered() {
			columns = append(columns, &e.Slot, &e.seq, &line)
		}
		if err := rows.Scan(columns...); err != nil {
			return e, err
		}
		copy(e.ID[:], id)
		copy(e.Consumer[:], consumer)
		e.Size = max(e.Size, len(e.Body))
		e.EnqueuedAt = time.UnixMilli(enqueued)
		e.DueAt, e.LeaseUntil, e.EndedAt, e.ExpiresAt = timeOf(due), timeOf(lease), timeOf(ended), timeOf(expires)
		e.LeasedBy, e.DedupKey, e.Type, e.Key, e.LastError = holder.String, string(key), string(kind), string(line), lastError.String
		if e.State == StateLeased && !q.ordered() && e.Fence >= 1<<sqlbatch.FenceBits { // less: another program has claimed it
			e.HeldSince = time.UnixMilli((e.Fence - 1) >> sqlbatch.FenceBits) // the salt is at least 1
		}
		if e.Cause = chanq.Cause(cause.Int64); fingerprint.Valid {
			e.Fingerprint = fmt.Sprintf("%016x", fingerprint.Int64)
		}
		e.Headers, e.History = headersOf(headers), attemptsOf(history.String)
		return e, nil
	})
}

// headersOf returns headers that are not JSON, which may be the reason why a message is dead, as one without a name.
func headersOf(text []byte) (headers map[string]string) {
	if len(text) > 0 && chanq.JSON.Decode(text, &headers) != nil {
		return map[string]string{"": string(text)}
	}
	return headers
}

// timeOf returns the zero time for NULL.
func timeOf(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64)
}
