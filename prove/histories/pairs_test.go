package histories

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Two faults at once, drawn at random: which statements fail, how, when and for how long. They are combined with engines, kinds of queue,
// ways to send and ways to handle. After the faults, every message known to be stored has been handled in the order of its key, no message
// is dead, and none is left.

// pairSeeds found defects, which are fixed.
var pairSeeds = []uint64{
	158454363734052592,  // a commit hung after it was applied, and its context did not end
	3991138497082753430, // the answer to a heartbeat came when the membership had ended
	4267341513118610188, // the same
}

// pairsVariable selects the history of one seed: CHANQ_PAIR=123 go test ./prove/histories -run PairsOfFaults
const pairsVariable = "CHANQ_PAIR"

func TestPairsOfFaults(t *testing.T) {
	n := testdb.Of(500, 200, 200_000)
	if raceDetector || testing.Short() {
		n = 30
	}
	seeds := slices.Clone(pairSeeds)
	if text := os.Getenv(pairsVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{seed}
	} else {
		for range n {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) { playPair(t, seed) })
		if t.Failed() {
			t.Fatalf("to repeat: %s=%d go test ./prove/histories -run PairsOfFaults", pairsVariable, seed)
		}
	}
}

// pair is one history.
type pair struct {
	*testing.T
	*rand.Rand
	engine    testdb.Engine
	q         *chanq.Queue[string] // with faults
	truth     *chanq.Queue[string] // without faults
	db, clean *sql.DB
	ordered   bool
	drawn     string // for failure messages
	heals     time.Time

	mu      sync.Mutex
	stored  map[string]bool // by body; false: might be stored
	refused map[string]bool // bodies that are known not to be stored
	handled map[string]int  // successful calls
	first   []string        // bodies in the order of their first calls
}

const pairMessages = 8

func playPair(t *testing.T, seed uint64) {
	p := &pair{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), stored: map[string]bool{}, refused: map[string]bool{}, handled: map[string]int{}}
	p.engine = draw(p, testdb.Memory, testdb.Memory, testdb.Emulator)
	p.ordered = p.IntN(2) == 0
	cfg := chanq.Config{Dialect: p.engine.ChanqDialect(), Spec: chanq.Spec{MaxAttempts: 1000}, MaxCrashes: 1000, History: chanq.HistoryOff, StatementTimeout: 2 * time.Second}
	if p.ordered {
		cfg.Kind, cfg.Slots = chanq.KindOrdered, 2
	}
	address := p.engine.Create(t)
	inner, err := p.engine.Connect(address)
	require.NoError(t, err)
	p.clean = sql.OpenDB(inner)
	require.NoError(t, chanq.Migrate(testdb.Soon(t), p.clean, "work", cfg))
	faults := faultdb.New(unowned{inner})
	p.db = sql.OpenDB(faults)
	p.q, p.truth = testdb.OpenOn[string](t, p.db, "work", cfg), testdb.OpenOn[string](t, p.clean, "work", cfg)
	sendWay, handleWay := draw(p, sendWays...), draw(p, handleWays...)
	one, two := p.drawFault(), p.drawFault()
	p.drawn = fmt.Sprintf("seed %d: %s, ordered %v, %s, %s, %s, %s", seed, p.engine.Name, p.ordered, sendWay.name, handleWay.name, one, two)
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		for _, f := range []*fault{one, two} {
			if f.meets(op) {
				return f.verb.make(p)
			}
		}
		return faultdb.Fault{}
	})
	if one.target.rowLock || two.target.rowLock {
		p.lockRow()
	}

	// The faults end independently of the calls in between.
	time.AfterFunc(time.Until(p.heals), func() { faults.Inject(nil) })
	consumer := p.consume()
	ended := make(chan error, 1)
	go func() { ended <- handleWay.run(p, consumer) }()
	if one.target.dies || two.target.dies { // another consumer takes over
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		p.pause(3000)
		_ = consumer.Shutdown(gone)
		<-ended
		_ = consumer.Shutdown(testdb.Soon(t))
		consumer = p.consume()
		go func() { ended <- handleWay.run(p, consumer) }()
	}
	sendWay.run(p)
	time.Sleep(time.Until(p.heals))
	p.empties()
	consumer.Stop()
	require.NoError(t, <-ended, p.drawn)
	require.NoError(t, consumer.Shutdown(testdb.Soon(t)), p.drawn)
	p.judge()
	// SQLite lets an attempt to connect wait for a lock, also when its caller has given up. A bubble's clock stops with the test.
	time.Sleep(connectWithin)
	require.NoError(t, p.db.Close())
	require.NoError(t, p.clean.Close())
}

func draw[V any](p *pair, list ...V) V { return list[p.IntN(len(list))] }

// connectWithin is longer than an attempt to connect: SQLite waits for a lock for 10 s.
const connectWithin = 15 * time.Second

// recoversWithin is the time after the last fault in which everything is handled: leases of a dead consumer expire, and failed operations
// are repeated after pauses of at most 5 s. A message that lost two leases waits for up to a minute, and then two.
const recoversWithin = 4 * time.Minute

func (p *pair) empties() {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		p.mu.Lock()
		done := true
		for body, sure := range p.stored {
			done = done && (!sure || p.handled[body] > 0)
		}
		p.mu.Unlock()
		if done {
			// A statement that a fault holds might still block this one. The bound below ends that.
			if empty, err := p.truth.Empty(testdb.Soon(p)); err == nil && empty {
				return
			}
		}
		require.Less(p, time.Since(began), recoversWithin, "%s: no progress: %+v, stored %v, handled %v", p.drawn, testdb.Stats(p, p.truth), p.stored, p.handled)
	}
}

func (p *pair) judge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for body := range p.handled {
		require.False(p, p.refused[body], "%s: %s was refused, and handled", p.drawn, body)
	}
	require.Zero(p, testdb.Counted(p, p.truth), "%s: no message is left or dead", p.drawn)
	last := map[string]string{}
	for _, body := range p.first {
		if key := keyOf(body); p.ordered && p.stored[body] { // a message with unknown outcome might be stored after messages that were sent later
			require.Less(p, last[key], body, "%s: the order of a key: %v", p.drawn, p.first)
			last[key] = body
		}
	}
}

func (p *pair) consume() *chanq.Consumer[string] {
	c, err := p.q.Consume(context.Background(), chanq.ConsumerConfig{
		LeaseFor: 3 * time.Second, PollEvery: 500 * time.Millisecond, DrainFor: 10 * time.Second,
		Backoff: func(*chanq.Delivery, error) time.Duration { return 100 * time.Millisecond },
	})
	require.NoError(p, err)
	return c
}

// pairMessage returns a message of one of two keys. Messages of a key are sent one after another.
func pairMessage(i int) chanq.Message[string] {
	body := fmt.Sprintf("body-%d-%03d", i%2, i)
	return chanq.Message[string]{ID: chanq.NewID(), Body: body, Key: keyOf(body)}
}

func keyOf(body string) string { return strings.Split(body, "-")[1] }

// note records the result of a send.
func (p *pair) note(m chanq.Message[string], err error) {
	var op *chanq.OpError
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.stored[m.Body] = true
	case errors.As(err, &op) && !op.Unknown:
		p.refused[m.Body] = true
	default:
		p.stored[m.Body] = false
	}
}

type sendWay struct {
	name string
	run  func(*pair)
}

// sendWays send each message once. A message that might be stored counts as unknown.
var sendWays = []sendWay{
	{"Producer.Send", func(p *pair) {
		p.produces(func(producer *chanq.Producer[string], m chanq.Message[string]) {
			_, err := producer.Send(p.patient(), m)
			p.note(m, err)
		})
	}},
	{"Producer.C", func(p *pair) {
		handed := map[chanq.ID]chanq.Message[string]{}
		p.produces(func(producer *chanq.Producer[string], m chanq.Message[string]) {
			p.mu.Lock()
			handed[m.ID] = m
			p.mu.Unlock()
			producer.C() <- m
		}, func(unsent []chanq.Unsent[string]) {
			for _, u := range unsent {
				delete(handed, u.Message.ID)
				p.note(u.Message, u.Err)
			}
			for _, m := range handed {
				p.note(m, nil)
			}
		})
	}},
	{"Queue.Send", func(p *pair) {
		p.each(func(m chanq.Message[string]) {
			_, err := p.q.Send(p.patient(), m)
			p.note(m, err)
		})
	}},
	{"SendTx", func(p *pair) {
		p.each(func(m chanq.Message[string]) {
			ctx := p.patient()
			p.note(m, func() error {
				tx, err := p.db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if _, err := p.q.SendTx(ctx, tx, m); err != nil {
					_ = tx.Rollback()
					return err
				}
				return tx.Commit()
			}())
		})
	}},
	{"InTx", func(p *pair) {
		p.each(func(m chanq.Message[string]) {
			err := chanq.InTx(p.patient(), p.db, func(ctx context.Context, tx *sql.Tx) error {
				_, err := p.q.SendTx(ctx, tx, m)
				return err
			})
			p.note(m, err)
		})
	}},
}

// patient returns the context of a send: some sends give up during the faults.
func (p *pair) patient() context.Context {
	p.mu.Lock()
	d := time.Duration(100+p.IntN(60_000)) * time.Millisecond
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	p.Cleanup(cancel)
	return ctx
}

// each sends all messages, those of a key one after another.
func (p *pair) each(send func(chanq.Message[string])) {
	var keys sync.WaitGroup
	for key := range 2 {
		keys.Go(func() {
			for i := key; i < pairMessages; i += 2 {
				p.pause(600)
				send(pairMessage(i))
			}
		})
	}
	keys.Wait()
}

func (p *pair) pause(most int) {
	p.mu.Lock()
	d := time.Duration(p.IntN(most)) * time.Millisecond
	p.mu.Unlock()
	time.Sleep(d)
}

func (p *pair) produces(send func(*chanq.Producer[string], chanq.Message[string]), unsent ...func([]chanq.Unsent[string])) {
	producer, err := p.q.Producer(context.Background(), chanq.ProducerConfig{})
	require.NoError(p, err)
	p.each(func(m chanq.Message[string]) { send(producer, m) })
	time.Sleep(time.Until(p.heals))
	var left *chanq.UnsentError[string]
	if err := producer.Close(testdb.Soon(p)); !errors.As(err, &left) {
		require.NoError(p, err, p.drawn)
		left = &chanq.UnsentError[string]{}
	}
	for _, f := range unsent {
		f(left.Unsent)
	}
}

type handleWay struct {
	name string
	run  func(*pair, *chanq.Consumer[string]) error
}

var handleWays = []handleWay{
	{"Handle", func(p *pair, c *chanq.Consumer[string]) error {
		return c.Handle(3, func(_ context.Context, l *chanq.Lease[string]) error { return p.handle(l) })
	}},
	{"HandleBatches", func(p *pair, c *chanq.Consumer[string]) error {
		return c.HandleBatches(2, 3, 50*time.Millisecond, func(_ context.Context, ls []*chanq.Lease[string]) error {
			for _, l := range ls {
				if err := p.handle(l); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"C", func(p *pair, c *chanq.Consumer[string]) error {
		for l := range c.C() {
			_ = l.Settle(p.handle(l))
		}
		return nil
	}},
	{"AckTx", func(p *pair, c *chanq.Consumer[string]) error {
		return c.Handle(3, func(ctx context.Context, l *chanq.Lease[string]) error {
			err := p.handle(l)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // otherwise a hanging connection is used until MaxExtend
			defer cancel()
			return chanq.InTx(ctx, p.db, func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, tx) })
		})
	}},
	{"Pipe", func(p *pair, c *chanq.Consumer[string]) error {
		return chanq.Pipe(c, p.q, 3, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			return nil, p.handle(l)
		})
	}},
}

// handle fails occasionally and takes some time.
func (p *pair) handle(l *chanq.Lease[string]) error {
	p.mu.Lock()
	if !slices.Contains(p.first, l.Body) {
		p.first = append(p.first, l.Body)
	}
	fails, took := p.IntN(8) == 0, time.Duration(p.IntN(300))*time.Millisecond
	if p.IntN(20) == 0 {
		took *= 20
	}
	p.mu.Unlock()
	time.Sleep(took)
	if fails {
		return errors.New("failed")
	}
	p.mu.Lock()
	p.handled[l.Body]++
	p.mu.Unlock()
	return nil
}

// target is what a fault affects.
type target struct {
	name  string
	meant func(*pair, faultdb.Op) bool
	// These affect no statement.
	rowLock, dies bool
}

// is returns a function that reports whether an operation runs one of the statements, in any of their variants.
func is(of func(sqlbatch.Queue) []sqlbatch.Statement) func(*pair, faultdb.Op) bool {
	return func(p *pair, op faultdb.Op) bool {
		names := sqlbatch.Names{Queue: "work"}
		if p.ordered {
			names.Slots = 2
		}
		q := statementsOf(p.engine.Dialect, names)
		for _, variant := range []sqlbatch.Queue{q, q.SkipLocked(), q.InTx(), q.InOwnTx()} {
			if slices.ContainsFunc(of(variant), func(st sqlbatch.Statement) bool { return testdb.Runs(op, st) }) {
				return true
			}
		}
		return false
	}
}

var renderings sync.Map

// statementsOf renders the statements once, because that takes milliseconds.
func statementsOf(d sqlbatch.Dialect, n sqlbatch.Names) sqlbatch.Queue {
	key := fmt.Sprint(d.Name(), n.Slots)
	if q, ok := renderings.Load(key); ok {
		return q.(sqlbatch.Queue)
	}
	q := d.Queue(n)
	renderings.Store(key, q)
	return q
}

func carrying(text string) func(*pair, faultdb.Op) bool {
	return func(_ *pair, op faultdb.Op) bool {
		return slices.ContainsFunc(op.Args, func(a driver.NamedValue) bool {
			switch v := a.Value.(type) {
			case []byte:
				return bytes.Contains(v, []byte(text))
			case string:
				return strings.Contains(v, text)
			}
			return false
		})
	}
}

func ofKind(kinds ...faultdb.Kind) func(*pair, faultdb.Op) bool {
	return func(_ *pair, op faultdb.Op) bool { return slices.Contains(kinds, op.Kind) }
}

var targets = []target{
	{name: "sends", meant: carrying("body-")},
	{name: "the send of one message", meant: carrying("body-1-003")},
	{name: "looks for what is stored", meant: is(func(q sqlbatch.Queue) []sqlbatch.Statement {
		return append(testdb.Stores(1, q.EnqueueNew), q.Find(nil, nil), q.Look(nil))
	})},
	{name: "claims", meant: is(func(q sqlbatch.Queue) []sqlbatch.Statement {
		return []sqlbatch.Statement{q.Claim(sqlbatch.ClaimParams{Rows: 1}), q.Rescue(sqlbatch.RescueParams{}), q.Contents(sqlbatch.Item{})}
	})},
	{name: "looks of idle consumers", meant: is(func(q sqlbatch.Queue) []sqlbatch.Statement {
		return []sqlbatch.Statement{q.NextDue(sqlbatch.Heads{}), q.Rescan(), q.Slots()}
	})},
	{name: "settles", meant: is(func(q sqlbatch.Queue) []sqlbatch.Statement {
		return []sqlbatch.Statement{q.Ack(nil), q.Nack(nil), q.Release(nil), q.DeadLetter(nil)}
	})},
	{name: "extensions", meant: is(func(q sqlbatch.Queue) []sqlbatch.Statement { return []sqlbatch.Statement{q.Extend([16]byte{}, nil, 0)} })},
	{name: "heartbeats", meant: is(func(q sqlbatch.Queue) []sqlbatch.Statement {
		return []sqlbatch.Statement{q.Join(sqlbatch.Consumer{}), q.Version()}
	})},
	{name: "reads", meant: ofKind(faultdb.Query)},
	{name: "commands", meant: ofKind(faultdb.Exec)},
	{name: "statements", meant: ofKind(faultdb.Exec, faultdb.Query)},
	{name: "commits", meant: ofKind(faultdb.Commit)},
	{name: "connections", meant: ofKind(faultdb.Connect)},
	{name: "a row, which is locked", rowLock: true},
	{name: "the consumer, which is given up", dies: true},
}

// verb is how an operation fails.
type verb struct {
	name string
	make func(*pair) faultdb.Fault
	ends bool // it also ends the connection
}

var verbs = []verb{
	{"broken", func(p *pair) faultdb.Fault { return faultdb.Cut(p.engine.Errors[sqlbatch.Unknown]) }, true},
	{"applied and broken", func(p *pair) faultdb.Fault { return faultdb.Cut(p.engine.Errors[sqlbatch.Unknown]).Applied() }, true},
	{"broken after a row", func(p *pair) faultdb.Fault { return faultdb.Cut(p.engine.Errors[sqlbatch.Unknown]).AfterRows(1) }, true},
	{"rolled back", func(p *pair) faultdb.Fault { return faultdb.Fail(p.engine.Errors[sqlbatch.RolledBack]) }, false},
	{"refused", func(p *pair) faultdb.Fault { return faultdb.Cut(p.engine.Errors[sqlbatch.Refused]) }, true},
	{"hanging", func(*pair) faultdb.Fault { return faultdb.Hang() }, true},
	{"applied and hanging", func(*pair) faultdb.Fault { return faultdb.Hang().Applied() }, true},
	{"slow", func(p *pair) faultdb.Fault {
		done := make(chan struct{})
		time.AfterFunc(300*time.Millisecond, func() { close(done) })
		return faultdb.Hold(done)
	}, true},
}

// fault affects some of the target's operations for a time.
type fault struct {
	p           *pair
	target      target
	verb        verb
	share       int // in quarters
	from, until time.Time
}

func (p *pair) drawFault() *fault {
	f := &fault{p: p, target: draw(p, targets...), verb: draw(p, verbs...), share: 1 + p.IntN(4)}
	for f.target.name == "commits" && !f.verb.ends {
		f.verb = draw(p, verbs...)
	}
	f.from = time.Now().Add(time.Duration(p.IntN(2000)) * time.Millisecond)
	f.until = f.from.Add(time.Duration(100+p.IntN(15_000)) * time.Millisecond)
	if f.until.After(p.heals) {
		p.heals = f.until
	}
	return f
}

func (f *fault) String() string {
	return fmt.Sprintf("%d/4 of %s %s from %v for %v", f.share, f.target.name, f.verb.name, time.Until(f.from), f.until.Sub(f.from))
}

func (f *fault) meets(op faultdb.Op) bool {
	if now := time.Now(); f.target.meant == nil || now.Before(f.from) || now.After(f.until) || !f.target.meant(f.p, op) {
		return false
	}
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return f.p.IntN(4) < f.share
}

// lockRow has another session lock the first row for a while, on engines with row locks.
func (p *pair) lockRow() {
	if p.engine.Dialect.Traits().OneWriter {
		return
	}
	var locker sync.WaitGroup
	locker.Go(func() {
		for time.Now().Before(p.heals) {
			tx, err := p.clean.BeginTx(context.Background(), nil)
			require.NoError(p, err)
			_, err = tx.ExecContext(context.Background(), "UPDATE TOP (1) chanq_work SET priority = priority")
			time.Sleep(time.Second)
			_ = tx.Rollback()
			require.NoError(p, err)
		}
	})
	p.Cleanup(locker.Wait)
}
