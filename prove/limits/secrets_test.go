package limits_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// The secrets of a message. Decoders tend to repeat numbers and times in errors.
const (
	secretText   = "S3CRET-text"
	secretHeader = "S3CRET-header"
	secretNumber = "4111111111111111"
)

// said collects all texts of chanq: from the log, hooks and errors.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
	kind map[string]int
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) note(kind string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == nil {
		s.kind = map[string]int{}
	}
	s.kind[kind]++
	fmt.Fprintf(&s.text, "%s: %v %+v %#v\n", kind, v, v, v)
}

// err records an error and all errors that it wraps.
func (s *said) err(err error) {
	if err == nil {
		return
	}
	s.note("error", err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		s.err(e.Unwrap())
	case *chanq.BatchError, *chanq.UnsentError[string]: // these hold messages for the caller
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			s.err(err)
		}
	}
}

func (s *said) hooks() chanq.Hooks {
	level := &slog.HandlerOptions{Level: slog.LevelDebug}
	return chanq.JoinHooks(
		chanq.LogHooks(slog.New(slog.NewJSONHandler(s, level)), slog.LevelWarn),
		chanq.LogHooks(slog.New(slog.NewTextHandler(s, level)), slog.LevelWarn),
		chanq.Hooks{
			Sent:         func(e chanq.SentEvent) { s.note("sent", e) },
			Claimed:      func(e chanq.ClaimedEvent) { s.note("claimed", e) },
			Settled:      func(e chanq.SettledEvent) { s.note("settled", e) },
			LeaseLost:    func(e chanq.LeaseLostEvent) { s.note("lease lost", e) },
			Handled:      func(e chanq.HandledEvent) { e.Headers = nil; s.note("handled", e) },
			Unsent:       func(e chanq.UnsentEvent) { s.note("unsent", e); s.err(e.Err) },
			Dead:         func(e chanq.DeadEvent) { e.Headers = nil; s.note("dead", e) },
			Availability: func(e chanq.AvailabilityEvent) { s.note("availability", e); s.err(e.Err) },
		})
}

// requireNone requires that no text contains one of the secrets, in any form.
func (s *said) requireNone(t *testing.T, secrets ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotZero(t, s.text.Len())
	text := s.text.String()
	for _, secret := range secrets {
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]")} {
			if i := strings.Index(text, form); i >= 0 {
				require.Fail(t, "a text contains a secret", "%s", text[max(0, i-300):min(len(text), i+300)])
			}
		}
	}
}

func TestNoErrorOrLogContainsABody(t *testing.T) {
	onEach(t, func(w *world) {
		var s said
		cfg := chanq.Config{Hooks: s.hooks(), Spec: chanq.Spec{MaxBody: 10_000, MaxAttempts: 3}}
		q := w.Queue("work", cfg)
		secret := chanq.Message[string]{Body: secretText, Headers: map[string]string{"token": secretHeader}}

		// Everything succeeds.
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		for range 6 {
			_, err := p.Send(w.Soon(), secret)
			require.NoError(w, err)
		}
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		for i, l := range testdb.Take(w, c, 6) {
			settle := []func() error{
				l.Ack, l.Release,
				func() error { return l.Nack(chanq.RetryAfter(time.Hour, errors.New("later"))) },
				func() error { return l.Nack(chanq.DeadLetter(errors.New("no"))) },
				func() error { _, err := q.Cancel(w.Soon(), l.ID); return errors.Join(err, l.Ack()) },
				func() error { failing(w, cfg, secret); return l.Ack() },
			}[i]
			require.NoError(w, settle())
			s.err(l.Wait(w.Soon()))
		}

		// chanq rejects the message.
		large := secret
		large.Body = strings.Repeat(secretText, 1000)
		odd := secret
		odd.Headers = map[string]string{"token": secretHeader + "\xff"}
		for _, m := range []chanq.Message[string]{large, odd, {Body: secretText, Priority: 9}, {Body: secretText, Delay: -1}, {Body: secretText, DedupKey: "\xff"}} {
			_, err := p.Send(w.Soon(), m)
			require.Error(w, err)
			s.err(err)
			_, err = p.SendBatch(w.Soon(), secret, m)
			require.Error(w, err)
			s.err(err)
			tx, err := w.DB.BeginTx(w.Soon(), nil)
			require.NoError(w, err)
			_, err = q.SendTx(w.Soon(), tx, m)
			require.Error(w, err)
			s.err(err)
			require.NoError(w, tx.Rollback())
			p.C() <- m
		}
		s.err(p.Flush(w.Soon()))
		err := p.Close(w.Soon())
		var unsent *chanq.UnsentError[string]
		require.ErrorAs(w, err, &unsent)
		s.note("unsent", err.Error())
		for _, u := range unsent.Unsent {
			s.err(u.Err)
		}

		// The database fails.
		p = testdb.Produce(w, q, chanq.ProducerConfig{})
		st := w.Statements("work")
		for _, f := range []faultdb.Fault{faultdb.Cut(errors.New("connection reset by peer")).Applied(), faultdb.Fail(w.Failure(sqlbatch.RolledBack)), faultdb.Fail(w.Failure(sqlbatch.Permanent))} {
			w.StrikeAll(f, append(append(testdb.Stores(1, st.Enqueue), testdb.Stores(1, st.EnqueueNew)...), st.Ack(nil))...)
			short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			_, err := p.Send(short, secret)
			cancel()
			require.Error(w, err)
			s.err(err)
			w.Faults.Inject(nil)
		}
		require.NoError(w, p.Flush(w.Soon()))

		// Bodies cannot be decoded: as a number, and as a time.
		_, err = p.Send(w.Soon(), chanq.Message[string]{Body: secretNumber})
		require.NoError(w, err)
		require.NoError(w, c.Shutdown(w.Soon()))
		s.err(c.Err())
		undecodable[int8](w, cfg)
		_, err = p.Send(w.Soon(), chanq.Message[string]{Body: strconv.Quote(secretText)})
		require.NoError(w, err)
		undecodable[time.Time](w, cfg)
		require.NoError(w, p.Close(w.Soon()))

		for _, kind := range []string{"sent", "claimed", "settled", "lease lost", "handled", "dead", "error", "unsent"} {
			require.NotZero(w, s.kind[kind], "there was no text of this kind: "+kind)
		}
		s.requireNone(w.T, secretText, secretHeader, secretNumber)
	})
}

// failing makes a handler panic on a message of another queue.
func failing(w *world, cfg chanq.Config, m chanq.Message[string]) {
	q := w.Queue("other", cfg)
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	_, err := p.Send(w.Soon(), m)
	require.NoError(w, err)
	require.NoError(w, p.Close(w.Soon()))
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.NoError(w, c.Handle(1, func(context.Context, *chanq.Lease[string]) error {
		c.Stop()
		panic("oh")
	}))
	require.NoError(w, c.Shutdown(w.Soon()))
}

// undecodable consumes as T until nothing is ready.
func undecodable[T any](w *world, cfg chanq.Config) {
	w.Helper()
	q, err := chanq.Open[T](w.Soon(), w.DB, "work", cfg)
	require.NoError(w, err)
	before, err := testdb.Admin(q).Stats(w.Soon())
	require.NoError(w, err)
	c, err := q.Consume(context.Background(), chanq.ConsumerConfig{})
	require.NoError(w, err)
	w.Eventually("undecodable messages are dead", func() bool {
		now, err := testdb.Admin(q).Stats(w.Soon())
		require.NoError(w, err)
		return now.Ready+now.Leased == 0 && now.Dead > before.Dead
	})
	require.NoError(w, c.Shutdown(w.Soon()))
}
