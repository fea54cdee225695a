package guarantees

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// One message kills every process that reads, decodes, handles or acks it. Only that message is dead-lettered.
var crashes = append([]test{
	{"G07_AMessageIsDueImmediatelyAfterItsFirstExpiredLease", firstCrash},
	{"G07_FromItsSecondExpiredLeaseOnAMessageIsDueLater", laterCrashes},
	{"G07_AMessageWhoseLeaseExpiredIsClaimedAlone", claimedByItself},
	{"G07_AfterACrashAllHandlersAreSoonBusyAgain", soonBusyAgain},
	{"G07_ClaimsWhoseAnswersAreLostAreNoFailedAttempts", lostClaims},
	{"G07_AMessageWhoseHandlersHangIsDeadLetteredAfterMaxCrashes", hangsToDeath},
	{"G07_AMessageSentDuringTheSearchForAnUnreadableOneIsDelivered", urgentMeanwhile},
	{"G07_AWaitForALockIsNoFailedAttempt", lockBlamesNone},
	{"G12_AMessageThatIsLockedWhileItIsReadDelaysItselfOnly", lockedWhileRead},
	{"G12_AnExpiredLeaseBehindALockedMessageIsFound", foundBehindLocked},
	{"G11_LargeBodiesAreReadAfterTheClaim", largeBodiesAfterwards},
	{"G11_ABodyAboveFourMiBIsReadAfterAClaimOfOneMessage", largeBodyAlone},
}, poisonTests()...)

func poisonTests() (tests []test) {
	for name, cfg := range map[string]chanq.Config{
		"G07_OnlyThePoisonMessageIsDeadLettered_in=": {}, "G07_OnlyThePoisonMessageOfAnOrderedQueueIsDeadLettered_in=": orderedConfig,
	} {
		idle, once := strings.Replace(name, "_in", "ThoughConsumersStopWhenIdle_in", 1), cfg
		once.MaxAttempts = 1
		for _, where := range []string{"reading", "decoding", "handler", "ack"} {
			tests = append(tests, test{name + where, func(w *world) { onePoison(w, where, once, false) }})
		}
		for _, where := range []string{"reading", "handler"} {
			tests = append(tests, test{idle + where, func(w *world) { onePoison(w, where, cfg, true) }})
		}
	}
	return tests
}

// isVariant reports a test of poisonTests, which takes half an hour on a real clock.
func isVariant(name string) bool { return strings.HasPrefix(name, "G07_OnlyThePoison") }

// mortal is the number of processes that a message kills with the default MaxCrashes.
const mortal = 8

// firstCrash: the message of a process that died is redelivered within a second after its lease has ended, at its old place.
func firstCrash(w *world) {
	for kind, cfg := range idleKinds {
		q := w.Queue(kind, cfg)
		testdb.Send(w, q, testdb.Texts("crashed")...)
		if q.Spec().Kind == chanq.KindOrdered {
			continue // its first crash is not counted: see G07_OnlyThePoisonMessageOfAnOrderedQueueIsDeadLettered
		}
		w.Hold(kind, 1, formerLease)
		testdb.Send(w, q, testdb.Texts("later")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease})
		w.ack(testdb.Take(w, c, 1)[0])
		began := time.Now()
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, "crashed", l.Body)
		require.Equal(w, 2, l.Attempt)
		w.soon(began, formerLease+time.Second)
		w.ack(l)
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// laterCrashes: one message has lost two leases in a row, and another one eight.
func laterCrashes(w *world) {
	q := w.Queue("work", chanq.Config{})
	twice := testdb.Send(w, q, testdb.Texts("twice")...)[0]
	eight := testdb.Send(w, q, testdb.Texts("eight")...)[0]
	w.Hold("work", 2, shortLease)
	w.Exec("UPDATE chanq_work SET lapses = 1, attempts = 2 WHERE id = " + w.sqlID(twice))
	w.Exec("UPDATE chanq_work SET lapses = 7, attempts = 8 WHERE id = " + w.sqlID(eight))
	testdb.Send(w, q, testdb.Texts("innocent")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	w.ack(testdb.Take(w, c, 1)[0])
	w.Eventually("it is dead", func() bool { return testdb.Get(w, q, eight).State == chanqadmin.StateDead })
	e := testdb.Get(w, q, eight)
	require.Equal(w, chanq.CauseKilled, e.Cause)
	require.Equal(w, 8, e.Attempts)
	require.Contains(w, e.LastError, "8 attempts; the last 8 leases expired without a settle")
	e = testdb.Get(w, q, twice)
	require.Contains(w, []chanqadmin.State{chanqadmin.StateScheduled, chanqadmin.StateLeased}, e.State)
	require.Less(w, time.Until(e.DueAt), time.Minute)
	if !w.Engine.Bubble {
		return
	}
	for waited := time.Duration(0); len(c.C()) == 0; waited += time.Second {
		require.Less(w, waited, time.Minute+2*time.Second)
		w.pass(time.Second)
	}
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, "twice", l.Body)
	require.Equal(w, 3, l.Attempt)
	w.ack(l)
}

// claimedByItself: a consumer holds one of the messages that a dead process held, until it has settled it.
func claimedByItself(w *world) {
	for kind, cfg := range idleKinds {
		q := w.Queue(kind, cfg)
		w.sendApart(q, numbers(5)...)
		w.Exec("UPDATE chanq_" + kind + " SET lapses = 1, attempts = 1")
		if q.Spec().Kind == chanq.KindOrdered {
			w.Exec("UPDATE chanq__slots SET old = 9000000000000000000")
		}
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute, PollEvery: 20 * time.Millisecond})
		l := testdb.Take(w, c, 1)[0]
		w.pass(3 * time.Second)
		require.Empty(w, c.C(), kind)
		require.Equal(w, 1, w.count("SELECT COUNT(*) FROM chanq_"+kind+" WHERE leased_by IS NOT NULL"), kind)
		for range 5 {
			w.ack(l)
			if !testdb.Empty(w, q) {
				l = testdb.Take(w, c, 1)[0]
			}
		}
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// soonBusyAgain: a process had a message in each of its handlers when it died. Jobs are long, and so are leases.
func soonBusyAgain(w *world) {
	if !w.Engine.Bubble {
		w.Skip("jobs take minutes")
	}
	w.Within(time.Hour)
	const handlers, job = 64, 5 * time.Minute
	for kind, cfg := range idleKinds {
		q := w.Queue(kind, cfg)
		w.sendApart(q, numbers(handlers)...)
		w.Exec("UPDATE chanq_" + kind + " SET lapses = 1, attempts = 1")
		if q.Spec().Kind == chanq.KindOrdered {
			w.Exec("UPDATE chanq__slots SET old = 9000000000000000000")
		}
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		var busy atomic.Int64
		go func() {
			_ = c.Handle(handlers, func(ctx context.Context, _ *chanq.Lease[string]) error {
				busy.Add(1)
				select {
				case <-time.After(job):
					return nil
				case <-ctx.Done(): // the test has failed
					return ctx.Err()
				}
			})
		}()
		w.pass(4 * time.Minute)
		require.EqualValues(w, handlers, busy.Load(), kind)
		w.pass(job)
		require.True(w, testdb.Empty(w, q))
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// foundBehindLocked: claims skip the locked message, and so does the search for expired leases.
func foundBehindLocked(w *world) {
	w.skipWithoutRowLocks()
	q := w.Queue("work", chanq.Config{})
	locked := testdb.Send(w, q, testdb.Texts("locked")...)[0]
	unlock := w.lock("work", locked)
	defer unlock()
	testdb.Send(w, q, testdb.Texts("crashed", "other")...)
	w.Hold("work", 2, 10*time.Second) // rescans find the locked message before these leases expire
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	testdb.Send(w, q, testdb.Texts("new")...)
	for _, body := range []string{"new", "crashed", "other"} {
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, body, l.Body)
		w.ack(l)
	}
}

// cutOff is a process that dies when the test chooses. From then on none of its operations reaches the database.
type cutOff struct {
	faults *faultdb.Connector
	db     *sql.DB
	kills  func(faultdb.Op) bool // reports an operation that kills the process

	mu      sync.Mutex
	dead    bool
	ended   chan struct{}
	release chan struct{} // ends the goroutines that are left
}

var errCutOff = errors.New("the process is dead")

func (w *world) process(kills func(faultdb.Op) bool) *cutOff {
	p := &cutOff{kills: kills, ended: make(chan struct{}), release: make(chan struct{})}
	p.faults, p.db = w.Connect()
	p.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if kills(op) {
			p.die()
		}
		if p.isDead() {
			return faultdb.Cut(errCutOff)
		}
		return faultdb.Fault{}
	})
	return p
}

func (p *cutOff) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		p.dead = true
		close(p.ended)
	}
}

func (p *cutOff) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// dieHere is die for a goroutine of the process, which it also blocks.
func (p *cutOff) dieHere() {
	p.die()
	<-p.release
}

// poisonText is the text of the message that kills its process.
const poisonText = "poison"

// deadlyCodec is JSON, except that decoding one body kills the process.
type deadlyCodec struct{ p *cutOff }

func (c deadlyCodec) Encode(body any) ([]byte, error) { return json.Marshal(body) }
func (c deadlyCodec) Decode(data []byte, body any) error {
	if strings.Contains(string(data), poisonText) {
		c.p.dieHere()
	}
	return json.Unmarshal(data, body)
}

func onePoison(w *world, where string, cfg chanq.Config, stopWhenIdle bool) {
	if stopWhenIdle && where == "reading" {
		testdb.Soak(w)
	}
	w.Within(10 * time.Hour)
	const neighbours = 30
	q := testdb.QueueOf[note](w, "work", cfg)
	st, most := w.Statements("work"), mortal
	ms := make([]chanq.Message[note], neighbours+1)
	for i := range ms {
		ms[i].Body.Text = fmt.Sprint(i)
	}
	if cfg.Kind == chanq.KindOrdered { // some messages wait behind the poison message
		st, most = w.orderedStatements(), mortal+1
		for i := range ms {
			ms[i].Key = fmt.Sprint("key", i%5)
		}
	}
	const place = 7
	ms[place].Body.Text = poisonText
	if where == "reading" { // larger than the bodies that a claim returns
		ms[place].Body.Text += strings.Repeat("x", 1<<20-100)
		for i := range ms {
			if i != place {
				ms[i].Body.Text += "."
			}
		}
	}
	id := testdb.Send(w, q, ms...)[place]
	var mu sync.Mutex
	seen := map[chanq.ID]bool{}
	deaths := 0
	for !testdb.Empty(w, q) {
		p := w.process(func(op faultdb.Op) bool {
			fetches := reads(op, st) || testdb.Runs(op, st.Fetch([16]byte{}, nil, nil))
			return where == "reading" && fetches && names(op, id) || where == "ack" && acks(op, st) && names(op, id)
		})
		cfg := cfg
		if where == "decoding" {
			cfg.Codec = deadlyCodec{p}
		}
		own := testdb.OpenOn[note](w, p.db, "work", cfg)
		// Claims of many messages have less room for each body.
		c, err := own.Consume(context.Background(), chanq.ConsumerConfig{PrefetchBytes: 512 << 10, StopWhenIdle: stopWhenIdle})
		require.NoError(w, err)
		handled := make(chan struct{})
		go func() {
			defer close(handled)
			_ = c.Handle(4, func(_ context.Context, l *chanq.Lease[note]) error {
				if where == "handler" && l.ID == id {
					p.dieHere()
				}
				mu.Lock()
				defer mu.Unlock()
				seen[l.ID] = true
				return nil
			})
		}()
		for alive := true; alive && !testdb.Empty(w, q); {
			select {
			case <-p.ended:
				alive = false
			case <-c.Done(): // another consumer finds the message when it is due
				alive = p.isDead()
				w.pass(time.Minute)
			case <-time.After(time.Minute): // the message is due later each time
			}
		}
		if p.isDead() {
			deaths++
			require.LessOrEqual(w, deaths, most, "it kills one process after another")
		}
		p.die()
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Shutdown(gone)
		close(p.release)
		<-handled
		_ = c.Shutdown(w.Soon())
		w.Exec("UPDATE chanq_work SET lease_until = due_at WHERE lease_until > due_at") // end the remaining leases
		w.Exec("DELETE FROM chanq__consumers")                                          // and delete the dead consumer
	}
	require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDead, e.State)
	require.Contains(w, e.LastError, "the last 8 leases expired without a settle")
	require.Equal(w, most, deaths)
	delete(seen, id) // counted if the process dies in the ack
	require.Len(w, seen, neighbours)
}

// lostClaims loses the responses to all claims, more than MaxAttempts times.
func lostClaims(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}})
	sent := testdb.Send(w, q, testdb.Texts(numbers(16)...)...)
	st := w.Statements("work")
	lost := faultdb.Cut(w.Failure(sqlbatch.Unknown)).Applied()
	var mu sync.Mutex
	claimed := 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		if claims(op, st) && claimed < 8 {
			claimed++
			return lost
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, PollEvery: 20 * time.Millisecond})
	for range sent {
		require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
	}
	require.NoError(w, c.Flush(w.Soon()))
	require.Zero(w, testdb.Counted(w, q))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(w, 8, claimed)
}

// hangsToDeath has a handler hang beyond MaxExtend at every delivery.
func hangsToDeath(w *world) {
	w.Within(time.Hour)
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		q := w.Queue(kind.String(), chanq.Config{Spec: chanq.Spec{Kind: kind}, MaxCrashes: 2})
		id := testdb.Send(w, q, testdb.Texts("hangs")...)[0]
		c, err := q.Consume(context.Background(), chanq.ConsumerConfig{LeaseFor: 10 * time.Second, MaxExtend: 30 * time.Second})
		require.NoError(w, err)
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Handle(10, func(context.Context, *chanq.Lease[string]) error {
				<-end
				return nil
			})
		}()
		w.pass(5 * time.Minute)
		close(end)
		require.NoError(w, c.Shutdown(w.Soon()))
		<-ended
		e := testdb.Get(w, q, id)
		require.Equal(w, chanqadmin.StateDead, e.State, kind)
		require.Equal(w, chanq.CauseKilled, e.Cause)
		require.Equal(w, 2, e.Attempts, kind)
	}
}

// urgentMeanwhile delivers a message that precedes an unreadable one and is sent while a consumer searches for the unreadable one.
func urgentMeanwhile(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
	bad := testdb.Send(w, q, testdb.Texts("unreadable")...)[0]
	st := w.Statements("work")
	fails := faultdb.Fail(w.Failure(sqlbatch.BadRow))
	one := make(chan struct{})
	var once sync.Once
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case claims(op, st) && !isBare(op):
			if asked(op) == 1 {
				once.Do(func() { close(one) })
			}
			return fails
		case reads(op, st) && names(op, bad):
			return fails
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	<-one
	_, db := w.Connect()
	testdb.Send(w, testdb.OpenOn[string](w, db, "work", chanq.Config{}), chanq.Message[string]{Body: "urgent", Priority: chanq.PriorityUrgent})
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, "urgent", l.Body)
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
	w.Eventually("the unreadable one is dead", func() bool { return testdb.Get(w, q, bad).State == chanqadmin.StateDead })
	require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
}

// lockBlamesNone: while a lock on the table blocks reads, no message is blamed, whatever other errors the database returns.
func lockBlamesNone(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}, StatementTimeout: slowness * 500 * time.Millisecond})
	id := testdb.Send(w, q, testdb.Texts("innocent")...)[0]
	st := w.Statements("work")
	var mu sync.Mutex
	read := 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case claims(op, st) && !isBare(op), testdb.Runs(op, st.Look(nil)):
			return faultdb.Hang()
		case reads(op, st):
			read++
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 1, LeaseFor: time.Minute})
	w.Eventually("reads have failed several times", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return read > 3
	})
	require.Equal(w, chanqadmin.StateLeased, testdb.Get(w, q, id).State)
	w.Faults.Inject(nil)
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, 1, l.Attempt)
	require.Empty(w, testdb.Get(w, q, id).LastError)
}

// lockedWhileRead: each read of a large message waits for a lock and fails.
func lockedWhileRead(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
	ids := testdb.Send(w, q, testdb.Texts(strings.Repeat("x", 600<<10), "small")...)
	st, fails := w.Statements("work"), faultdb.Fail(w.Failure(sqlbatch.RolledBack))
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if reads(op, st) && names(op, ids[0]) {
			return fails
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PrefetchBytes: 512 << 10, Backoff: func(*chanq.Delivery, error) time.Duration { return time.Second }})
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, ids[1], l.ID)
	require.NoError(w, l.Ack())
	w.Eventually("the large message is released with a delay", func() bool { return testdb.Get(w, q, ids[0]).State == chanqadmin.StateScheduled })
	e := testdb.Get(w, q, ids[0])
	require.Zero(w, e.Attempts)
	require.Empty(w, e.LastError)
	w.Faults.Inject(nil)
	l = testdb.Take(w, c, 1)[0]
	require.Equal(w, ids[0], l.ID)
	require.Equal(w, 1, l.Attempt)
}

// largeBodiesAfterwards: claims do not return large bodies, and the consumer has at most PrefetchBytes of them in memory.
func largeBodiesAfterwards(w *world) {
	const size = 600 << 10
	q := w.Queue("work", chanq.Config{})
	ms := testdb.Texts(append(numbers(8), make([]string, 4)...)...)
	for i := range ms {
		if i%3 == 2 {
			ms[i].Body = strings.Repeat("x", size)
		}
	}
	testdb.Send(w, q, ms...)
	st := w.Statements("work")
	var mu sync.Mutex
	read := 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		if reads(op, st) {
			read++
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PrefetchBytes: 2 * size})
	for _, m := range ms {
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, len(m.Body), len(l.Body), "in order")
		require.Equal(w, 1, l.Attempt)
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	mu.Lock()
	defer mu.Unlock()
	require.Positive(w, read)
	require.LessOrEqual(w, read, 4)
}

// largeBodyAlone uses claims of one message, which return bodies of up to 4 MiB.
func largeBodyAlone(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 8 << 20}})
	ids := testdb.Send(w, q, testdb.Texts(strings.Repeat("x", 3<<20), strings.Repeat("x", 5<<20))...)
	st := w.Statements("work")
	var small, large atomic.Int64
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case !reads(op, st):
		case names(op, ids[0]):
			small.Add(1)
		case names(op, ids[1]):
			large.Add(1)
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 1, PrefetchBytes: 32 << 20})
	for range ids {
		w.ack(testdb.Take(w, c, 1)[0])
	}
	require.Zero(w, small.Load())
	require.EqualValues(w, 1, large.Load())
}
