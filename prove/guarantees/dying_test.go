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
var dying = append([]test{
	{"G07_ClaimsWhoseAnswersAreLostBlameNoMessage", lostClaims},
	{"G07_AMarkWhoseAnswerIsLostIsNoTrial", lostMarks},
	{"G12_AMarkWhoseOutcomeIsNeverKnownDelaysItsMessageOnly", unknownMarks},
	{"G07_OnlyALastTrialDeadLetters", onlyLastTrial},
	{"G07_TheLastTrialIsMadeWithNothingElseHeld", lastTrialAlone},
	{"G07_ALastTrialDoesNotWaitForAHandlerThatHangs", trialDespiteHang},
	{"G07_StopReleasesASuspectThatIsReserved", stopWhileReserved},
	{"G07_AProcessTriesOneSuspectAtATime", oneTrialOfProcess},
	{"G07_TheQueuesOfAProcessTryOneSuspectAtATime", oneTrialOfQueues},
	{"G07_AnAckInATransactionEndsATrialWhenItIsCommitted", trialInTransaction},
	{"G07_ManySuspectsAreSettledOneSoonAfterAnother", manySuspects},
	{"G07_AStoppedConsumerDoesNotWaitForTheCommitOfASuspect", trialOfStopped},
	{"G07_ASettleAfterAnAckInATransactionEndsTheTrialOfAStoppedConsumer", trialSettledLate},
	{"G07_ATrialThatIsRevokedEndsWhenItsMessageIsReleased", trialRevoked},
	{"G07_ALastTrialWaitsForHandlersThatHaveSettledTheirMessages", lastTrialBehindHandler},
	{"G07_AHandlerThatHangsIsDeadLetteredAfterMaxCrashes", hangsToDeath},
	{"G07_OfSuspectsTheOneOfTheHighestPriorityIsTriedFirst", suspectsByPriority},
	{"G07_ASuspectThatIsLockedWhileItIsReadStaysASuspect", lockedSuspect},
	{"G07_AReleaseEndsNoSuspicion", releasedSuspect},
	{"G07_ASuspectComesBehindAReadyMessageThatPrecedesIt", suspectBehind},
	{"G07_AMessageThatIsSentMeanwhileIsNotBlamed", urgentMeanwhile},
	{"G07_AWaitForALockBlamesNoMessage", lockBlamesNone},
	{"G12_AMessageThatIsLockedWhileItIsReadDelaysItselfOnly", lockedWhileRead},
	{"G12_ClaimsShrinkWhateverTheFailure", shrinkingForAny},
	{"G11_LargeBodiesAreReadAfterTheClaim", largeBodiesAfterwards},
	{"G11_ABodyAboveFourMiBIsReadAfterAClaimOfOneMessage", largeBodyAlone},
}, deaths()...)

func deaths() (tests []test) {
	for _, where := range []string{"reading", "decoding", "handler", "ack"} {
		for _, attempts := range []int{1, 2, 3, 20} {
			tests = append(tests, test{
				fmt.Sprintf("G07_OnlyTheGuiltyMessageDies_in=%s_attempts=%d", where, attempts),
				func(w *world) { oneGuilty(w, where, chanq.Config{Spec: chanq.Spec{MaxAttempts: attempts}}, false) },
			})
		}
		tests = append(tests, test{
			"G07_OnlyTheGuiltyMessageDiesThoughConsumersStopWhenIdle_in=" + where,
			func(w *world) { oneGuilty(w, where, chanq.Config{}, true) },
		})
		tests = append(tests, test{
			"G07_OnlyTheGuiltyMessageOfAnOrderedQueueDies_in=" + where,
			func(w *world) {
				oneGuilty(w, where, chanq.Config{Spec: chanq.Spec{MaxAttempts: 1, Kind: chanq.KindOrdered, Slots: 4}}, false)
			},
		}, test{
			"G07_OnlyTheGuiltyMessageOfAnOrderedQueueDiesThoughConsumersStopWhenIdle_in=" + where,
			func(w *world) {
				oneGuilty(w, where, chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}, true)
			},
		})
	}
	return tests
}

// isVariant reports a test of deaths that takes more than 20 s on a real clock. One test per kind of queue is excepted and runs there.
func isVariant(name string) bool {
	switch name {
	case "G07_OnlyTheGuiltyMessageDies_in=reading_attempts=20", "G07_OnlyTheGuiltyMessageOfAnOrderedQueueDies_in=reading":
		return false
	}
	return strings.HasPrefix(name, "G07_OnlyTheGuilty")
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

// guilty is the text of the message that kills its process.
const guilty = "guilty"

// deadlyCodec is JSON, except that decoding one body kills the process.
type deadlyCodec struct{ p *cutOff }

func (c deadlyCodec) Encode(body any) ([]byte, error) { return json.Marshal(body) }
func (c deadlyCodec) Decode(data []byte, body any) error {
	if strings.Contains(string(data), guilty) {
		c.p.dieHere()
	}
	return json.Unmarshal(data, body)
}

func oneGuilty(w *world, where string, cfg chanq.Config, stopWhenIdle bool) {
	const neighbours = 30
	q := testdb.QueueOf[note](w, "work", cfg)
	st, most := w.Statements("work"), mortal
	ms := make([]chanq.Message[note], neighbours+1)
	for i := range ms {
		ms[i].Body.Text = fmt.Sprint(i)
	}
	if cfg.Kind == chanq.KindOrdered { // some messages wait behind the guilty one
		st, most = w.orderedStatements(), mortal+1
		for i := range ms {
			ms[i].Key = fmt.Sprint("key", i%5)
		}
	}
	const place = 7
	ms[place].Body.Text = guilty
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
		c, err := own.Consume(context.Background(), chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond, PrefetchBytes: 1 << 20, StopWhenIdle: stopWhenIdle})
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
			case <-c.Done(): // another consumer might find more after the leases have ended
				alive = p.isDead()
			case <-time.After(20 * time.Millisecond):
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
	require.Contains(w, e.LastError, "leases expired without a settle, 3 of them while")
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
	claimed, marked := 0, 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		if claims(op, st) && claimed < 8 {
			claimed++
			return lost
		}
		if marks(op, st) && marked < 8 {
			marked++
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
	require.Equal(w, 8, marked)
}

// trialsOf makes a message a suspect whose lease has expired in n trials.
func (w *world) trialsOf(q *chanq.Queue[string], id chanq.ID, n int) {
	w.Helper()
	lapse(w, q, 1, 2)
	for range n {
		w.Eventually("its lease has expired", func() bool {
			st := w.Statements(q.Name())
			var fence int64
			rows, err := testdb.Rows(w.Soon(), w.DB, st.Look([][16]byte{id}))
			require.NoError(w, err)
			fence = rows[0][1].(int64)
			rows, err = testdb.Rows(w.Soon(), w.DB, st.Mark(sqlbatch.MarkParams{
				Item: sqlbatch.Item{ID: id, Fence: fence}, Lease: 100 * time.Millisecond, Consumer: chanq.NewID(), Salt: 1, Alone: sqlbatch.OnlySuspect,
			}))
			require.NoError(w, err)
			return len(rows) == 1
		})
	}
}

// lostMarks loses the response to the mark of a last trial. The consumer is alive, so the message is not dead-lettered.
func lostMarks(w *world) {
	q := w.Queue("work", chanq.Config{MaxCrashes: 2})
	id := testdb.Send(w, q, testdb.Texts("suspect")...)[0]
	w.trialsOf(q, id, 1)
	st := w.Statements("work")
	lost := faultdb.Cut(w.Failure(sqlbatch.Unknown)).Applied()
	var mu sync.Mutex
	marked := 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !marks(op, st) {
			return faultdb.Fault{}
		}
		if marked++; marked > 6 {
			return faultdb.Fault{}
		}
		return lost
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease, PollEvery: 20 * time.Millisecond})
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, 4, l.Attempt, "a mark whose response is lost counts no attempt")
	require.NoError(w, l.Ack())
	require.NoError(w, c.Flush(w.Soon()))
	require.Zero(w, testdb.Counted(w, q))
}

// unknownMarks: every statement works except the mark of one suspect.
func unknownMarks(w *world) {
	q := w.Queue("work", chanq.Config{})
	suspect := testdb.Send(w, q, testdb.Texts("suspect")...)[0]
	w.Exec("UPDATE chanq_work SET lapses = 2, attempts = 2 WHERE attempts = 0")
	st, cut := w.Statements("work"), faultdb.Cut(w.Failure(sqlbatch.Unknown))
	struck := make(chan struct{})
	strike := sync.OnceFunc(func() { close(struck) })
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if marks(op, st) {
			strike()
			return cut
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.within("it is marked", struck)
	innocent := testdb.Send(w, q, testdb.Texts("innocent")...)[0]
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, innocent, l.ID)
	require.NoError(w, l.Ack())
	w.Faults.Inject(nil)
	l = testdb.Take(w, c, 1)[0]
	require.Equal(w, suspect, l.ID)
	require.Equal(w, 3, l.Attempt)
	require.NoError(w, l.Ack())
}

// onlyLastTrial: crashes while the consumer holds other messages do not dead-letter a message, however many there are.
func onlyLastTrial(w *world) {
	q := w.Queue("work", chanq.Config{MaxCrashes: 2})
	id := testdb.Send(w, q, testdb.Texts("suspect")...)[0]
	w.trialsOf(q, id, 3)
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.Equal(w, 6, l.Attempt)
	require.NoError(w, l.Ack())
	require.Zero(w, testdb.Counted(w, q))
}

// reserved returns a consumer that holds one message and has reserved a suspect with one trial left.
func (w *world) reserved(q *chanq.Queue[string]) (c *chanq.Consumer[string], held *chanq.Lease[string], suspect chanq.ID) {
	w.Helper()
	testdb.Send(w, q, testdb.Texts("held")...)
	c = testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	held = testdb.Take(w, c, 1)[0]
	require.NoError(w, testdb.Pause(w.Soon(), q))
	suspect = testdb.Send(w, q, testdb.Texts("suspect")...)[0]
	w.Exec("UPDATE chanq_work SET lapses = 2, crashes = 1, attempts = 3 WHERE attempts = 0")
	require.NoError(w, testdb.Admin(q).Resume(w.Soon()))
	w.Eventually("the suspect is reserved", func() bool { return testdb.Get(w, q, suspect).State == chanqadmin.StateLeased })
	return c, held, suspect
}

func lastTrialAlone(w *world) {
	q := w.Queue("work", chanq.Config{MaxCrashes: 2})
	c, held, _ := w.reserved(q)
	testdb.Send(w, q, testdb.Texts("later")...)
	w.pass(2 * shortLease)
	require.Equal(w, chanqadmin.Stats{Ready: 1, Leased: 2}, testdb.Counted(w, q), "nothing else is claimed")
	require.Empty(w, c.C(), "the suspect is not delivered while a message is held")
	require.NoError(w, held.Ack())
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, "suspect", l.Body)
	require.Equal(w, 4, l.Attempt)
	w.pass(2 * shortLease)
	require.Equal(w, chanqadmin.Stats{Ready: 1, Leased: 1}, testdb.Counted(w, q), "nothing is claimed during the trial")
	require.NoError(w, l.Ack())
	require.Equal(w, "later", testdb.Take(w, c, 1)[0].Body)
}

func stopWhileReserved(w *world) {
	q := w.Queue("work", chanq.Config{MaxCrashes: 2})
	c, held, suspect := w.reserved(q)
	c.Stop()
	require.NoError(w, held.Ack())
	require.NoError(w, c.Shutdown(w.Soon()))
	e := testdb.Get(w, q, suspect)
	require.Equal(w, chanqadmin.StateReady, e.State)
	require.Equal(w, 3, e.Attempts)
}

// trialDespiteHang: the lease of the hanging handler expired long ago.
func trialDespiteHang(w *world) {
	q := w.Queue("work", chanq.Config{MaxCrashes: 2})
	testdb.Send(w, q, testdb.Texts("hangs")...)
	c, err := q.Consume(context.Background(), chanq.ConsumerConfig{LeaseFor: steadyLease, MaxExtend: steadyLease, PollEvery: 20 * time.Millisecond})
	require.NoError(w, err)
	hangs, handled, end := make(chan struct{}), make(chan string, 4), make(chan struct{})
	w.Cleanup(func() { _ = c.Shutdown(w.Soon()) })
	var once sync.Once
	go func() { // ends with the consumer
		_ = c.Handle(4, func(_ context.Context, l *chanq.Lease[string]) error {
			first := false
			once.Do(func() { first = true })
			if first {
				close(hangs)
				<-end
			} else {
				handled <- l.Body
			}
			return nil
		})
	}()
	<-hangs
	next := func() string {
		w.Helper()
		select {
		case body := <-handled:
			return body
		case <-w.Soon().Done():
			return ""
		}
	}
	defer close(end)
	require.Equal(w, "hangs", next(), "redelivered after its lease has expired")
	w.Eventually("it is acked", func() bool { return testdb.Empty(w, q) })
	require.NoError(w, testdb.Pause(w.Soon(), q))
	testdb.Send(w, q, testdb.Texts("suspect")...)
	w.Exec("UPDATE chanq_work SET lapses = 2, crashes = 1, attempts = 3")
	require.NoError(w, testdb.Admin(q).Resume(w.Soon()))
	require.Equal(w, "suspect", next())
	w.Eventually("it is acked", func() bool { return testdb.Empty(w, q) })
}

// oneTrialOfProcess also covers a consumer that has stopped while it holds a suspect.
func oneTrialOfProcess(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("s0", "s1")...)
	w.Exec("UPDATE chanq_work SET lapses = 2, attempts = 2")
	first := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	l := testdb.Take(w, first, 1)[0]
	require.Equal(w, "s0", l.Body)
	first.Stop()
	second := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	testdb.Send(w, q, testdb.Texts("beside")...)
	beside := testdb.Take(w, second, 1)[0]
	require.Equal(w, "beside", beside.Body)
	looks := second.Stats().Looks
	w.Eventually("the second consumer has polled", func() bool { return second.Stats().Looks > looks+10 })
	require.Equal(w, chanqadmin.Stats{Ready: 1, Leased: 2}, testdb.Counted(w, q))
	require.NoError(w, l.Ack())
	require.Equal(w, "s1", testdb.Take(w, second, 1)[0].Body)
}

// oneTrialOfQueues: the death of a process does not count against the suspect of another queue.
func oneTrialOfQueues(w *world) {
	names := []string{"work", "other", "third"}
	var consumers []*chanq.Consumer[string]
	for i, name := range names {
		kind := chanq.KindPlain
		if i > 0 {
			kind = chanq.KindOrdered
		}
		q := w.Queue(name, chanq.Config{Spec: chanq.Spec{Kind: kind}})
		testdb.Send(w, q, testdb.Texts("suspect")...)
		w.Exec("UPDATE chanq_" + name + " SET lapses = 2, attempts = 2")
		consumers = append(consumers, testdb.Start(w, q, chanq.ConsumerConfig{}))
	}
	received := func() (all []*chanq.Lease[string]) {
		w.pass(20 * time.Second)
		for _, c := range consumers {
			select {
			case l := <-c.C():
				all = append(all, l)
			default:
			}
		}
		return all
	}
	for range consumers {
		first := received()
		require.Len(w, first, 1)
		require.Empty(w, received(), "a second suspect is delivered while the first is handled")
		w.ack(first[0])
	}
}

// trialInTransaction: if the transaction of an ack is rolled back, a death of the process still counts against the suspect.
func trialInTransaction(w *world) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		var q *chanq.Queue[string]
		suspectOf := func(name string) *chanq.Consumer[string] {
			w.Helper()
			q = w.Queue(kind.String()+name, chanq.Config{Spec: chanq.Spec{Kind: kind}})
			testdb.Send(w, q, testdb.Texts("suspect")...)
			w.Exec("UPDATE chanq_" + q.Name() + " SET lapses = 2, attempts = 2")
			return testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 30 * time.Second, PollEvery: time.Second})
		}
		ackTx := func(l *chanq.Lease[string]) *sql.Tx {
			w.Helper()
			tx, err := w.DB.BeginTx(w.Soon(), nil)
			require.NoError(w, err)
			require.NoError(w, l.AckTx(w.Soon(), tx))
			return tx
		}
		first := suspectOf("first")
		l := testdb.Take(w, first, 1)[0]
		require.NoError(w, testdb.Pause(w.Soon(), q)) // otherwise it tries its suspect again
		second := suspectOf("second")
		require.NoError(w, ackTx(l).Rollback())
		w.pass(15 * time.Second)
		require.Empty(w, second.C(), "the first suspect is still leased")
		l = testdb.Take(w, second, 1)[0]
		require.NoError(w, first.Shutdown(w.Soon()))

		third := suspectOf("third")
		require.NoError(w, ackTx(l).Commit())
		began := time.Now()
		w.ack(testdb.Take(w, third, 1)[0])
		require.Less(w, time.Since(began), 15*time.Second)
		require.NoError(w, second.Shutdown(w.Soon()))
		require.NoError(w, third.Shutdown(w.Soon()))
	}
}

// twoSuspects sends a suspect to each of two queues, and takes the one of the first queue.
func (w *world) twoSuspects() (first, second *chanq.Consumer[string], l *chanq.Lease[string]) {
	w.Helper()
	for _, name := range []string{"work", "other"} {
		testdb.Send(w, w.Queue(name, chanq.Config{}), testdb.Texts("suspect")...)
		w.Exec("UPDATE chanq_" + name + " SET lapses = 2, attempts = 2")
	}
	open := func(name string) *chanq.Consumer[string] {
		return testdb.Start(w, testdb.OpenOn[string](w, w.DB, name, chanq.Config{}), chanq.ConsumerConfig{LeaseFor: 30 * time.Second, PollEvery: 20 * time.Millisecond})
	}
	first = open("work")
	l = testdb.Take(w, first, 1)[0]
	second = open("other")
	w.pass(3 * time.Second)
	require.Empty(w, second.C())
	return first, second, l
}

// manySuspects: handlers of all kinds, and a reader, settle 20 suspects while nothing else happens.
func manySuspects(w *world) {
	inTx := func(l *chanq.Lease[string], chanqs bool) error {
		if chanqs {
			return chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, tx) })
		}
		tx, err := w.DB.BeginTx(w.Soon(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := l.AckTx(w.Soon(), tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	ways := map[string]func(l *chanq.Lease[string]) error{
		"nil":   func(*chanq.Lease[string]) error { return nil },
		"ack":   (*chanq.Lease[string]).Ack,
		"nack":  func(*chanq.Lease[string]) error { return errors.New("no") },
		"own":   func(l *chanq.Lease[string]) error { return inTx(l, false) },
		"chanq": func(l *chanq.Lease[string]) error { return inTx(l, true) },
	}
	const n = 20
	for kind, cfg := range idleKinds {
		for how, way := range ways {
			for _, reader := range []bool{false, true} {
				if !w.Engine.Bubble && how != "own" {
					continue
				}
				q := w.Queue(fmt.Sprintf("%s_%s_%v", kind, how, reader), cfg)
				testdb.Send(w, q, testdb.Texts(numbers(n)...)...)
				w.Exec("UPDATE chanq_" + q.Name() + " SET lapses = 2, attempts = 2")
				c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: later})
				began, handled := time.Now(), make(chan struct{}, n)
				go func() {
					if !reader {
						_ = c.Handle(4, func(_ context.Context, l *chanq.Lease[string]) error {
							defer func() { handled <- struct{}{} }()
							return way(l)
						})
						return
					}
					for l := range c.C() {
						if err := way(l); err != nil || how == "nil" {
							_ = l.Settle(err)
						}
						handled <- struct{}{}
					}
				}()
				for range n {
					testdb.Receive(w, handled, "a suspect is handled")
				}
				w.soon(began, 2*time.Second)
				require.NoError(w, c.Shutdown(w.Soon()))
			}
		}
	}
}

// trialOfStopped: another handler still runs, so the consumer has not ended.
func trialOfStopped(w *world) {
	w.skipWithoutRowLocks() // the open transaction would block the second consumer
	first, second, l := w.twoSuspects()
	testdb.Send(w, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}), testdb.Texts("kept")...)
	kept := testdb.Take(w, first, 1)[0]
	tx, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(w, err)
	require.NoError(w, l.AckTx(w.Soon(), tx))
	began := time.Now()
	first.Stop()
	w.ack(testdb.Take(w, second, 1)[0])
	w.soon(began, 15*time.Second)
	require.NoError(w, tx.Commit())
	w.ack(kept)
}

// trialSettledLate: another message keeps the stopped consumer from its end.
func trialSettledLate(w *world) {
	for kind, cfg := range idleKinds {
		suspectOf := func(name string) (*chanq.Queue[string], *chanq.Consumer[string]) {
			q := w.Queue(kind+name, cfg)
			testdb.Send(w, q, testdb.Texts("suspect")...)
			w.Exec("UPDATE chanq_" + q.Name() + " SET lapses = 2, attempts = 2")
			return q, testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 30 * time.Second, PollEvery: time.Second})
		}
		q, first := suspectOf("first")
		l := testdb.Take(w, first, 1)[0]
		testdb.Send(w, q, testdb.Texts("kept")...)
		kept := testdb.Take(w, first, 1)[0]
		first.Stop()
		tx, err := w.DB.BeginTx(w.Soon(), nil)
		require.NoError(w, err)
		require.NoError(w, l.AckTx(w.Soon(), tx))
		require.NoError(w, tx.Commit())
		require.NoError(w, l.Nack(errors.New("too late")))
		require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrSettled)
		began := time.Now()
		_, second := suspectOf("second")
		w.ack(testdb.Take(w, second, 1)[0])
		w.soon(began, 15*time.Second)
		w.ack(kept)
		require.NoError(w, first.Shutdown(w.Soon()))
		require.NoError(w, second.Shutdown(w.Soon()))
	}
}

// trialRevoked holds the release of a suspect whose handler exceeds the time to drain.
func trialRevoked(w *world) {
	first, second, _ := w.twoSuspects()
	st, gate := w.Statements("work"), make(chan struct{})
	var held atomic.Bool
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, st.Release(nil)) || testdb.Runs(op, st.SkipLocked().Release(nil)) {
			held.Store(true)
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- first.Shutdown(gone) }()
	w.Eventually("the message is being released", held.Load)
	w.pass(3 * time.Second)
	require.Empty(w, second.C(), "the first trial has not ended in the database")
	close(gate)
	<-ended
	w.ack(testdb.Take(w, second, 1)[0])
}

// lastTrialBehindHandler: a handler that has acked its message might still kill the process.
func lastTrialBehindHandler(w *world) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		q := w.Queue(kind.String(), chanq.Config{Spec: chanq.Spec{Kind: kind}, MaxCrashes: 2})
		testdb.Send(w, q, testdb.Texts("acked")...)
		c, err := q.Consume(context.Background(), chanq.ConsumerConfig{})
		require.NoError(w, err)
		running, tried, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Handle(4, func(_ context.Context, l *chanq.Lease[string]) error {
				if l.Body == "suspect" {
					close(tried)
					return nil
				}
				_ = l.Ack()
				close(running)
				<-end
				return nil
			})
		}()
		stop := sync.OnceFunc(func() { close(end) })
		defer func() {
			stop()
			_ = c.Shutdown(w.Soon())
			<-ended
		}()
		<-running
		require.NoError(w, testdb.Pause(w.Soon(), q))
		w.pass(15 * time.Second) // a consumer reads the pause at its heartbeat
		testdb.Send(w, q, testdb.Texts("suspect")...)
		w.Exec("UPDATE chanq_" + q.Name() + " SET lapses = 3, crashes = 1, attempts = 3")
		require.NoError(w, testdb.Admin(q).Resume(w.Soon()))
		w.pass(20 * time.Second)
		select {
		case <-tried:
			require.Fail(w, "the last trial ran with another handler", kind)
		default:
		}
		stop()
		<-tried
	}
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
		require.Equal(w, 4, e.Attempts, kind)
	}
}

// suspectsByPriority also covers a suspect that is dead-lettered.
func suspectsByPriority(w *world) {
	q := w.Queue("work", chanq.Config{MaxCrashes: 3})
	dead := testdb.Send(w, q, chanq.Message[string]{Body: "dead", Priority: chanq.PriorityUrgent})[0]
	w.Exec("UPDATE chanq_work SET lapses = 5, attempts = 5, crashes = 3, alone = 2")
	testdb.Send(w, q, chanq.Message[string]{Body: "high", Priority: chanq.PriorityHigh}, chanq.Message[string]{Body: "urgent", Priority: chanq.PriorityUrgent})
	w.Exec("UPDATE chanq_work SET lapses = 2, attempts = 2 WHERE attempts = 0")
	testdb.Send(w, q, testdb.Texts("ready")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	urgent := testdb.Take(w, c, 1)[0]
	require.Equal(w, "urgent", urgent.Body)
	ready := testdb.Take(w, c, 1)[0]
	require.Equal(w, "ready", ready.Body)
	require.NoError(w, urgent.Ack())
	require.Equal(w, "high", testdb.Take(w, c, 1)[0].Body)
	w.Eventually("the first one is dead", func() bool { return testdb.Get(w, q, dead).State == chanqadmin.StateDead })
}

// lockedSuspect: reads of a suspect wait for a lock and fail.
func lockedSuspect(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("suspect")...)
	w.Exec("UPDATE chanq_work SET lapses = 2, attempts = 2")
	st, fails := w.Statements("work"), faultdb.Fail(w.Failure(sqlbatch.RolledBack))
	var mu sync.Mutex
	read := 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !reads(op, st) {
			return faultdb.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		if read++; read > 6 {
			return faultdb.Fault{}
		}
		return fails
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond, Backoff: func(*chanq.Delivery, error) time.Duration { return time.Millisecond }})
	require.Equal(w, 3, testdb.Take(w, c, 1)[0].Attempt, "the earlier attempts, whose leases expired, still count")
}

func suspectBehind(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("ready")...)
	id := testdb.Send(w, q, testdb.Texts("suspect")...)[0]
	w.Exec("UPDATE chanq_work SET lapses = 2, attempts = 2 WHERE id = " + w.sqlID(id))
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	require.Equal(w, []string{"ready", "suspect"}, testdb.Bodies(testdb.Take(w, c, 2)))
}

// releasedSuspect: a release is no evidence about a message, as if the message had not been claimed.
func releasedSuspect(w *world) {
	for name, cfg := range idleKinds {
		q := w.Queue(name, cfg)
		ms := testdb.Texts("a", "b")
		for i := range ms {
			if q.Spec().Kind == chanq.KindOrdered {
				ms[i].Key = ms[i].Body
			}
		}
		testdb.Send(w, q, ms...)
		w.Exec("UPDATE chanq_" + name + " SET lapses = 2, attempts = 2")
		c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
		for range 2 {
			l := testdb.Take(w, c, 1)[0]
			require.Equal(w, 3, l.Attempt, name)
			require.NoError(w, l.Release())
			require.NoError(w, l.Wait(w.Soon()))
		}
		l := testdb.Take(w, c, 1)[0]
		w.pass(2 * time.Second) // time for more polls
		require.Empty(w, c.C(), "%s: the other suspect waits for the end of this trial", name)
		w.ack(l)
		w.ack(testdb.Take(w, c, 1)[0])
		require.NoError(w, c.Shutdown(w.Soon()))
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

// shrinkingForAny makes every claim of more than one message fail in the same way.
func shrinkingForAny(w *world) {
	for i, class := range []sqlbatch.Class{sqlbatch.Unknown, sqlbatch.Refused, sqlbatch.RolledBack, sqlbatch.BadRow} {
		name := string(rune('a' + i))
		q := w.Queue(name, chanq.Config{})
		testdb.Send(w, q, testdb.Texts(numbers(20)...)...)
		st, fails := w.Statements(name), faultdb.Fail(w.Failure(class))
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if claims(op, st) && asked(op) > 1 {
				return fails
			}
			return faultdb.Fault{}
		})
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		for _, l := range testdb.Take(w, c, 3) {
			require.Equal(w, 1, l.Attempt, class)
			require.NoError(w, l.Ack())
		}
		w.Faults.Inject(nil)
		require.NoError(w, c.Shutdown(w.Soon()))
	}
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
