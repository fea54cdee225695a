package pgnotify_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"read": child.Does(read), "own": child.Does(own)})
	testdb.Together(8)
	goleak.VerifyTestMain(m)
}

func freeze(t *testing.T, pid int) { require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP)) }
func thaw(t *testing.T, pid int)   { require.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) }

// read consumes and acks until its input ends.
func read(ctx context.Context, dsn string, _ <-chan string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	notifier := pgnotify.New(db, pgnotify.Config{})
	defer notifier.Close()
	q, err := chanq.Open[string](ctx, db, "work", chanq.Config{Notifier: notifier})
	if err != nil {
		return err
	}
	c, err := q.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	for l := range c.C() {
		fmt.Println(l.Body)
		if err := l.Ack(); err != nil {
			return err
		}
	}
	return c.Shutdown(context.WithoutCancel(ctx))
}

// A stopped process keeps its listener slot and receives notifications without claiming. Other consumers find the messages at their
// next poll, and acquire the slot when the process is dead.
func TestAStoppedProcessDelaysNothingBeyondThePoll(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	p := databaseAt(t, config)
	p.migrate()
	lines := make(chan string, 100)
	stuck, err := child.Start(context.Background(), "read", dsn, func(line string) { lines <- line })
	require.NoError(t, err)
	defer func() { _ = stuck.Kill() }()
	testdb.Eventually(p, "it has a listener slot", func() bool { return len(p.taken()) == 1 })
	sends, _ := p.process()
	producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
	testdb.SendBy(p, producer, chanq.Message[string]{Body: "hello"})
	require.Equal(t, "hello", testdb.Receive(p, lines, "a message"))
	p.settle(200 * time.Millisecond) // the consumer has acked the message and is idle
	freeze(t, stuck.PID())
	reads, b := p.process()
	c := testdb.Start(p, reads, chanq.ConsumerConfig{})
	for range 8 {
		p.asleep(c, b)
		began := time.Now()
		p.pass(producer, c)
		require.Less(t, time.Since(began), 20*testdb.Slowness*time.Second) // the poll is every second, and the process is stopped until the end of the test
	}
	thaw(t, stuck.PID())
	require.NoError(t, stuck.Kill())
	testdb.Eventually(p, "its listener slot is free", func() bool { return len(p.taken()) == 1 })
	require.NoError(t, c.Shutdown(testdb.Soon(p)))
}

func TestNotificationsArriveAgainAfterACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.StartCluster(t)
	config, err := pgx.ParseConfig(server.DSN())
	require.NoError(t, err)
	p := databaseAt(t, config)
	p.migrate()
	sends, _ := p.process()
	reads, b := p.process()
	producer, c := testdb.Produce(p, sends, chanq.ProducerConfig{}), testdb.Start(p, reads, rarely)
	p.asleep(c, b)
	require.NoError(t, server.Crash())
	testdb.Eventually(p, "it is noticed", func() bool { return b.Err() != nil })
	require.NoError(t, server.Resume())
	back := time.Now()
	p.pass(producer, c)
	p.asleep(c, b)
	t.Log("asleep again after", time.Since(back))
	p.pass(producer, c)
}

// NOTIFY in a transaction that writes holds a lock of the whole server until the commit is on disk. The server logs waits of ten
// milliseconds for the lock, and its disk is slower than that. The same number of such transactions is compared.
func TestNoCommitWaitsForAnother(t *testing.T) {
	t.Parallel()
	server := pgtest.StartCluster(t, "fsync=on", "commit_delay=20000", "commit_siblings=0", "log_lock_waits=on", "deadlock_timeout=10ms")
	config, err := pgx.ParseConfig(server.DSN())
	require.NoError(t, err)
	p := databaseAt(t, config)
	p.migrate()
	waits := func() int {
		text, err := os.ReadFile(filepath.Join(config.Host, "log"))
		require.NoError(t, err)
		return strings.Count(string(text), "of database 0")
	}
	const senders, each = 8, 20
	reads, b := p.process()
	c := testdb.Start(p, reads, rarely)
	p.asleep(c, b)
	var sending sync.WaitGroup
	for range senders {
		sends, _ := p.process()
		producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
		sending.Go(func() {
			for range each {
				if _, err := producer.Send(testdb.Soon(p), chanq.Message[string]{Body: "a"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, l := range testdb.Take(p, c, senders*each) {
		require.NoError(t, l.Ack())
	}
	sending.Wait()
	require.NoError(t, c.Flush(testdb.Soon(p)))
	few := waits()

	_, err = p.admin.ExecContext(p.Context(), "CREATE TABLE others (n int)")
	require.NoError(t, err)
	for range senders {
		sending.Go(func() {
			for range each {
				if _, err := p.admin.ExecContext(p.Context(), "INSERT INTO others SELECT 1 FROM (SELECT pg_notify('others', '')) AS sent"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	many := waits() - few
	t.Logf("%d waits, and %d with a NOTIFY in each transaction that writes", few, many)
	require.Greater(t, many, each, "this test sees such waits")
	require.Less(t, 10*few, many, "a busy machine might stop a session for ten milliseconds while it holds the lock")
}
