package guarantees

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

var processes = []test{
	{"G01_MessagesOfAKilledProcessAreDeliveredAgain", killedConsumer},
	{"G01_WhatAKilledProcessHasSentIsStored", killedProducer},
	{"G02_ProcessesShareAQueueWithoutTakingAMessageTwice", sharing},
	{"G07_AMessageThatKillsItsProcessIsSetAside", killsProcesses},
	{"ManyProcessesMayMigrateAtOnce", migratingProcesses},
}

// The parts that a process started by a test may play: the variable holds the
// part, the engine and the address, and standard output is read by the test.
const partVariable = "CHANQ_CONFORM_PART"

var parts = map[string]func(ctx context.Context, db *sql.DB) error{
	"hold":    playHold,
	"send":    playSend,
	"ack":     playAck,
	"die":     playDie,
	"migrate": func(ctx context.Context, db *sql.DB) error { return chanq.Migrate(ctx, db, "work", chanq.Config{}) },
}

func playPart(variable string, engines []Engine) int {
	part, where, _ := strings.Cut(variable, "|")
	name, address, _ := strings.Cut(where, "|")
	for _, e := range engines {
		if e.Name != name {
			continue
		}
		c, err := e.Connect(address)
		if err == nil {
			db := sql.OpenDB(c)
			defer db.Close()
			err = parts[part](context.Background(), db)
		}
		if err != nil {
			fmt.Println("error:", err)
			return 1
		}
		return 0
	}
	return 1
}

// playHold takes three leases and keeps them.
func playHold(ctx context.Context, db *sql.DB) error {
	return consume(ctx, db, shortLease, func(c *chanq.Consumer[string]) error {
		for range 3 {
			fmt.Println((<-c.C()).Body)
		}
		select {}
	})
}

// playSend sends for ever and says what is stored.
func playSend(ctx context.Context, db *sql.DB) error {
	q, err := chanq.Open[string](ctx, db, "work", chanq.Config{})
	if err != nil {
		return err
	}
	p, err := q.Producer(chanq.ProducerConfig{})
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

// playAck acks what it gets and says so, until its input ends.
func playAck(ctx context.Context, db *sql.DB) error {
	return consume(ctx, db, 30*time.Second, func(c *chanq.Consumer[string]) error {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			c.Stop()
		}()
		for l := range c.C() {
			if err := l.Ack(); err != nil {
				return err
			}
			if err := l.Wait(ctx); err != nil {
				return err
			}
			fmt.Println(l.Body, l.Attempt)
		}
		return c.Shutdown(ctx)
	})
}

// playDie dies of the first message.
func playDie(ctx context.Context, db *sql.DB) error {
	return consume(ctx, db, shortLease, func(c *chanq.Consumer[string]) error {
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
	c, err := q.Consume(ctx, chanq.ConsumerConfig{LeaseFor: leaseFor, PollMax: 20 * time.Millisecond, Prefetch: 3})
	if err != nil {
		return err
	}
	return f(c)
}

// process is a process that plays a part.
type process struct {
	*exec.Cmd
	lines chan string // of its standard output; closed at its end
	stop  io.WriteCloser
}

func (w *world) spawn(part string) *process {
	w.Helper()
	self, err := os.Executable()
	require.NoError(w, err)
	p := &process{Cmd: exec.Command(self), lines: make(chan string, 10_000)}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%s", partVariable, part, w.engine.Name, w.address))
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	require.NoError(w, err)
	p.stop, err = p.StdinPipe()
	require.NoError(w, err)
	require.NoError(w, p.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	var end sync.Once
	w.Cleanup(func() {
		end.Do(func() {
			_ = p.Process.Kill() // it may have ended
			<-read
			_ = p.Wait()
		})
	})
	return p
}

func (p *process) line(w *world) string {
	w.Helper()
	select {
	case s, open := <-p.lines:
		require.True(w, open, "the process ended")
		return s
	case <-time.After(patience):
		require.Fail(w, "the process says nothing")
	}
	return ""
}

// shared skips what needs a database that processes can share.
func (w *world) shared() *chanq.Queue[string] {
	if !w.engine.Shared {
		w.Skipf("SKIPPED: %s cannot be shared by processes", w.engine.Name)
	}
	return w.queue("work", chanq.Config{MaxAttempts: 2})
}

func killedConsumer(w *world) {
	q := w.shared()
	sent := send(w, q, texts("a", "b", "c")...)
	p := w.spawn("hold")
	for _, body := range []string{"a", "b", "c"} {
		require.Equal(w, body, p.line(w))
	}
	require.NoError(w, p.Process.Kill())
	again := lease(w, q, 3, time.Minute)
	require.ElementsMatch(w, sent, ids(again))
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
	require.NoError(w, p.Process.Kill())
	for s := range p.lines {
		said = append(said, s)
	}
	for _, s := range said {
		if id, err := chanq.ParseID(s); err == nil { // the last line may be cut
			require.Equal(w, chanq.StateReady, get(w, q, id).State)
		}
	}
}

func sharing(w *world) {
	const count = 200
	q := w.shared()
	workers := []*process{w.spawn("ack"), w.spawn("ack"), w.spawn("ack")}
	p := produce(w, q, chanq.ProducerConfig{BatchRows: 10})
	for _, m := range texts(numbers(count)...) {
		p.C() <- m
	}
	require.NoError(w, p.Flush(w.soon()))
	w.eventually("all are acked", func() bool {
		return len(workers[0].lines)+len(workers[1].lines)+len(workers[2].lines) == count
	})
	seen := map[string]int{}
	for _, p := range workers {
		require.NoError(w, p.stop.Close())
		for s := range p.lines {
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
	id := send(w, q, texts("deadly")...)[0]
	for attempt := 1; attempt <= 3; attempt++ { // the last as the only suspect
		require.Equal(w, fmt.Sprint("attempt ", attempt), w.spawn("die").line(w))
	}
	c := start(w, q, chanq.ConsumerConfig{})
	w.eventually("it is dead", func() bool { return get(w, q, id).State == chanq.StateDead })
	require.Equal(w, []byte("deadly"), get(w, q, id).Body)
	require.Empty(w, c.C())
}

func migratingProcesses(w *world) {
	if !w.engine.Shared {
		w.Skipf("SKIPPED: %s cannot be shared by processes", w.engine.Name)
	}
	w.open()
	var all []*process
	for range 6 {
		all = append(all, w.spawn("migrate"))
	}
	for _, p := range all {
		for s := range p.lines {
			require.Fail(w, s)
		}
	}
	openOn[string](w, w.db, "work", chanq.Config{})
}
