package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

var processes = []test{
	{"G01_MessagesOfAKilledProcessAreRedelivered", killedConsumer},
	{"G01_WhatAKilledProcessHasSentIsStored", killedProducer},
	{"G02_ProcessesShareAQueueWithoutTakingAMessageTwice", sharing},
	{"G07_AMessageThatCrashesItsProcessIsDeadLettered", killsProcesses},
	{"ManyProcessesMayMigrateSimultaneously", migratingProcesses},
}

// task is the input of a process that a test starts.
type task struct {
	Part, Engine, Address string
	Workers               int // number of handlers
}

// migrates is the part of a process that creates tables.
const migrates = "migrate"

// processPart is the only part of this package's child processes.
const processPart = "guarantees"

// parts are the programs of such a process, which run until its context ends. The test reads their
// standard output.
var parts = map[string]func(context.Context, *sql.DB, task) error{
	"hold": playHold,
	"send": playSend,
	"ack":  playAck,
	"die":  playDie,
	migrates: func(ctx context.Context, db *sql.DB, _ task) error {
		_, err := chanq.MigrateTables(ctx, db, chanq.Config{}, noteTables(1, 1))
		return errors.Join(err, chanq.Migrate(ctx, db, "work", chanq.Config{}))
	},
}

func play(ctx context.Context, t task, _ <-chan string) error {
	for _, e := range testdb.Engines() {
		if e.Name != t.Engine {
			continue
		}
		connect := e.Connect
		if t.Part == migrates {
			connect = e.ConnectTables
		}
		c, err := connect(t.Address)
		if err != nil {
			return err
		}
		db := sql.OpenDB(c)
		defer db.Close()
		return parts[t.Part](ctx, db, t)
	}
	return fmt.Errorf("unknown engine %q", t.Engine)
}

// playHold receives three leases and keeps them. None may expire before the process is killed.
func playHold(ctx context.Context, db *sql.DB, _ task) error {
	return consume(ctx, db, 2*steadyLease, func(c *chanq.Consumer[string]) error {
		for range 3 {
			fmt.Println((<-c.C()).Body)
		}
		<-ctx.Done()
		return nil
	})
}

// playSend sends until its context ends and prints the IDs of stored messages.
func playSend(ctx context.Context, db *sql.DB, _ task) error {
	q, err := chanq.Open[string](ctx, db, "work", chanq.Config{})
	if err != nil {
		return err
	}
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	for {
		r, err := p.Send(ctx, chanq.Message[string]{})
		if err != nil {
			return err
		}
		fmt.Println(r.ID)
	}
}

// playAck acks and prints the messages that it receives until its channel is closed.
func playAck(ctx context.Context, db *sql.DB, _ task) error {
	return consume(ctx, db, 30*time.Second, func(c *chanq.Consumer[string]) error {
		for l := range c.C() { // until ctx ends
			if err := l.Ack(); err != nil {
				return err
			}
			if err := l.Wait(context.Background()); err != nil {
				return err
			}
			fmt.Println(l.Body, l.Attempt)
		}
		return c.Shutdown(context.Background())
	})
}

// playDie exits at the first message, whose lease must not expire before.
func playDie(ctx context.Context, db *sql.DB, _ task) error {
	return consume(ctx, db, 3*shortLease, func(c *chanq.Consumer[string]) error {
		l := <-c.C()
		fmt.Println("attempt", l.Attempt)
		os.Exit(3)
		return nil
	})
}

func consume(ctx context.Context, db *sql.DB, leaseFor time.Duration, f func(*chanq.Consumer[string]) error) error {
	q, err := chanq.Open[string](ctx, db, "work", chanq.Config{})
	if err != nil {
		return err
	}
	c, err := q.Consume(ctx, chanq.ConsumerConfig{LeaseFor: leaseFor, PollEvery: 20 * time.Millisecond, Prefetch: 3})
	if err != nil {
		return err
	}
	return f(c)
}

// process is a child process that runs a part.
type process struct {
	*child.Process
	lines chan string // lines of its standard output
}

func (w *world) spawn(part string) *process {
	w.Helper()
	return w.spawnTo(task{Part: part})
}

func (w *world) spawnTo(t task) *process {
	w.Helper()
	t.Engine, t.Address = w.Engine.Name, w.Address
	p := &process{lines: make(chan string, 100_000)}
	var err error
	p.Process, err = child.Start(context.Background(), processPart, t, func(line string) { p.lines <- line })
	require.NoError(w, err)
	w.Cleanup(func() { _ = p.Kill() }) // it might have ended
	return p
}

func (p *process) line(w *world) string {
	w.Helper()
	select {
	case s := <-p.lines:
		return s
	case <-p.Ended():
		require.NotEmpty(w, p.lines, "the process ended: %v", p.Wait())
		return <-p.lines
	case <-time.After(testdb.Patience):
		require.Fail(w, "the process prints nothing")
	}
	return ""
}

// rest returns the unread output of a process that has ended.
func (p *process) rest() (said []string) {
	<-p.Ended()
	for len(p.lines) > 0 {
		said = append(said, <-p.lines)
	}
	return said
}

// shared skips tests that need a database that processes can share.
func (w *world) shared() *chanq.Queue[string] {
	if !w.Engine.Shared {
		w.Skipf("SKIPPED: %s cannot be shared by processes", w.Engine.Name)
	}
	return w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}})
}

func killedConsumer(w *world) {
	q := w.shared()
	sent := testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
	p := w.spawn("hold")
	for _, body := range []string{"a", "b", "c"} {
		require.Equal(w, body, p.line(w))
	}
	require.NoError(w, p.Kill())
	again := testdb.Leases(testdb.Lease(w, q, 3, time.Minute))
	require.ElementsMatch(w, sent, testdb.IDs(again))
	for _, l := range again {
		require.Equal(w, 2, l.Attempt)
	}
}

func killedProducer(w *world) {
	q := w.shared()
	p := w.spawn("send")
	var said []string
	for range 50 {
		said = append(said, p.line(w))
	}
	require.NoError(w, p.Kill())
	for _, s := range append(said, p.rest()...) {
		id, err := chanq.ParseID(s)
		require.NoError(w, err)
		require.Equal(w, chanqadmin.StateReady, testdb.Get(w, q, id).State)
	}
}

func sharing(w *world) {
	const count = 200
	q := w.shared()
	workers := []*process{w.spawn("ack"), w.spawn("ack"), w.spawn("ack")}
	p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 10})
	for _, m := range testdb.Texts(numbers(count)...) {
		p.C() <- m
	}
	require.NoError(w, p.Flush(w.Soon()))
	w.Eventually("all are acked", func() bool {
		return len(workers[0].lines)+len(workers[1].lines)+len(workers[2].lines) == count
	})
	seen := map[string]int{}
	for _, p := range workers {
		p.Stop()
		require.NoError(w, p.Wait())
		for _, s := range p.rest() {
			seen[s]++
		}
	}
	for _, n := range numbers(count) {
		require.Equal(w, 1, seen[n+" 1"], n)
	}
	require.Len(w, seen, count)
}

func killsProcesses(w *world) {
	q := w.shared()
	id := testdb.Send(w, q, testdb.Texts("deadly")...)[0]
	require.Equal(w, "attempt 1", w.spawn("die").line(w))
	require.Equal(w, "attempt 2", w.spawn("die").line(w), "without a delay")
	w.Exec("UPDATE chanq_work SET lapses = 7, attempts = 8") // after six more
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("it is dead", func() bool { return testdb.Get(w, q, id).State == chanqadmin.StateDead })
	require.Equal(w, []byte("deadly"), testdb.Get(w, q, id).Body)
	require.Empty(w, c.C())
}

func migratingProcesses(w *world) {
	if !w.Engine.Shared {
		w.Skipf("SKIPPED: %s cannot be shared by processes", w.Engine.Name)
	}
	w.Open()
	var all []*process
	for range testdb.Of(6, 16) {
		all = append(all, w.spawn(migrates))
	}
	for _, p := range all {
		require.NoError(w, p.Wait())
	}
	testdb.OpenOn[string](w, w.DB, "work", chanq.Config{})
}
