package chanqjobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Kind is a kind of job: a name, which is the Type of its messages, and the Go type of their bodies. It is safe for concurrent use.
type Kind[T any] struct {
	name  string
	codec chanq.Codec // nil: the queue's codec
}

// Define returns a kind. Call it for a package variable. It panics if the name is not 1 to 100 printable ASCII characters.
func Define[T any](name string) *Kind[T] {
	notPrintable := func(r rune) bool { return r < ' ' || r > '~' }
	if name == "" || len(name) > 100 || strings.ContainsFunc(name, notPrintable) {
		panic(fmt.Sprintf("chanqjobs: the name of a kind is %q: must be 1 to 100 printable ASCII characters", name))
	}
	return &Kind[T]{name: name}
}

// With returns a kind of the same name whose bodies have their own codec, for example an encrypting one. As in a queue of chanq, bodies of
// type []byte, string and json.RawMessage bypass it.
func (k *Kind[T]) With(c chanq.Codec) *Kind[T] { return &Kind[T]{k.name, c} }

// Name returns the name, which is Message.Type and Delivery.Type of its jobs.
func (k *Kind[T]) Name() string { return k.name }

// New returns a message of this kind. Set its other fields, such as Delay, as you like. The send encodes the body, so do not modify what it
// points to before.
func (k *Kind[T]) New(body T) chanq.Message[Job] {
	return chanq.Message[Job]{Type: k.name, Body: Job{unsent: &unsent[T]{k, body}}}
}

// unsent is the body of a job to send.
type unsent[T any] struct {
	kind *Kind[T]
	body T
}

func (u *unsent[T]) encode(c chanq.Codec) ([]byte, error) {
	switch b := any(u.body).(type) {
	case []byte:
		return bytes.Clone(b), nil
	case json.RawMessage:
		return bytes.Clone(b), nil
	case string:
		return []byte(b), nil
	default:
		return u.kind.codecOr(c).Encode(b)
	}
}

// ErrKind: the job is of another kind, which Kind.Open returns.
var ErrKind = errors.New("chanqjobs: job of another kind")

// Open decodes a job. You get the same delivery, so settle one of the two leases. Settle the lease with the error if there is one: a body that
// cannot be decoded is then dead-lettered with CauseUndecodable. For a job of another kind the error is ErrKind.
func (k *Kind[T]) Open(l *chanq.Lease[Job]) (*chanq.Lease[T], error) {
	if l.Type != k.name {
		return nil, fmt.Errorf("%w: %q instead of %q", ErrKind, l.Type, k.name)
	}
	opened := &chanq.Lease[T]{Delivery: l.Delivery}
	if err := k.decode(&l.Body, &opened.Body); err != nil {
		return nil, chanq.DeadLetterAs(chanq.CauseUndecodable, fmt.Errorf("a job of the kind %q: %w", k.name, err))
	}
	return opened, nil
}

// Decode decodes the body of a stored job, for example of a dead one. For another kind the error is ErrKind. If the kind has no codec, the
// body is JSON: with a Config.Codec, call k.With(codec).Decode.
func (k *Kind[T]) Decode(e chanqadmin.Entry) (body T, err error) {
	if e.Type != k.name {
		return body, fmt.Errorf("%w: %q instead of %q", ErrKind, e.Type, k.name)
	}
	return body, k.decode(&Job{data: e.Body}, &body)
}

// decode returns a panic of the codec as an error, as chanq does.
func (k *Kind[T]) decode(j *Job, into *T) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec panicked: %v", p)
		}
	}()
	switch b := any(into).(type) {
	case *[]byte:
		*b = j.data
	case *json.RawMessage:
		*b = utf8JSON(j.data)
	case *string:
		*b = string(j.data)
	default:
		return k.codecOr(j.codec).Decode(j.data, into)
	}
	return nil
}

// utf8JSON returns data, or its JSON in UTF-8 if another program has stored it in UTF-16.
func utf8JSON(data []byte) json.RawMessage {
	var converted json.RawMessage
	if !json.Valid(data) && chanq.JSON.Decode(data, &converted) == nil {
		return converted
	}
	return data
}

func (k *Kind[T]) codecOr(c chanq.Codec) chanq.Codec {
	switch {
	case k.codec != nil:
		return k.codec
	case c != nil:
		return c
	}
	return chanq.JSON // of a Job that no queue has delivered
}
