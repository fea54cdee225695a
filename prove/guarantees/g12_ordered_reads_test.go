package guarantees

import (
	"database/sql"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Ordered queues: statements that return the contents of messages and fail each time.
var orderedReads = func() (tests []test) {
	for _, s := range contentStatements {
		for _, class := range []sqlbatch.Class{sqlbatch.Unknown, sqlbatch.Refused, sqlbatch.RolledBack, sqlbatch.BadRow, outOfTime} {
			where := "_in=" + s.name + "_failure=" + className(class)
			tests = append(tests,
				test{"G12_StatementsOfAnOrderedQueueShrinkWhateverTheFailure" + where, func(w *world) { keysShrink(w, s, class) }},
				test{"G12_AnUnreadableMessageDelaysItsKeyOnly" + where, func(w *world) { keyUnreadable(w, s, class) }},
			)
		}
	}
	return append(tests,
		test{"G07_AWaitForALockIsNoFailedAttemptOnAnOrderedQueue", keyLockBlamesNone},
		test{"G07_LostAnswersAreNoFailedAttemptsOnAnOrderedQueue", keyLostAnswers},
	)
}()

// contentStatement is a statement of an owner of slots that returns contents, with messages for which it runs.
type contentStatement struct {
	name     string
	messages func() []chanq.Message[string]
	bad      int // the index of the unreadable message
	// several reports whether an operation returns the contents of several messages, as far as its arguments show.
	several func(op faultdb.Op, st sqlbatch.Queue, ids []chanq.ID) bool
}

const contentKeys = 4

var contentStatements = []contentStatement{
	{"read", func() []chanq.Message[string] {
		ms, _ := manyKeys(contentKeys, 3)
		return ms
	}, 1, func(op faultdb.Op, st sqlbatch.Queue, _ []chanq.ID) bool {
		read := readOf(op, st)
		return read != nil && read.old < math.MaxInt64 && read.rows > 1
	}},
	// Only the first messages of a key with many are kept in memory; the others are refilled.
	{"refill", func() []chanq.Message[string] {
		ms, _ := manyKeys(contentKeys, 10)
		return ms
	}, 8*contentKeys + 1, func(op faultdb.Op, st sqlbatch.Queue, _ []chanq.ID) bool {
		refill := refillOf(op, st)
		return refill != nil && refill.old < math.MaxInt64
	}},
	// Small bodies come first, so a fetch returns several messages. The others are larger than what a read returns.
	{"fetch", func() []chanq.Message[string] {
		ms, _ := manyKeys(contentKeys, 3)
		for i := range ms[contentKeys:] {
			ms[contentKeys+i].Body += "/" + strings.Repeat("x", 280<<10)
		}
		return ms
	}, contentKeys + 1, func(op faultdb.Op, st sqlbatch.Queue, ids []chanq.ID) bool {
		named := 0
		for _, id := range ids {
			if fetches(op, st) && names(op, id) {
				named++
			}
		}
		return named > 1
	}},
}

func fetches(op faultdb.Op, q sqlbatch.Queue) bool {
	for n := 1; n <= 2; n++ { // one slot has a statement of its own
		if testdb.Runs(op, q.Fetch([16]byte{}, make([]sqlbatch.OwnedSlot, n), nil)) {
			return true
		}
	}
	return false
}

// contentRange is the range of numbers for which a statement returns contents.
type contentRange struct{ from, upto, old, rows int64 }

// Values that mark the positions of arguments.
const (
	fromMark, uptoMark, oldMark, rowsMark = 1001, 1002, 1003, 104
)

func readOf(op faultdb.Op, q sqlbatch.Queue) *contentRange {
	return rangeOf(op, func(slots []sqlbatch.OwnedSlot) sqlbatch.Statement {
		return q.Read(sqlbatch.ReadParams{Slots: slots, Cursor: fromMark, Upto: uptoMark, Old: oldMark, Rows: rowsMark})
	})
}

func refillOf(op faultdb.Op, q sqlbatch.Queue) *contentRange {
	return rangeOf(op, func(slots []sqlbatch.OwnedSlot) sqlbatch.Statement {
		return q.Refill(sqlbatch.ReadParams{Slots: slots, From: fromMark, Upto: uptoMark, Old: oldMark, Rows: rowsMark})
	})
}

// rangeOf returns nil for other operations.
func rangeOf(op faultdb.Op, build func([]sqlbatch.OwnedSlot) sqlbatch.Statement) *contentRange {
	for n := 1; n <= 2; n++ {
		st := build(make([]sqlbatch.OwnedSlot, n))
		if !testdb.Runs(op, st) {
			continue
		}
		values := map[int64]int64{}
		before := len(op.Args) - len(st.Args) // arguments that the driver call adds
		for i, arg := range st.Args {
			mark, is := number(arg)
			if value, also := number(op.Args[before+i].Value); is && also {
				values[mark] = value
			}
		}
		return &contentRange{values[fromMark], values[uptoMark], values[oldMark], values[rowsMark]}
	}
	return nil
}

func number(arg any) (n int64, is bool) {
	if named, ok := arg.(sql.NamedArg); ok {
		arg = named.Value
	}
	switch v := arg.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	}
	return 0, false
}

// outOfTime is not a class: the statement times out.
const outOfTime = sqlbatch.Class(100)

func className(class sqlbatch.Class) string {
	if class == outOfTime {
		return "timeout"
	}
	return strings.ReplaceAll(class.String(), " ", "")
}

// failing returns a fault of a class.
func (w *world) failing(class sqlbatch.Class) faultdb.Fault {
	if class == outOfTime {
		return faultdb.Hang()
	}
	return faultdb.Fail(w.Failure(class))
}

// contentTimeout is the statement timeout of queues whose consumers have contentConfig.
const contentTimeout = 500 * time.Millisecond

var contentConfig = chanq.ConsumerConfig{
	Prefetch: 16, PrefetchBytes: 1 << 20, PollEvery: 100 * time.Millisecond,
	Backoff: func(*chanq.Delivery, error) time.Duration { return time.Hour },
}

// firstOfKeys holds the first message of each key until the others are read, as far as there is room. It returns a function that receives
// the next message, starting with the held ones.
func (w *world) firstOfKeys(c *chanq.Consumer[string]) (next func() *chanq.Lease[string]) {
	var held []*chanq.Lease[string]
	for end := time.After(steadyLease); ; {
		select {
		case l := <-c.C():
			held = append(held, l)
			continue
		case <-end:
		}
		break
	}
	return func() *chanq.Lease[string] {
		if len(held) == 0 {
			return testdb.Take(w, c, 1)[0]
		}
		l := held[0]
		held = held[1:]
		return l
	}
}

// oneClass skips the other classes of failures if the test takes long: the tested code does not depend on the engine.
func (w *world) oneClass(class sqlbatch.Class) {
	if w.Engine.Name != testdb.Memory.Name && class != sqlbatch.Refused {
		w.Skip("SKIPPED: SQLite in memory has this class of failures")
	}
}

// keysShrink makes each statement that returns the contents of several messages fail.
func keysShrink(w *world, s contentStatement, class sqlbatch.Class) {
	w.oneClass(class)
	q := w.keys(chanq.Config{StatementTimeout: contentTimeout})
	ms := s.messages()
	ids := testdb.Send(w, q, ms...)
	st, fails := w.orderedStatements(), w.failing(class)
	var failed atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !s.several(op, st, ids) {
			return faultdb.Fault{}
		}
		failed.Add(1)
		return fails
	})
	c := testdb.Start(w, q, contentConfig)
	next := w.firstOfKeys(c)
	for range ms {
		l := next()
		require.Equal(w, 1, l.Attempt)
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Flush(w.Soon()))
	require.Positive(w, failed.Load())
	require.Zero(w, testdb.Counted(w, q))
}

// keyUnreadable makes each statement that would return the contents of one message fail.
func keyUnreadable(w *world, s contentStatement, class sqlbatch.Class) {
	w.oneClass(class)
	q := w.keys(chanq.Config{Spec: chanq.Spec{MaxAttempts: 1, Slots: 1}, StatementTimeout: contentTimeout})
	ms := s.messages()
	ids := testdb.Send(w, q, ms...)
	bad, key := ids[s.bad], ms[s.bad].Key
	var seq int64
	require.NoError(w, w.DB.QueryRow("SELECT seq FROM chanq_work WHERE id = "+w.sqlID(bad)).Scan(&seq))
	st, fails := w.orderedStatements(), w.failing(class)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		r := readOf(op, st)
		if r == nil {
			r = refillOf(op, st)
		}
		inline := r != nil && r.rows > 0 && r.from < seq && seq <= r.upto && r.old < seq && len(ms[s.bad].Body) < 1000
		if inline || fetches(op, st) && names(op, bad) {
			return fails
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, contentConfig)
	next := w.firstOfKeys(c)
	want := map[string]bool{}
	for i, m := range ms {
		if i != s.bad && (i < s.bad || m.Key != key || class != sqlbatch.RolledBack) {
			want[m.Body] = true
		}
	}
	for len(want) > 0 {
		l := next()
		require.True(w, want[l.Body], "%.20s", l.Body)
		delete(want, l.Body)
		require.NoError(w, l.Ack())
	}
	if class == sqlbatch.RolledBack { // another transaction might be the cause
		require.NoError(w, c.Flush(w.Soon()))
		require.Equal(w, chanqadmin.StateReady, testdb.Get(w, q, bad).State)
		w.Faults.Inject(nil)
		require.Equal(w, bad, testdb.Take(w, c, 1)[0].ID)
		return
	}
	w.Eventually("the unreadable message is dead", func() bool { return testdb.Get(w, q, bad).State == chanqadmin.StateDead })
	require.Contains(w, testdb.Get(w, q, bad).LastError, "could not be read")
}

// keyLockBlamesNone: while a lock on the table blocks reads, no message is blamed, whatever other errors the database returns.
func keyLockBlamesNone(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}, StatementTimeout: contentTimeout})
	id := testdb.Send(w, q, chanq.Message[string]{Key: "k", Body: "innocent"})[0]
	st := w.orderedStatements()
	var fetched atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		r := readOf(op, st)
		switch {
		case r != nil && r.old < math.MaxInt64, looksAtOrdered(op, st):
			return faultdb.Hang()
		case fetches(op, st):
			fetched.Add(1)
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, contentConfig)
	w.Eventually("fetches have failed several times", func() bool { return fetched.Load() > 3 })
	w.Faults.Inject(nil)
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, 1, l.Attempt)
	require.Empty(w, testdb.Get(w, q, id).LastError)
}

// keyLostAnswers loses the responses to reads, and to marks of messages that have lost a lease, several times.
func keyLostAnswers(w *world) {
	q := w.keys(chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}, MaxCrashes: 2})
	ms, _ := manyKeys(contentKeys, 3)
	testdb.Send(w, q, ms...)
	w.Exec("UPDATE chanq_work SET lapses = 1, attempts = 1")
	st, lost := w.orderedStatements(), faultdb.Cut(w.Failure(sqlbatch.Unknown)).Applied()
	var reads, marks atomic.Int32
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case readsSlots(op, st) && reads.Load() < 8:
			reads.Add(1)
			return lost
		case marksOrdered(op, st) && marks.Load() < 4:
			marks.Add(1)
			return lost
		}
		return faultdb.Fault{}
	})
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease, PollEvery: 20 * time.Millisecond})
	for acked := 0; acked < len(ms); {
		l := testdb.Take(w, c, 1)[0]
		if l.Ack() == nil && l.Wait(w.Soon()) == nil { // on a loaded machine its lease might expire before
			acked++
		}
	}
	require.Zero(w, testdb.Counted(w, q))
	require.EqualValues(w, 8, reads.Load())
	require.EqualValues(w, 4, marks.Load())
}

func looksAtOrdered(op faultdb.Op, q sqlbatch.Queue) bool {
	for n := 1; n <= 2; n++ {
		if testdb.Runs(op, q.LookOrdered([16]byte{}, make([]sqlbatch.OwnedSlot, n), nil)) {
			return true
		}
	}
	return false
}

func marksOrdered(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.MarkOrdered([16]byte{}, nil))
}
