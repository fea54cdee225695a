package shards_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

// overFiles calls f with the queue over files.
func overFiles(ctx context.Context, files []string, f func(*chanqshards.Queue[string]) error) error {
	var shards []chanqshards.Shard
	for _, file := range files {
		connector, err := embedded.Connector(file)
		if err != nil {
			return err
		}
		db := sql.OpenDB(connector)
		defer db.Close()
		shards = append(shards, chanqshards.Shard{DB: db})
	}
	q, err := chanqshards.Open[string](ctx, shards, "orders", chanq.Config{})
	if err != nil {
		return err
	}
	return f(q)
}

// task is the task of a process that handles messages.
type task struct {
	Files []string
	Most  int64 // messages that it handles, before it holds the others until it is killed; 0: no limit
}

// consume is a process that handles the messages in the files until its input ends. It prints each message when it receives it and when it
// has finished it.
func consume(ctx context.Context, t task, _ <-chan string) error {
	return overFiles(ctx, t.Files, func(q *chanqshards.Queue[string]) error { return handleAndTell(ctx, q, t.Most) })
}

func handleAndTell(ctx context.Context, q *chanqshards.Queue[string], most int64) error {
	c, err := q.Consume(ctx, chanq.ConsumerConfig{LeaseFor: 500 * time.Millisecond, Prefetch: 20})
	if err != nil {
		return err
	}
	var out sync.Mutex
	var handled atomic.Int64
	tell := func(what, body string) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(what, body)
	}
	err = c.Handle(4, func(_ context.Context, l *chanq.Lease[string]) error {
		tell("got", l.Body)
		if most > 0 && handled.Load() >= most {
			<-ctx.Done()
		}
		if l.Ack() == nil && l.Wait(context.Background()) == nil {
			tell("done", l.Body)
			handled.Add(1)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.Shutdown(context.Background())
}

func TestNothingIsLostAlthoughProcessesAreKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testdb.SQLite, testdb.SQLite, testdb.SQLite)
	q := w.queue(chanq.Config{})
	p := w.produce(q, chanq.ProducerConfig{BatchRows: 10})
	all := bodies("a", 300)
	testdb.SendBy(w, p, all...)
	var files []string
	for _, place := range w.places {
		files = append(files, place.Address)
	}
	var mu sync.Mutex
	got, done := map[string]int{}, map[string]int{}
	var late []string
	for life := range 4 {
		enough := make(chan struct{})
		heard := 0
		t := task{Files: files}
		if life < 3 {
			t.Most = 40 // otherwise nothing might be left when it is killed
		}
		process, err := child.Start(context.Background(), "consumer", t, func(line string) {
			what, body, _ := strings.Cut(line, " ")
			mu.Lock()
			defer mu.Unlock()
			if what == "done" {
				done[body]++
			} else if got[body]++; done[body] > 0 {
				late = append(late, body)
			}
			if heard++; heard == 60 {
				close(enough)
			}
		})
		require.NoError(w, err)
		if life < 3 {
			testdb.Receive(w, enough, "some that it handled")
			require.NoError(w, process.Kill())
			continue
		}
		testdb.Eventually(w, "all are handled", func() bool {
			for _, place := range w.places { // without the delays of messages that several of the processes held
				place.Exec("UPDATE chanq_orders SET due_at = enqueued_at WHERE lapses > 1 AND leased_by IS NULL")
			}
			return w.counted(q) == chanqadmin.Stats{}
		})
		process.Stop()
		require.NoError(w, process.Wait())
	}
	mu.Lock()
	defer mu.Unlock()
	require.Empty(w, late, "finished messages are not redelivered")
	for _, m := range all {
		require.NotZero(w, got[m.Body], m.Body)
		require.LessOrEqual(w, done[m.Body], 1, m.Body)
	}
}

// errand is the task of a process that sends.
type errand struct {
	Files []string
	From  int // number of the first batch
}

// batch returns messages that are the same each time: half of them have an ID, half a DedupKey.
func batch(number int) []chanq.Message[string] {
	ms := bodies(fmt.Sprintf("%d.", number), 8)
	for i := range ms {
		if i%2 == 0 {
			sum := sha256.Sum256([]byte(ms[i].Body))
			ms[i].ID = chanq.ID(sum[:16])
		} else {
			ms[i].DedupKey = ms[i].Body
		}
	}
	return ms
}

// send is a process that sends one batch after another until its input ends, and prints each stored batch.
func send(ctx context.Context, e errand, _ <-chan string) error {
	return overFiles(ctx, e.Files, func(q *chanqshards.Queue[string]) error {
		p, err := q.Producer(ctx, chanq.ProducerConfig{BatchRows: 3})
		if err != nil {
			return err
		}
		for number := e.From; ctx.Err() == nil; number++ {
			if _, err := p.SendBatch(context.Background(), batch(number)...); err != nil {
				return err
			}
			fmt.Println(number)
		}
		return p.Close(context.Background())
	})
}

// Each process begins with the last confirmed batch of its killed predecessor, since the outcome of the next batch is unknown.
func TestConfirmedMessagesOfAKilledSenderAreStoredOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testdb.SQLite, testdb.SQLite, testdb.SQLite)
	q := w.queue(chanq.Config{})
	var files []string
	for _, place := range w.places {
		files = append(files, place.Address)
	}
	next := 0
	for life := range 4 {
		enough, heard := make(chan struct{}), 0
		next = max(0, next-1)
		process, err := child.Start(context.Background(), "sender", errand{files, next}, func(line string) {
			number, err := strconv.Atoi(line)
			if err != nil || number != next {
				t.Errorf("batch %d is followed by %q", next-1, line)
			}
			next++
			if heard++; heard == 15 {
				close(enough)
			}
		})
		require.NoError(w, err)
		testdb.Receive(w, enough, "some batches")
		if life < 3 {
			require.NoError(w, process.Kill()) // and waits for all its output
		} else {
			process.Stop()
			require.NoError(w, process.Wait())
		}
	}
	var want, stored []string
	for number := range next {
		for _, m := range batch(number) {
			want = append(want, m.Body)
		}
	}
	for _, e := range w.stored(q, chanqadmin.StateReady) {
		stored = append(stored, string(e.Body))
	}
	slices.Sort(want)
	slices.Sort(stored)
	require.Equal(w, want, stored)
}
