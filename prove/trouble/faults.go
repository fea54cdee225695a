package trouble

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Fault is one kind of trouble of the queue orders of a ward.
type Fault struct {
	Name    string
	Engines []testdb.Engine
	Finds   []chanqfindings.Kind     // what is found, the worst first
	Cause   func(*Ward) (end func()) // end repairs it, as an operator would
}

var (
	engines     = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.EmulatorVersions, testdb.SQLiteFile, testdb.Postgres, testdb.SQLServer}
	withTables  = []testdb.Engine{testdb.Emulator, testdb.EmulatorVersions, testdb.Postgres, testdb.SQLServer}
	withHolders = []testdb.Engine{testdb.SQLiteFile, testdb.SQLite}
)

// Faults has all of them. On SQLite the file is locked, on other engines a table.
var Faults = []Fault{
	{"messages of one type die", engines, []chanqfindings.Kind{chanqfindings.Dead}, Poison},
	{"all attempts fail", engines, []chanqfindings.Kind{chanqfindings.Failing}, Retried},
	{"handlers hang, with a backlog", engines, []chanqfindings.Kind{chanqfindings.Stuck}, func(w *Ward) func() { return AllStuck(w, chanq.KindPlain, 50) }},
	{"handlers hang, nothing is ready", engines, []chanqfindings.Kind{chanqfindings.Stuck}, func(w *Ward) func() { return AllStuck(w, chanq.KindPlain, 4) }},
	{"one of eight hangs", engines, []chanqfindings.Kind{chanqfindings.Stuck}, func(w *Ward) func() { return OneStuck(w, chanq.KindPlain) }},
	{"the consumer is killed", engines, []chanqfindings.Kind{chanqfindings.ConsumerLost}, func(w *Ward) func() { return Killed(w, 40) }},
	{"a table is locked", withTables, []chanqfindings.Kind{chanqfindings.Locked}, LockedTable},
	{"the file is locked", withHolders, []chanqfindings.Kind{chanqfindings.Locked}, LockedFile},
	{"no consumer runs", engines, []chanqfindings.Kind{chanqfindings.NoConsumer}, Unconsumed},
	{"the queue is paused", engines, []chanqfindings.Kind{chanqfindings.Paused}, Paused},
	{"a dead message blocks its key", engines, []chanqfindings.Kind{chanqfindings.BlockedKey, chanqfindings.Dead}, Blocked},
	{"the database does not answer", engines, []chanqfindings.Kind{chanqfindings.Unreachable}, Unreachable},
}

// rejects dead-letters messages of one type.
func rejects(_ context.Context, l *chanq.Lease[string]) error {
	if l.Body == "invoice" {
		return chanq.DeadLetter(errors.New(`parse invoice: unknown currency "XBT"`))
	}
	return nil
}

// Poison dead-letters 6 of 60 messages. The end purges them.
func Poison(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	w.Handle(q, chanq.ConsumerConfig{}, 2, rejects)
	testdb.Send(w, q, Texts(60)...)
	return func() {
		testdb.Eventually(w, "all are dead", func() bool { return testdb.Stats(w, q).Dead == 6 })
		w.purge(q)
	}
}

func (w *Ward) purge(q *chanq.Queue[string]) {
	_, err := testdb.Purge(w.Soon(), q, chanqadmin.StateDead)
	require.NoError(w, err)
}

// Retried has a handler that fails each time, until the end.
func Retried(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{Spec: chanq.Spec{MaxAttempts: 10_000}})
	var fixed atomic.Bool
	w.Handle(q, chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return 4 * time.Second }}, 8, func(context.Context, *chanq.Lease[string]) error {
		if fixed.Load() {
			return nil
		}
		return errors.New("POST https://pay.example/charge: 503 Service Unavailable")
	})
	testdb.Send(w, q, Texts(60)...)
	return func() {
		fixed.Store(true)
		testdb.Send(w, q, Texts(1000)...) // more than failed in the last sample, which would be reported until it is two minutes old
	}
}

// hangs returns a handler whose first n calls hang until free is called.
func hangs(w *Ward, n int64) (handler func(context.Context, *chanq.Lease[string]) error, free func()) {
	gate, calls := make(chan struct{}), atomic.Int64{}
	open := sync.OnceFunc(func() { close(gate) })
	w.frees = append(w.frees, open)
	return func(context.Context, *chanq.Lease[string]) error {
		if calls.Add(1) <= n {
			<-gate
		}
		return nil
	}, open
}

// AllStuck has a consumer whose four workers hang, until the end.
func AllStuck(w *Ward, kind chanq.Kind, messages int) (end func()) {
	q := w.Orders(chanq.Config{Spec: chanq.Spec{Kind: kind}})
	handler, free := hangs(w, 4)
	w.Handle(q, chanq.ConsumerConfig{Name: "web-6", Prefetch: 4}, 4, handler)
	testdb.Send(w, q, Texts(messages)...)
	return free
}

// OneStuck has a consumer of which one worker of eight hangs, until the end. The others are busy.
func OneStuck(w *Ward, kind chanq.Kind) (end func()) {
	q := w.Orders(chanq.Config{Spec: chanq.Spec{Kind: kind}})
	takes := 2 * time.Second
	if !w.Engine.Bubble {
		takes = 200 * time.Millisecond
	}
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	w.frees = append(w.frees, open)
	w.Handle(q, chanq.ConsumerConfig{Name: "web-6", Prefetch: 8}, 8, func(_ context.Context, l *chanq.Lease[string]) error {
		if l.Body == "hangs" {
			<-gate
		} else {
			time.Sleep(takes)
		}
		return nil
	})
	testdb.Send(w, q, chanq.Message[string]{Body: "hangs"})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	stop := w.during(takes/2, func() { _, _ = p.SendBatch(context.Background(), Texts(3)...) })
	return func() {
		stop()
		open()
	}
}

// Killed has a consumer with leases of ten minutes, whose program does not run any more: none of its statements arrives. Some messages are
// ready. The end starts another consumer, and lets the statements arrive.
func Killed(w *Ward, ready int) (end func()) {
	q := w.Orders(chanq.Config{})
	faults, db := w.Connect()
	there := testdb.OpenOn[string](w, db, "orders", chanq.Config{})
	c, err := there.Consume(context.Background(), chanq.ConsumerConfig{Name: "web-6", Prefetch: 3, LeaseFor: 10 * time.Minute})
	require.NoError(w, err)
	testdb.End(w, c)
	testdb.Send(w, q, Texts(3)...)
	leases := testdb.Take(w, c, 3)
	if w.Engine.Bubble {
		time.Sleep(45 * time.Second) // it is heard, and between two heartbeats it has no transaction open
	}
	gone := make(chan struct{})
	faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Hold(gone) })
	back := sync.OnceFunc(func() { faults.Inject(nil); close(gone) })
	w.Cleanup(back)
	if ready > 0 {
		testdb.Send(w, q, Texts(ready)...)
	}
	return func() {
		back()
		for _, l := range leases {
			_ = l.Ack()
		}
		if ready > 0 {
			w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
			go func() { // ends with the consumer
				for l := range c.C() {
					_ = l.Ack()
				}
			}()
		}
	}
}

// LockedTable has a table that a transaction of another program locks, until the end.
func LockedTable(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
	return w.lock(w.DB, map[string]string{
		"postgres":  `SET LOCAL application_name = 'nightly-report'; LOCK TABLE chanq_orders`,
		"sqlserver": `SELECT TOP (0) id FROM chanq_orders WITH (TABLOCKX, HOLDLOCK)`,
	}[w.Engine.Dialect.Name()])
}

// LockedBehindAWaiter has a table that a transaction of another program has read, and that another session waits to lock, until the end. Programs
// wait behind that session.
func LockedBehindAWaiter(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
	texts := map[string][2]string{
		"postgres":  {`SET LOCAL application_name = 'nightly-report'; SELECT FROM chanq_orders`, `LOCK TABLE chanq_orders`},
		"sqlserver": {`SELECT TOP (0) id FROM chanq_orders WITH (HOLDLOCK)`, `SELECT TOP (0) id FROM chanq_orders WITH (TABLOCKX, HOLDLOCK)`},
	}[w.Engine.Dialect.Name()]
	return w.waiting(w.lock(w.DB, texts[0]), "", texts[1])
}

// LockedBehindTwoWaiters has a table that a transaction of another program has read, which waits for a row of a third one, until the end. A
// session waits to lock that table, and programs wait behind it.
func LockedBehindTwoWaiters(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
	row := `UPDATE chanq__queues SET paused = paused WHERE name = 'orders'`
	texts := map[string][3]string{
		"postgres":  {`SET LOCAL application_name = 'nightly-report'; ` + row, `SELECT FROM chanq_orders`, `LOCK TABLE chanq_orders`},
		"sqlserver": {row, `SELECT TOP (0) id FROM chanq_orders WITH (HOLDLOCK)`, `SELECT TOP (0) id FROM chanq_orders WITH (TABLOCKX, HOLDLOCK)`},
	}[w.Engine.Dialect.Name()]
	return w.waiting(w.waiting(w.lock(w.DB, texts[0]), texts[1], row), "", texts[2])
}

// waiting opens another transaction, with a statement if there is one, and with another that waits until the end.
func (w *Ward) waiting(end func(), first, waits string) func() {
	_, other := w.Connect()
	tx, err := other.BeginTx(context.Background(), nil)
	require.NoError(w, err)
	if first != "" {
		_, err = tx.ExecContext(w.Soon(), first)
		require.NoError(w, err)
	}
	ended := make(chan struct{})
	go func() { // ends with the lock
		defer close(ended)
		_, _ = tx.ExecContext(context.Background(), waits)
		_ = tx.Rollback()
	}()
	end = sync.OnceFunc(end)
	w.Cleanup(func() { end(); <-ended })
	return end
}

// lock opens a transaction with a statement.
func (w *Ward) lock(db *sql.DB, text string) (end func()) {
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(w, err)
	_, err = tx.ExecContext(w.Soon(), text)
	require.NoError(w, err)
	return func() { require.NoError(w, tx.Rollback()) }
}

// LockedFile has a SQLite file whose write lock another program has, until the end.
func LockedFile(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
	_, other := w.Connect()
	return w.lock(other, "UPDATE chanq__queues SET paused = paused")
}

// Unconsumed has messages and no consumer, until the end.
func Unconsumed(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	testdb.Send(w, q, Texts(12)...)
	return func() { w.Handle(q, chanq.ConsumerConfig{}, 2, Well) }
}

// Paused has messages and is paused, until the end.
func Paused(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	testdb.Send(w, q, Texts(12)...)
	require.NoError(w, w.Queues["orders"].Pause(w.Soon(), chanqadmin.Change{Actor: "ada", Reason: "deploying 4.2"}))
	return func() {
		w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
		require.NoError(w, w.Queues["orders"].Resume(w.Soon(), chanqadmin.Change{}))
	}
}

// Blocked has a key of which a message is dead and eight wait. The end purges the dead one.
func Blocked(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, DeadKey: chanq.DeadKeyHolds}})
	w.Handle(q, chanq.ConsumerConfig{}, 2, rejects)
	ms := Texts(9)
	for i := range ms {
		ms[i].Key = "customer 7"
	}
	testdb.Send(w, q, ms...)
	return func() { w.purge(q) }
}

// Unreachable has a database that answers no statement, until the end.
func Unreachable(w *Ward) (end func()) {
	q := w.Orders(chanq.Config{})
	w.Handle(q, chanq.ConsumerConfig{}, 2, Well)
	fault := w.Broken(false)
	w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return fault })
	return w.Heal
}
