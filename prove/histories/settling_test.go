package histories

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

type settleOp string

const (
	ack        settleOp = "Ack"
	nack       settleOp = "Nack"
	release    settleOp = "Release"
	deadLetter settleOp = "DeadLetter"
)

// settle settles leases, those of a consumer in a batch.
type settle struct{ Settles []settling }

type settling struct {
	Lease int
	Op    settleOp
	Delay time.Duration
	Cause string
}

func (s settling) String() string {
	switch s.Op {
	case nack:
		return fmt.Sprintf("%s lease %d, due in %v, %q", s.Op, s.Lease, s.Delay, s.Cause)
	case deadLetter:
		return fmt.Sprintf("%s lease %d, %q", s.Op, s.Lease, s.Cause)
	}
	return fmt.Sprintf("%s lease %d", s.Op, s.Lease)
}

func (s *settle) String() string {
	texts := make([]string, len(s.Settles))
	for i, x := range s.Settles {
		texts[i] = x.String()
	}
	return strings.Join(texts, "; ")
}

func (s *settle) run(h *history) {
	if len(h.leases) == 0 {
		return
	}
	// A batch stores its acks first, then the other settles by kind. The order of two settles of one message, by a former and by the
	// current holder, would be that of the batch. Therefore each message is settled once per step.
	settledIDs := map[chanq.ID]bool{}
	var waits []func()
	for _, x := range s.Settles {
		l := h.lease(x.Lease)
		if settledIDs[l.ID] {
			continue
		}
		settledIDs[l.ID] = true
		waits = append(waits, h.settle(l, x))
	}
	for _, wait := range waits {
		wait()
	}
	h.finishAll()
}

// finishAll shuts down the consumers that hold no messages.
func (h *history) finishAll() {
	var done []*consumer
	for _, c := range h.consumers {
		require.NoError(h, c.Flush(h.soon()), h.ran)
		if c.Stats().Held == 0 {
			done = append(done, c)
		}
	}
	for _, c := range done {
		h.finish(c)
	}
}

// settle settles a lease and returns a function that checks the outcome.
func (h *history) settle(l *lease, x settling) (wait func()) {
	m := h.model.held(l.ID, l.turn)
	h.note("%s %s", x.Op, l.name)
	err := x.do(l.Lease)
	switch l.state {
	case settled:
		require.ErrorIs(h, err, chanq.ErrSettled, h.ran)
		return func() {}
	case lost:
		require.ErrorIs(h, err, chanq.ErrLeaseLost, h.ran)
		return func() {}
	}
	// A stopped consumer does not wait for leases in a caller's transaction. A running consumer finds the commit after a while.
	if l.state == inTx && (errors.Is(err, chanq.ErrClosed) || m == nil && errors.Is(err, chanq.ErrSettled)) {
		l.state = settled
		return func() {}
	}
	if l.state == holding && m == nil && errors.Is(err, chanq.ErrLeaseLost) {
		l.state = lost // its message was cancelled, perhaps sent again, and the consumer knows it
		return func() {}
	}
	loss := chanq.ErrLeaseLost
	if l.state == inTx && h.model.live[l.ID] == nil {
		loss = chanq.ErrSettled // the row is deleted, as after a commit of the transaction
	}
	l.state = settled
	if m != nil {
		h.apply(m, l, x)
	}
	want := func(err error) {
		if m == nil {
			require.ErrorIs(h, err, loss, "%s: %s of %s", h.ran, x.Op, l.name)
		} else {
			require.NoError(h, err, "%s: %s of %s", h.ran, x.Op, l.name)
		}
	}
	require.NoError(h, err, h.ran)
	return func() { want(l.Wait(h.soon())) }
}

// cause returns nil if there is no text.
func (x settling) cause() error {
	if x.Cause == "" {
		return nil
	}
	return errors.New(x.Cause)
}

func (x settling) do(l *chanq.Lease[string]) error {
	switch x.Op {
	case nack:
		return l.Nack(chanq.RetryAfter(x.Delay, x.cause()))
	case release:
		return l.Release()
	case deadLetter:
		return l.Nack(chanq.DeadLetter(x.cause()))
	default:
		return l.Ack()
	}
}

// apply applies a settle to a held message of the model.
func (h *history) apply(m *message, l *lease, x settling) {
	switch x.Op {
	case ack:
		h.model.ack(m)
	case nack:
		h.model.nack(m, x.Delay, x.Cause)
	case release:
		h.model.release(m)
	case deadLetter:
		h.model.deadLetter(m, chanq.DeadLetter(x.cause()).Error())
	}
}

// transaction acks leases and sends messages in one transaction of the caller.
type transaction struct {
	Producer int
	Acks     []int
	Messages []draft
	Commit   bool
}

func (s *transaction) String() string {
	end := "Rollback"
	if s.Commit {
		end = "Commit"
	}
	return fmt.Sprintf("producer %d: AckTx leases %v, SendTx %v, %s", s.Producer, s.Acks, s.Messages, end)
}

func (s *transaction) run(h *history) {
	before := h.model.clone()
	tx, err := h.db.BeginTx(h.soon(), nil)
	require.NoError(h, err)
	for _, n := range s.Acks {
		l := h.lease(n)
		if l == nil {
			break
		}
		h.note("AckTx %s", l.name)
		err := l.AckTx(h.soon(), tx)
		switch m := h.model.held(l.ID, l.turn); {
		case l.state == settled, l.state == inTx && m == nil && errors.Is(err, chanq.ErrSettled):
			require.ErrorIs(h, err, chanq.ErrSettled, h.ran)
		case l.state == lost || m == nil:
			require.ErrorIs(h, err, chanq.ErrLeaseLost, h.ran)
			l.state = lost
		default:
			require.NoError(h, err, h.ran)
			l.state = inTx
			h.model.ack(m)
		}
	}
	ms := h.compose(s.Messages)
	receipts, err := h.queue.SendTx(h.soon(), tx, ms...)
	require.NoError(h, err, h.ran)
	h.sent(ms, receipts)
	if s.Commit {
		require.NoError(h, tx.Commit(), h.ran)
		h.queue.Wake()
		return
	}
	require.NoError(h, tx.Rollback(), h.ran)
	h.model = before
}

// ending is how a handler ends.
type ending string

const (
	succeeds ending = "nil"
	fails    ending = "an error"
	later    ending = "RetryAfter"
	kills    ending = "DeadLetter"
	panics   ending = "a panic"
	acksSelf ending = "its own Ack, then an error"
)

var endings = []ending{succeeds, fails, later, kills, panics, acksSelf}

// handle has a consumer handle all ready messages.
type handle struct {
	Workers int
	Endings []ending
}

func (s *handle) String() string {
	return fmt.Sprintf("Handle all with %d workers, ending in turn with %q", s.Workers, s.Endings)
}

func (s *handle) run(h *history) {
	const retry, backoff = 2 * time.Hour, time.Hour
	if h.crowded() {
		return
	}
	endings := map[chanq.ID]ending{}
	h.rescue()
	for { // repeated after a message that has lost a lease
		want := h.model.claim(firstClaim, leaseFor, "handler")
		if len(want) == 0 {
			break
		}
		for _, m := range want {
			e := s.Endings[len(endings)%len(s.Endings)]
			endings[m.id] = e
			h.note("%s ends with %s", m.body, e)
			held := h.model.held(m.id, m.turn)
			switch e {
			case succeeds, acksSelf:
				h.model.ack(held)
			case fails:
				h.model.nack(held, backoff, "failed")
			case later:
				h.model.nack(held, retry, "later")
			case kills:
				h.model.deadLetter(held, "enough")
			case panics:
				h.model.nack(held, backoff, "panic: boom…")
			}
		}
	}
	c := h.start(backoff)
	var calls atomic.Int32
	ended := make(chan error, 1)
	go func() { // ends with the consumer, which stop stops
		ended <- c.Handle(s.Workers, func(_ context.Context, l *chanq.Lease[string]) error {
			calls.Add(1)
			switch endings[l.ID] {
			case fails:
				return errors.New("failed")
			case later:
				return chanq.RetryAfter(retry, errors.New("later"))
			case kills:
				return chanq.DeadLetter(errors.New("enough"))
			case panics:
				panic("boom")
			case acksSelf:
				_ = l.Ack() // its outcome is visible in the queue
				return errors.New("too late")
			}
			return nil
		})
	}()
	h.eventually("everything ready is handled", func() bool {
		stats := c.Stats()
		stored, err := testdb.Admin(h.queue).Stats(h.soon())
		require.NoError(h, err)
		return int(calls.Load()) >= len(endings) && stats.Held == 0 && stats.EmptyClaims > 0 && stored.Dead >= len(h.model.dead)
	})
	h.stop(c)
	require.NoError(h, <-ended, h.ran)
	require.EqualValues(h, len(endings), calls.Load(), "%s: calls of the handler", h.ran)
	h.finish(c)
}
