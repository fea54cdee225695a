package guarantees

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// What a second send with the same DedupKey does.
var onDuplicate = []test{
	{"NoChangeIsLostWithAnyOnDuplicateButKeepFirst", changes},
	{"ADuplicateOfALeasedMessageIsStoredExceptWithKeepFirst", duplicateOfLeased},
	{"AFormerHolderCannotAckAReplacedBody", formerHolderOfReplaced},
	{"ADebouncedMessageThatIsSentAllTheTimeIsDueAtItsBound", debounceBound},
	{"MessagesOfOneKeyInOneSendAreStoredOneAfterTheOther", duplicatesTogether},
	{"ASendTxThatIsRolledBackLeavesWhatItHadReplaced", replacedInRollback},
	{"AMessageThatASendTxKeepsIsNotClaimedBeforeItsCommit", keptInTx},
	{"ASendThatReplacesAMessageTwiceIsHarmless", replacedTwice},
	{"AMessageWaitsBehindAnIsolatedOneThatItReplaces", replacesIsolated},
	{"ASendThatMeetsAQueuedOrLeasedMessageIsOneStatement", costOfDuplicates},
	{"AReplacingMessageNeedsAProducerWithOneStatementAtATime", replacesInParallel},
	{"AnOrderedQueueRefusesOnDuplicateBeforeItStoresAnything", orderedOnDuplicate},
}

// duplicates are messages with one key, for each OnDuplicate.
var duplicates = []chanq.Message[string]{
	{OnDuplicate: chanq.KeepFirst, DedupKey: "k"},
	{OnDuplicate: chanq.KeepQueued, DedupKey: "k"},
	{OnDuplicate: chanq.Replace, DedupKey: "k"},
	{OnDuplicate: chanq.Debounce, DedupKey: "k", Delay: slowness * 20 * time.Millisecond},
}

// onEach calls f with a queue for each OnDuplicate, and a function that returns a message with this body.
func (w *world) onEach(f func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(body string) chanq.Message[string])) {
	w.Helper()
	for i, m := range duplicates {
		q := w.Queue(fmt.Sprintf("work%d", i), chanq.Config{})
		f(q, m.OnDuplicate, func(body string) chanq.Message[string] {
			m.Body = body
			return m
		})
	}
}

// changes makes 240 changes of 10 documents by 4 senders while 4 handlers work. Four handlers have read their documents when the second half
// of the changes begins, and store what they have read after the last change: KeepFirst loses the changes of these four.
func changes(w *world) {
	const documents, senders, each, handlers = 10, 4, 60, 4
	w.Open()
	w.Exec("CREATE TABLE documents (id int NOT NULL PRIMARY KEY, v int NOT NULL)")
	for d := range documents {
		w.Exec(fmt.Sprintf("INSERT INTO documents (id, v) VALUES (%d, 0)", d))
	}
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		w.Exec("UPDATE documents SET v = 0")
		version := func(ctx context.Context, db chanq.Tx, d string) (v int, err error) {
			rows, err := db.QueryContext(ctx, "SELECT v FROM documents WHERE id = "+d)
			if err != nil {
				return 0, err
			}
			defer rows.Close()
			for rows.Next() {
				err = errors.Join(err, rows.Scan(&v))
			}
			return v, errors.Join(err, rows.Err())
		}
		change := func(d string) error {
			return chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, "UPDATE documents SET v = v + 1 WHERE id = "+d); err != nil {
					return err
				}
				m := m(d)
				m.DedupKey = "document " + d
				_, err := q.SendTx(ctx, tx, m)
				return err
			})
		}

		var mu sync.Mutex
		index := map[string]int{} // what the handlers have stored of each document
		var calls atomic.Int32
		read, store := make(chan bool, handlers), make(chan struct{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: handlers})
		left := make(chan error, 1)
		go func() {
			left <- c.Handle(handlers, func(ctx context.Context, l *chanq.Lease[string]) error {
				v, err := version(ctx, w.DB, l.Body)
				if calls.Add(1) <= handlers {
					read <- true
					<-store
				}
				mu.Lock()
				defer mu.Unlock()
				index[l.Body] = max(index[l.Body], v) // two handlers of one document can overlap
				return err
			})
		}()
		half := func(first, end int) {
			var all sync.WaitGroup
			for s := range senders {
				all.Go(func() {
					for i := s*each + first; i < s*each+end; i++ {
						if err := change(fmt.Sprint(i % documents)); err != nil {
							w.Errorf("%v: change %d: %v", does, i, err)
						}
					}
				})
			}
			all.Wait()
		}
		half(0, each/2)
		for range handlers {
			testdb.Receive(w, read, "a handler has read its document")
		}
		half(each/2, each)
		close(store)
		w.Eventually("all messages are handled", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{} })
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "Handle returns"))
		stale := 0
		for d := range documents {
			v, err := version(w.Soon(), w.DB, fmt.Sprint(d))
			require.NoError(w, err)
			require.Equal(w, senders*each/documents, v)
			if index[fmt.Sprint(d)] != v {
				stale++
			}
		}
		want := 0
		if does == chanq.KeepFirst {
			want = handlers
		}
		require.Equal(w, want, stale, does)
	})
}

func duplicateOfLeased(w *world) {
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		for _, fails := range []bool{false, true} {
			first := testdb.SendBy(w, p, m("old"))[0]
			held := testdb.Lease(w, q, 1, time.Minute)[0]
			second, err := p.Send(w.Soon(), m("new"))
			require.NoError(w, err)
			if does == chanq.KeepFirst {
				require.Equal(w, chanq.Receipt{ID: first, Duplicate: true}, second)
				require.NoError(w, held.Ack())
				testdb.RequireNone(w, q)
				continue
			}
			require.Equal(w, chanq.Receipt{ID: second.ID}, second, does)
			require.NotEqual(w, first, second.ID)
			if fails {
				require.NoError(w, held.Nack(chanq.RetryAfter(0, errBad)))
				again := testdb.Lease(w, q, 2, time.Minute)
				require.ElementsMatch(w, []string{"old", "new"}, testdb.Bodies(testdb.Leases(again)), "the old message is retried as well")
				require.NoError(w, again[0].Ack())
				require.NoError(w, again[1].Ack())
				continue
			}
			require.NoError(w, held.Ack(), "its lease is as it was")
			again := testdb.Lease(w, q, 1, time.Minute)[0]
			require.Equal(w, "new", again.Body)
			require.NoError(w, again.Ack())
		}
		require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q))
	})
}

// formerHolderOfReplaced: the lease of a handler expires, the message is queued again, and is replaced.
func formerHolderOfReplaced(w *world) {
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		if does < chanq.Replace {
			return
		}
		id := testdb.Send(w, q, m("old"))[0]
		former := testdb.Lease(w, q, 1, formerLease)[0]
		st := w.Statements(q.Label())
		w.Eventually("its lease is over, and it is queued again", func() bool {
			rows, err := testdb.Rows(w.Soon(), w.DB, st.Rescue(sqlbatch.RescueParams{MaxCrashes: 9}))
			require.NoError(w, err)
			return len(rows) > 0
		})
		fence := testdb.Get(w, q, id).Fence
		r, err := q.Send(w.Soon(), m("new"))
		require.NoError(w, err)
		require.Equal(w, []chanq.Receipt{{ID: id, Replaced: true}}, r)
		require.Greater(w, testdb.Get(w, q, id).Fence, fence)
		require.ErrorIs(w, former.Ack(), chanq.ErrLeaseLost, does)
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "new", l.Body)
		require.Zero(w, l.Failures(), "its attempts begin again")
		require.Equal(w, 1, l.Attempt)
		require.NoError(w, l.Ack())
	})
}

// debounceBound sends a message again and again, until a consumer has it. The second send is more than 1 ms after the first, so the bound
// decides when it is due.
func debounceBound(w *world) {
	most := slowness * 500 * time.Millisecond
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	m := chanq.Message[string]{DedupKey: "k", OnDuplicate: chanq.Debounce, Delay: most - time.Millisecond, DebounceMax: most}
	first := testdb.SendBy(w, p, m)[0]
	time.Sleep(2 * time.Millisecond) // the clock of a bubble stands otherwise
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 1})
	replaced := 0
	for {
		time.Sleep(most / 50) // the rate of the sends, not a wait
		m.Body = fmt.Sprint(replaced + 1)
		r, err := p.Send(w.Soon(), m)
		require.NoError(w, err)
		if r.ID != first {
			break // the first one is leased
		}
		require.True(w, r.Replaced)
		replaced++
		require.Less(w, replaced, 100, "it is not due")
	}
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, first, l.ID)
	require.Equal(w, fmt.Sprint(replaced), l.Body)
	require.Greater(w, replaced, 0)
	require.Equal(w, most, l.DueAt.Sub(l.EnqueuedAt))
	require.NoError(w, l.Ack())
}

func duplicatesTogether(w *world) {
	of := func(body string, does chanq.OnDuplicate) chanq.Message[string] {
		m := chanq.Message[string]{Body: body, DedupKey: "k", OnDuplicate: does}
		if does == chanq.Debounce {
			m.Delay = time.Hour
		}
		return m
	}
	ms := []chanq.Message[string]{
		of("1", chanq.Replace), {Body: "plain"}, of("2", chanq.Replace), {Body: "other", DedupKey: "other", OnDuplicate: chanq.Replace},
		of("kept", chanq.KeepQueued), of("3", chanq.Debounce), of("kept", chanq.KeepFirst), of("4", chanq.Replace),
	}
	for how, send := range map[string]func(*chanq.Queue[string]) ([]chanq.Receipt, error){
		"producer": func(q *chanq.Queue[string]) ([]chanq.Receipt, error) {
			return testdb.Produce(w, q, chanq.ProducerConfig{}).SendBatch(w.Soon(), ms...)
		},
		"queue": func(q *chanq.Queue[string]) ([]chanq.Receipt, error) { return q.Send(w.Soon(), ms...) },
		"tx": func(q *chanq.Queue[string]) (rs []chanq.Receipt, err error) {
			err = chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) (err error) {
				rs, err = q.SendTx(ctx, tx, ms...)
				return err
			})
			return rs, err
		},
	} {
		q := w.Queue(how, chanq.Config{})
		rs, err := send(q)
		require.NoError(w, err, how)
		replaced, kept := chanq.Receipt{ID: rs[0].ID, Replaced: true}, chanq.Receipt{ID: rs[0].ID, Duplicate: true}
		require.Equal(w, []chanq.Receipt{{ID: rs[0].ID}, {ID: rs[1].ID}, replaced, {ID: rs[3].ID}, kept, replaced, kept, replaced}, rs, how)
		e := testdb.Get(w, q, rs[0].ID)
		require.Equal(w, "4", string(e.Body), how)
		require.Equal(w, chanqadmin.StateScheduled, e.State, "Replace keeps the due time of the Debounce")
		require.Equal(w, 2, testdb.Counted(w, q).Ready, how)
	}
}

func replacedInRollback(w *world) {
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		id := testdb.Send(w, q, m("old"))[0]
		for _, leased := range []bool{false, true} {
			if leased {
				held := testdb.Lease(w, q, 1, time.Hour)[0]
				defer func() { require.NoError(w, held.Ack()) }()
			}
			state := func() chanqadmin.Entry {
				e := testdb.Get(w, q, id)
				e.LeasedBy = "" // SQL Server omits the name while the consumer's row is being written
				if e.State == chanqadmin.StateScheduled {
					e.State = chanqadmin.StateReady // its delay can end meanwhile
				}
				return e
			}
			before := state()
			err := chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
				r, err := q.SendTx(ctx, tx, m("new"))
				require.NoError(w, err)
				if does != chanq.KeepFirst && leased {
					require.Equal(w, chanq.Receipt{ID: r[0].ID}, r[0])
				} else {
					require.Equal(w, chanq.Receipt{ID: id, Duplicate: does < chanq.Replace, Replaced: does >= chanq.Replace}, r[0])
				}
				return errBad
			})
			require.ErrorIs(w, err, errBad)
			require.Equal(w, before, state(), "%v, leased: %v", does, leased)
		}
	})
}

// keptInTx: the change that the transaction has made is not visible before its commit, so the message must not be handled before.
func keptInTx(w *world) {
	if w.Engine.Dialect.Traits().OneWriter {
		w.Skip("one writer: nothing is claimed while a transaction writes")
	}
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		if does == chanq.KeepFirst {
			return
		}
		first := m("old")
		first.OnDuplicate, first.Delay = chanq.KeepFirst, 0
		id := testdb.Send(w, q, first)[0]
		claim := func() int {
			time.Sleep(2 * time.Millisecond) // it is due
			rows, err := testdb.Rows(w.Soon(), w.DB, w.Statements(q.Label()).Claim(sqlbatch.ClaimParams{
				Rows: 1, Lease: time.Minute, Consumer: [16]byte{1}, Salt: 1, Inline: 100,
			}))
			require.NoError(w, err)
			return len(rows)
		}
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			r, err := q.SendTx(ctx, tx, m("new"))
			require.NoError(w, err)
			require.Equal(w, id, r[0].ID)
			require.Zero(w, claim(), does)
			return nil
		}))
		w.Eventually("it can be claimed", func() bool { return claim() == 1 })
	})
}

// over is the statement by which one message is stored that does not keep the first one.
func (w *world) over(q *chanq.Queue[string], does chanq.OnDuplicate) sqlbatch.Statement {
	return w.Statements(q.Label()).EnqueueOver([]sqlbatch.Row{{Key: "k", OnDuplicate: does, DebounceMax: 1}})
}

// replacedTwice loses the answer of a statement, so that it is repeated.
func replacedTwice(w *world) {
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		if does == chanq.KeepFirst {
			return
		}
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		send := func(body string) chanq.Receipt {
			st := w.over(q, does)
			w.Strike(faultdb.Cut(nil).Applied(), func(op faultdb.Op) bool { return op.Kind == faultdb.Query && testdb.Runs(op, st) })
			r, err := p.Send(w.Soon(), m(body))
			require.NoError(w, err)
			w.Heal()
			return r
		}
		first := send("free")
		require.Equal(w, chanq.Receipt{ID: first.ID}, first, "%v: it met itself", does)
		second := send("queued")
		require.Equal(w, chanq.Receipt{ID: first.ID, Duplicate: does == chanq.KeepQueued, Replaced: does != chanq.KeepQueued}, second)
		e := testdb.Get(w, q, first.ID)
		body, delay := "queued", m("").Delay
		if does == chanq.KeepQueued {
			body = "free"
		}
		require.Equal(w, body, string(e.Body))
		require.LessOrEqual(w, e.DueAt.Sub(e.EnqueuedAt), 10*delay, "its bound is that of the first send")
		held := testdb.Lease(w, q, 1, time.Minute)[0]
		third := send("leased")
		require.Equal(w, chanq.Receipt{ID: third.ID}, third)
		require.NoError(w, held.Ack())
		last := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "leased", last.Body)
		require.NoError(w, last.Ack())
		require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q), "no message was stored twice")
	})
}

// replacesIsolated: the statement of the first message fails alone, so it is stored after later ones, but not after one with its key.
func replacesIsolated(w *world) {
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		if does < chanq.Replace {
			return
		}
		var heals atomic.Bool
		fails := faultdb.Fail(w.Failure(sqlbatch.Refused))
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			for _, a := range op.Args {
				if b, is := a.Value.([]byte); is && !heals.Load() && bytes.Contains(b, []byte("the first body")) {
					return fails
				}
			}
			return faultdb.Fault{}
		})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		p.C() <- m("the first body")
		for p.Stats().Isolated == 0 {
			_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "another", Delay: time.Hour})
			require.NoError(w, err)
		}
		p.C() <- m("the second body")
		w.Eventually("the intake has passed it on", func() bool { return p.Stats().Pending == 2 })
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "another", Delay: time.Hour})
		require.NoError(w, err)
		require.Equal(w, 2, p.Stats().Pending, "the second one waits")
		heals.Store(true)
		require.NoError(w, p.Flush(w.Soon()))
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "the second body", l.Body, does)
		require.NoError(w, l.Ack())
	})
}

func costOfDuplicates(w *world) {
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		if does == chanq.KeepFirst {
			return
		}
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		var stores, looks atomic.Int32
		st, find := w.over(q, does), w.Statements(q.Label()).Find(make([][16]byte, 1), make([]string, 1))
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			switch {
			case testdb.Runs(op, st):
				stores.Add(1)
			case testdb.Runs(op, find):
				looks.Add(1)
			}
			return faultdb.Fault{}
		})
		for i, state := range []string{"free", "queued", "leased"} {
			if state == "leased" {
				held := testdb.Lease(w, q, 1, time.Hour)[0]
				defer func() { require.NoError(w, held.Ack()) }()
			}
			_, err := p.Send(w.Soon(), m(state))
			require.NoError(w, err)
			require.EqualValues(w, i+1, stores.Load(), "%v, %s", does, state)
			require.Zero(w, looks.Load(), "%v, %s", does, state)
		}
	})
}

func replacesInParallel(w *world) {
	w.onEach(func(q *chanq.Queue[string], does chanq.OnDuplicate, m func(string) chanq.Message[string]) {
		p := testdb.Produce(w, q, chanq.ProducerConfig{InFlight: 2})
		_, err := p.Send(w.Soon(), m("a"))
		if does < chanq.Replace {
			require.NoError(w, err)
			return
		}
		require.ErrorContains(w, err, fmt.Sprintf("Message.OnDuplicate is %v: needs a producer with InFlight 1", does))
		require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q))
	})
}

func orderedOnDuplicate(w *world) {
	q := w.Queue("line", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
	for _, m := range duplicates[1:] {
		m.Delay = 0
		_, err := q.Send(w.Soon(), chanq.Message[string]{Body: "a", Key: "b", DedupKey: "c"}, m)
		require.ErrorContains(w, err, fmt.Sprintf("Message.OnDuplicate is %v: must be KeepFirst, since the queue is ordered", m.OnDuplicate))
		require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q))
	}
}
