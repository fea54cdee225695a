package guarantees

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Claims begin where the previous claim ended. Messages that appear before that position are still found soon, whether or not other
// messages keep coming.
var catchUp = []test{
	{"G10_WhatATransactionCommitsLateIsFound", func(w *world) { lateCommit(w, chanq.PriorityNormal, 2*time.Second) }},
	{"G10_ALowMessageThatIsCommittedLateIsFound", func(w *world) { lateCommit(w, chanq.PriorityLow, 2*time.Second) }},
	{"G10_WhatATransactionOfTenSecondsCommitsIsFound", longCommit},
	{"G10_WhatAnotherProcessReleasesIsFound", foundReleased},
	{"G10_AMessageWhoseLeaseExpiredIsFound", foundLapsed},
	{"G10_ExpiredLeasesAreFoundAlthoughRescansTakeLong", foundSlowly},
	{"G10_WhatIsRedrivenOrSentAgainIsFound", foundAgain},
	{"G10_WhatThisProcessReleasesIsFoundImmediately", foundAtOnce},
	{"WakeFindsALateCommitImmediately", wakeFinds},
}

// foundWithin is the promised time if the database works normally. On a real clock the database is busy, and rescans take a twentieth of
// the time: what takes 500 ms is repeated after 10 s.
var foundWithin = testdb.Slowness * testdb.Of(1500*time.Millisecond, 15*time.Second)

// beyond is how far claims advance past a position before a test makes a message appear there. It is more than claims look back.
const beyond = 600 * time.Millisecond

// stream is a consumer that claims without pauses because another process keeps sending.
type stream struct {
	*world
	q, elsewhere *chanq.Queue[string] // the queue of the consumer, and the same queue in the other process
	others       chan *chanq.Lease[string]
	claimed      chan time.Time // the due time of each message of the stream
}

// flow starts a stream.
func (w *world) flow() *stream {
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	s := &stream{
		world: w, q: q, elsewhere: testdb.OpenOn[string](w, db, "work", chanq.Config{}),
		others: make(chan *chanq.Lease[string], 100), claimed: make(chan time.Time, 1),
	}
	return s
}

// start runs the consumer and the sender until the test ends.
func (s *stream) start() {
	c := testdb.Start(s, s.q, chanq.ConsumerConfig{})
	p := testdb.Produce(s, s.elsewhere, chanq.ProducerConfig{})
	stop, stopped := make(chan struct{}), make(chan struct{})
	read := make(chan struct{})
	go func() { // ends with the consumer
		defer close(read)
		for l := range c.C() {
			if l.Body != "of the stream" {
				s.others <- l
				continue
			}
			select {
			case s.claimed <- l.DueAt:
			default:
			}
			_ = l.Ack() // a lost message is redelivered
		}
	}()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = p.Send(s.Soon(), chanq.Message[string]{Body: "of the stream"}) // the test does not need each message
			case <-stop:
				return
			}
		}
	}()
	s.Cleanup(func() {
		close(stop)
		<-stopped
		c.Stop()
		<-read
	})
}

// getsBeyond waits until the stream has claimed messages that were due more than d after due.
func (s *stream) getsBeyond(due time.Time, d time.Duration) {
	s.Helper()
	s.Eventually("claims advance beyond it", func() bool {
		return testdb.Receive(s, s.claimed, "a message of the stream").After(due.Add(d))
	})
}

// finds waits for a message that is not part of the stream and returns the time since since.
func (s *stream) finds(body string, since time.Time) time.Duration {
	s.Helper()
	l := testdb.Receive(s, s.others, body)
	took := time.Since(since)
	require.Equal(s, body, l.Body)
	require.NoError(s, l.Ack())
	require.NoError(s, l.Wait(s.Soon()))
	return took
}

// promptly calls find up to three times, until it takes at most foundWithin. A busy machine might cause a pause.
func (s *stream) promptly(find func() time.Duration) {
	s.Helper()
	var took time.Duration
	for range 3 {
		if took = find(); took <= foundWithin {
			return
		}
		s.Logf("found after %v", took)
	}
	require.LessOrEqual(s, took, foundWithin)
}

// longCommit is lateCommit with a transaction as long as one that waits for a user.
func longCommit(w *world) {
	if testing.Short() {
		w.Skip("takes more than ten seconds")
	}
	lateCommit(w, chanq.PriorityNormal, 10*time.Second)
}

// lateCommit keeps a transaction open until claims have advanced beyond its message by the given time.
func lateCommit(w *world, p chanq.Priority, open time.Duration) {
	w.skipWithOneWriter()
	s := w.flow()
	s.start()
	s.promptly(func() time.Duration {
		tx, err := s.DB.BeginTx(s.Soon(), nil)
		require.NoError(s, err)
		defer tx.Rollback()
		_, err = s.q.SendTx(s.Soon(), tx, chanq.Message[string]{Body: "late", Priority: p})
		require.NoError(s, err)
		s.getsBeyond(testdb.Receive(s, s.claimed, "a message of the stream"), open)
		require.NoError(s, tx.Commit())
		return s.finds("late", time.Now())
	})
}

// skipWithOneWriter skips the test if an open transaction blocks all claims.
func (w *world) skipWithOneWriter() {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("an open write transaction blocks claims")
	}
}

func foundReleased(w *world) {
	s := w.flow()
	testdb.Send(s, s.q, testdb.Texts("given back 1", "given back 2", "given back 3")...)
	leases := testdb.Lease(s, s.elsewhere, 3, time.Hour)
	s.start()
	s.getsBeyond(leases[2].DueAt, beyond)
	s.promptly(func() time.Duration {
		l := leases[0]
		leases = leases[1:]
		require.NoError(s, l.Release())
		return s.finds(l.Body, time.Now())
	})
}

func foundLapsed(w *world) {
	const d = 2 * time.Second
	s := w.flow()
	var leases []*chanq.Lease[string]
	for i, body := range []string{"lapsed 1", "lapsed 2", "lapsed 3"} {
		testdb.Send(s, s.q, testdb.Texts(body)...)
		leases = append(leases, testdb.Leases(testdb.Lease(s, s.elsewhere, 1, time.Duration(3+i)*d))...) // none expires before all are leased
	}
	s.start()
	s.promptly(func() time.Duration {
		l := leases[0]
		leases = leases[1:]
		return s.finds(l.Body, l.Deadline())
	})
}

// foundSlowly makes each rescan take longer than its first timeout. On SQLite, where extensions might wait for a rescan, that timeout is at
// most the timeout of an extension. Each rescan that times out gives the next one more time.
func foundSlowly(w *world) {
	lease := slowness * 600 * time.Millisecond
	q := w.Queue("work", chanq.Config{})
	_, db := w.Connect()
	elsewhere := testdb.OpenOn[string](w, db, "work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("ran out")...)
	held := testdb.Lease(w, elsewhere, 1, 10*lease)[0]
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lease})
	claimsBeyond(w, q, c, held.DueAt)

	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !testdb.Runs(op, st.Rescan()) {
			return faultdb.Fault{}
		}
		done := make(chan struct{})
		time.AfterFunc(lease, func() { close(done) })
		return faultdb.Hold(done)
	})
	require.Equal(w, "ran out", testdb.Take(w, c, 1)[0].Body)
	require.False(w, time.Now().Before(held.Deadline()))
}

func foundAgain(w *world) {
	s := w.flow()
	for i, body := range []string{"dead", "cancelled"} {
		testdb.Send(s, s.q, chanq.Message[string]{ID: chanq.ID{15: byte(1 + i)}, Body: body})
	}
	leases := testdb.Lease(s, s.elsewhere, 2, time.Hour)
	require.NoError(s, leases[0].Nack(chanq.DeadLetter(errors.New("enough"))))
	_, err := s.elsewhere.Cancel(s.Soon(), leases[1].ID)
	require.NoError(s, err)
	s.start()
	s.getsBeyond(leases[1].DueAt, beyond)
	n, err := testdb.Redrive(s.Soon(), s.elsewhere, 0)
	require.NoError(s, err)
	require.Equal(s, 1, n)
	s.promptly(func() time.Duration {
		began := time.Now()
		return s.finds("dead", began)
	})
	s.promptly(func() time.Duration {
		began := time.Now()
		testdb.Send(s, s.elsewhere, chanq.Message[string]{ID: leases[1].ID, Body: "cancelled"})
		return s.finds("cancelled", began)
	})
}

// claimsBeyond sends messages to a consumer that never polls until it has claimed one that was due more than beyond after due.
func claimsBeyond(w *world, q *chanq.Queue[string], c *chanq.Consumer[string], due time.Time) {
	w.Eventually("claims advance beyond it", func() bool {
		testdb.Send(w, q, testdb.Texts("another")...)
		l := testdb.Take(w, c, 1)[0]
		require.NoError(w, l.Ack())
		return l.DueAt.After(due.Add(beyond))
	})
}

func foundAtOnce(w *world) {
	q := w.Queue("work", alone)
	first := testdb.Send(w, q, testdb.Texts("a")...)[0]
	l := testdb.Lease(w, q, 1, time.Hour)[0]
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: time.Hour})
	claimsBeyond(w, q, c, l.DueAt)
	w.longPaused(c)
	require.NoError(w, l.Release())
	require.Equal(w, first, w.woken(c).ID)
}

func wakeFinds(w *world) {
	w.skipWithOneWriter()
	q := w.Queue("work", alone)
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: time.Hour})
	tx := w.begin(w.DB)
	defer tx.Rollback()
	w.sendTx(q, tx, testdb.Texts("late")...)
	testdb.Send(w, q, testdb.Texts("another")...)
	claimsBeyond(w, q, c, testdb.Take(w, c, 1)[0].DueAt)
	require.NoError(w, tx.Commit())
	q.Wake()
	require.Equal(w, "late", w.woken(c).Body)
}
