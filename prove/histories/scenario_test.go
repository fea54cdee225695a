package histories

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// scenario runs the typical operations on three queues.
func (w *walk) scenario() {
	w.sends()
	w.works()
	w.pipes()
	w.count()
	if !w.wasHit() {
		w.requireUntouched()
	}
	require.NoError(w, w.db.Close(), w.where())
	require.NoError(w, w.observer.Close())
}

// sends stores messages in every way. There is no consumer yet, so each result of the producer can
// be checked immediately.
func (w *walk) sends() {
	p := w.produce(w.work)
	w.send(p, text("ack 1"), text("ack 2"), text("nack"), text("release"), text("dead-letter"), text("extend"), text("tx 1"), text("tx 2"))
	keyed := chanq.Message[string]{Body: "ack 3", DedupKey: "k"}
	first := w.send(p, keyed, text("ack 4"))[0]
	for range 2 {
		again := w.try(p, chanq.Message[string]{Body: "ack, never stored", DedupKey: "k"})
		require.Equal(w, chanq.Receipt{ID: first, Duplicate: true}, again, w.where())
	}
	w.sendTx()

	handed := []chanq.Message[string]{text("ack 5"), text("ack 6"), text("ack 7")}
	for i := range handed {
		handed[i].ID = chanq.NewID()
		p.C() <- handed[i]
	}
	flushed := p.Flush(w.soon())
	unsent := w.close(p, handed)
	require.Equal(w, len(unsent) > 0, flushed != nil, "%s: Flush: %v", w.where(), flushed)
	p = w.produce(w.work)
	w.send(p, unsent...)
	w.close(p, nil)
}

func text(body string) chanq.Message[string] { return chanq.Message[string]{Body: body} }

// send sends messages, repeating failed ones until all are stored, and returns their IDs.
func (w *walk) send(p *chanq.Producer[string], ms ...chanq.Message[string]) []chanq.ID {
	ids := make([]chanq.ID, len(ms))
	for round := 0; ; round++ {
		require.Less(w, round, 3, "%s: the only fault is over", w.where())
		receipts, err := p.SendBatch(w.soon(), ms...)
		var batch *chanq.BatchError
		if err != nil {
			require.ErrorAs(w, err, &batch, w.where())
		}
		failed := false
		for i, r := range receipts {
			require.False(w, r.Duplicate, w.where())
			ms[i].ID, ids[i] = r.ID, r.ID
			if batch == nil || batch.Errs[i] == nil {
				w.isStored(r.ID, ms[i].Body)
				continue
			}
			failed = true
			require.True(w, w.mishap.lasts, "%s: the producer should have handled a temporary error: %v", w.where(), batch.Errs[i])
			w.mayBeStored(r.ID, batch.Errs[i])
		}
		if !failed {
			return ids
		}
	}
}

// try sends one message until the producer succeeds.
func (w *walk) try(p *chanq.Producer[string], m chanq.Message[string]) chanq.Receipt {
	r, err := p.Send(w.soon(), m)
	if err != nil {
		w.mayBeStored(r.ID, err)
		m.ID = r.ID
		r, err = p.Send(w.soon(), m)
	}
	require.NoError(w, err, w.where())
	return r
}

// isStored checks that a message that was reported as stored is stored.
func (w *walk) isStored(id chanq.ID, body string) {
	e, err := testdb.Admin(w.truth).Get(w.soon(), id)
	require.NoError(w, err, "%s: %s is not stored", w.where(), body)
	require.Equal(w, body, string(e.Body), w.where())
	w.stored[id] = body
}

// mayBeStored checks an error of a send: it reports whether the message might be stored. Only after
// a fault may that be unknown.
func (w *walk) mayBeStored(id chanq.ID, err error) {
	require.True(w, w.wasHit(), "%s: %v", w.where(), err)
	var op *chanq.OpError
	require.ErrorAs(w, err, &op, w.where())
	if !op.Unknown {
		_, got := testdb.Admin(w.truth).Get(w.soon(), id)
		require.ErrorIs(w, got, chanq.ErrNotFound, "%s: stored despite %v", w.where(), err)
	}
}

// close closes a producer and checks that it returns exactly the messages sent on its channel that
// are not stored.
func (w *walk) close(p *chanq.Producer[string], handed []chanq.Message[string]) (unsent []chanq.Message[string]) {
	back := map[chanq.ID]bool{}
	if err := p.Close(w.soon()); err != nil {
		var e *chanq.UnsentError[string]
		require.ErrorAs(w, err, &e, w.where())
		for _, u := range e.Unsent {
			require.Contains(w, handed, u.Message, w.where())
			require.False(w, back[u.Message.ID], "%s: returned twice", w.where())
			back[u.Message.ID] = true
			w.mayBeStored(u.Message.ID, u.Err)
			unsent = append(unsent, u.Message)
		}
	}
	for _, m := range handed {
		if !back[m.ID] {
			w.isStored(m.ID, m.Body)
		}
	}
	return unsent
}

// sendTx stores two messages in a transaction, and two in a transaction that is rolled back.
func (w *walk) sendTx() {
	ms := []chanq.Message[string]{text("ack 8"), {Body: "ack 9", DedupKey: "tx"}}
	for i := range ms {
		ms[i].ID = chanq.NewID() // so that the transaction can be repeated
	}
	w.repeat(func() error {
		return w.inTx(func(ctx context.Context, tx *sql.Tx) error {
			_, err := w.work.SendTx(ctx, tx, ms...)
			return err
		})
	})
	for _, m := range ms {
		w.isStored(m.ID, m.Body)
	}
	w.work.Wake()
	undone := errors.New("the caller thinks better of it")
	err := w.inTx(func(ctx context.Context, tx *sql.Tx) error {
		if _, err := w.work.SendTx(ctx, tx, text("ack, rolled back"), chanq.Message[string]{Body: "ack, rolled back", DedupKey: "tx"}); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		require.True(w, w.wasHit(), "%s: %v", w.where(), err)
	}
}

// inTx runs f in a caller's transaction.
func (w *walk) inTx(f func(context.Context, *sql.Tx) error) error {
	ctx := w.shortly()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		_ = tx.Rollback() // f's error is returned
		return err
	}
	return tx.Commit()
}

// repeat calls f again if the fault has made it fail.
func (w *walk) repeat(f func() error) {
	err := f()
	if err != nil && w.wasHit() {
		err = f()
	}
	require.NoError(w, err, w.where())
}

// works consumes all sent messages and stops with two messages in the buffer.
func (w *walk) works() {
	c := w.consume(w.work)
	for open := w.unsettled(); len(open) > 0; open = w.unsettled() {
		var l *chanq.Lease[string]
		if l, c = w.next(c); l != nil {
			w.handle(l)
		}
	}
	p := w.produce(w.work)
	w.send(p, text("left 1"), text("left 2"))
	w.close(p, nil)
	idle := watch(c, w.truth)
	w.eventually("they are buffered, or the consumer has ended", func() bool {
		w.expire(idle)
		return c.Stats().Buffered >= 2 || c.Err() != nil
	})
	c.Stop()
	w.finish(c)
}

// unsettled returns the messages that are not finally settled.
func (w *walk) unsettled() (open []string) {
	for id, body := range w.stored {
		if w.settledAs[id] == "" {
			open = append(open, body)
		}
	}
	return open
}

// finish joins a consumer. Only a permanent error may have ended it.
func (w *walk) finish(c *chanq.Consumer[string]) {
	if err := c.Err(); err != nil {
		require.True(w, w.wasHit() && w.mishap.lasts, "%s: %v", w.where(), err)
	}
	require.Equal(w, c.Err(), c.Shutdown(w.soon()), w.where())
	for l := range c.C() {
		require.Fail(w, "delivered after the end", "%s: %s", w.where(), l.Body)
	}
}

// next receives a lease, or replaces a consumer that an error has ended.
func (w *walk) next(c *chanq.Consumer[string]) (*chanq.Lease[string], *chanq.Consumer[string]) {
	idle := watch(c, w.truth)
	for {
		poll := time.NewTimer(10 * time.Millisecond)
		select {
		case l, open := <-c.C():
			poll.Stop()
			if open {
				return l, c
			}
			w.finish(c)
			return nil, w.consume(w.work)
		case <-poll.C:
			w.expire(idle)
			require.NoError(w, w.limit.Err(), "%s: nothing is delivered, and %v are left", w.where(), w.unsettled())
		}
	}
}

// vigil watches a consumer that delivers nothing.
type vigil struct {
	consumer *chanq.Consumer[string]
	truth    *chanq.Queue[string]
	claimed  int64 // at the start of the vigil
	looks    int64
}

func watch(c *chanq.Consumer[string], truth *chanq.Queue[string]) *vigil {
	v := &vigil{consumer: c, truth: truth}
	v.begin()
	return v
}

func (v *vigil) begin() {
	s := v.consumer.Stats()
	v.claimed, v.looks = s.Claimed, s.EmptyClaims+s.Looks
}

// expire advances the clock if a failed claim has left leases without a holder: nothing is ready,
// the consumer holds nothing, and three polls find nothing. One poll might have been running at the
// start, a second might have found something, and before the third the claim that follows has been
// delivered.
func (w *walk) expire(v *vigil) {
	before := v.consumer.Stats()
	s, err := testdb.Admin(v.truth).Stats(w.soon())
	require.NoError(w, err)
	switch {
	case before.Held > 0 || before.Claimed != v.claimed || s.Ready > 0 || s.Leased == 0:
		v.begin()
	case before.EmptyClaims+before.Looks >= v.looks+3:
		require.True(w, w.wasHit(), "%s: messages are leased without a holder", w.where())
		w.clock.advance(w, leaseFor+time.Minute)
		v.begin()
	}
}

// handle treats a message as its body says, and compares each result of the library with the
// database.
func (w *walk) handle(l *chanq.Lease[string]) {
	require.NotContains(w, w.settledAs, l.ID, "%s: %s is delivered after its final settle", w.where(), l.Body)
	require.Equal(w, w.stored[l.ID], l.Body, w.where())
	if w.firstClaimWasLost() {
		require.Greater(w, l.Attempt, 1, "%s: %s is delivered by a failed claim", w.where(), l.Body)
	}
	w.visits[l.Body]++
	again := w.visits[l.Body] > 1
	before, err := testdb.Admin(w.truth).Get(w.soon(), l.ID)
	require.NoError(w, err, "%s: %s", w.where(), l.Body)
	switch verb, _, _ := strings.Cut(l.Body, " "); {
	case verb == "tx":
		w.ackTx(l)
		return
	case verb == "nack" && !again:
		cause := errors.New("try again")
		if w.outcome(l, before, l.Nack(chanq.RetryAfter(0, cause))) == nil {
			after := w.get(l)
			require.Greater(w, after.Fence, before.Fence, w.where())
			require.Equal(w, cause.Error(), after.LastError, w.where())
		}
		return
	case verb == "release" && !again:
		if w.outcome(l, before, l.Release()) == nil {
			require.Greater(w, w.get(l).Fence, before.Fence, w.where())
		}
		return
	case verb == "dead-letter":
		if w.outcome(l, before, l.Nack(chanq.DeadLetter(errors.New("enough")))) == nil {
			after := w.get(l)
			require.Equal(w, chanqadmin.StateDead, after.State, w.where())
			require.Equal(w, "enough", after.LastError, w.where())
			w.settledAs[l.ID] = chanqadmin.StateDead
		}
		return
	case verb == "extend":
		switch err := l.Extend(w.shortly(), 2*leaseFor); {
		case err == nil:
			require.Greater(w, w.get(l).LeaseUntil, before.LeaseUntil, w.where())
		default:
			require.True(w, w.wasHit(), "%s: %v", w.where(), err)
		}
	}
	if w.outcome(l, before, l.Ack()) == nil {
		_, err := testdb.Admin(w.truth).Get(w.soon(), l.ID)
		require.ErrorIs(w, err, chanq.ErrNotFound, "%s: %s is stored after its ack", w.where(), l.Body)
		w.settledAs[l.ID] = acked
	}
}

func (w *walk) get(l *chanq.Lease[string]) chanqadmin.Entry {
	e, err := testdb.Admin(w.truth).Get(w.soon(), l.ID)
	require.NoError(w, err, "%s: %s", w.where(), l.Body)
	return e
}

// outcome waits for the outcome of a settle and checks it if it is an error. A settle whose outcome
// stays unknown is looked up in the database, as no other consumer can have settled it.
func (w *walk) outcome(l *chanq.Lease[string], before chanqadmin.Entry, first error) error {
	err := first
	if err == nil {
		err = l.Wait(w.soon())
	}
	var op *chanq.OpError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, chanq.ErrLeaseLost):
		after := w.get(l)
		require.True(w, after.Attempts > l.Attempt || after.Fence > before.Fence, "%s: %s was not lost", w.where(), l.Body)
	case errors.As(err, &op) && op.Unknown:
		require.True(w, w.wasHit(), "%s: %v", w.where(), err)
		if e, got := testdb.Admin(w.truth).Get(w.soon(), l.ID); errors.Is(got, chanq.ErrNotFound) {
			w.settledAs[l.ID] = acked
		} else if e.State == chanqadmin.StateDead {
			w.settledAs[l.ID] = chanqadmin.StateDead
		}
	default:
		require.True(w, w.wasHit(), "%s: %v", w.where(), err)
		require.Equal(w, before.Fence, w.get(l).Fence, "%s: %s was settled despite %v", w.where(), l.Body, err)
	}
	return err
}

// ackTx acks a message in a transaction that also writes a row of the caller.
func (w *walk) ackTx(l *chanq.Lease[string]) {
	commit := func() error {
		return w.inTx(func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO effects (id) VALUES ('%s')`, l.ID)); err != nil {
				return err
			}
			return l.AckTx(ctx, tx)
		})
	}
	err := commit()
	if err != nil {
		require.True(w, w.wasHit(), "%s: %v", w.where(), err)
		if _, got := testdb.Admin(w.truth).Get(w.soon(), l.ID); got == nil {
			err = commit()
			require.NoError(w, err, "%s: the lease is valid after the rollback", w.where())
		}
	}
	_, err = testdb.Admin(w.truth).Get(w.soon(), l.ID)
	require.ErrorIs(w, err, chanq.ErrNotFound, w.where())
	w.settledAs[l.ID] = acked
	w.effects[l.ID] = true
}

// pipes moves three messages from one queue to another, with two outputs for each.
func (w *walk) pipes() {
	p := w.produce(w.piped)
	for _, body := range []string{"x", "y", "z"} {
		w.repeat(func() error {
			_, err := p.Send(w.soon(), chanq.Message[string]{Body: body, DedupKey: body})
			return err
		})
	}
	w.close(p, nil)
	var err error
	w.clock, err = newClock(w.observer, w.clock.dialect, pipedQueue)
	require.NoError(w, err)
	source := testdb.OpenOn[string](w, w.observer, pipedQueue, chanq.Config{})
	isEmpty := func() bool { return testdb.Empty(w, source) }
	var robbed atomic.Bool // other goroutines would wait for a Once on a mutex, which stops the bubble's time
	var errRob error
	for !isEmpty() {
		from := w.consume(w.piped)
		ended := make(chan error, 1)
		go func() { // ends with from
			ended <- chanq.Pipe(from, w.out, 2, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
				if l.Body == "z" && !robbed.Swap(true) {
					errRob = w.rob(source)
				}
				return []chanq.Message[string]{text(l.Body + "1"), {Body: l.Body + "2", DedupKey: l.Body}}, nil
			})
		}()
		idle := watch(from, source)
		w.eventually("the pipe is done, or has ended", func() bool {
			w.expire(idle)
			return isEmpty() || from.Err() != nil
		})
		from.Stop()
		require.ErrorIs(w, <-ended, from.Err(), w.where())
		w.finish(from)
	}
	require.NoError(w, errRob, w.where())
	entries, err := testdb.Peek(w.soon(), w.trueResult, chanqadmin.StateReady, 1000)
	require.NoError(w, err)
	bodies := entryBodies(entries)
	slices.Sort(bodies)
	require.Equal(w, []string{"x1", "x2", "y1", "y2", "z1", "z2"}, bodies, w.where())
}

// rob lets all leases of a queue expire, and takes and releases the messages that it gets.
func (w *walk) rob(q *chanq.Queue[string]) error {
	w.clock.advance(w, leaseFor+time.Minute)
	c, err := q.Consume(w.soon(), chanq.ConsumerConfig{LeaseFor: leaseFor, StopWhenIdle: true})
	if err != nil {
		return err
	}
	var leases []*chanq.Lease[string]
	for l := range c.C() {
		if leases = append(leases, l); l.Attempt > 0 {
			c.Stop()
		}
	}
	for _, l := range leases {
		err = errors.Join(err, l.Release())
	}
	return errors.Join(err, c.Shutdown(w.soon()))
}

// eventually waits for a condition that must become true.
func (w *walk) eventually(what string, is func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		require.NoError(w, w.limit.Err(), "%s: this did not happen: %s", w.where(), what)
		<-tick.C
	}
}
