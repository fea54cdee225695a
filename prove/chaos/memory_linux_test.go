package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

const (
	memoryPart  = "starve"
	memoryLimit = 128 << 20 // bytes of data of a consumer, as ulimit -d sets it
	memoryBody  = 30 << 20  // of the message for which it has too little memory
	memoryMost  = 32 << 20  // Config.MaxBody

	deathsOfOne = 3 // Config.MaxCrashes: the default takes half an hour
)

func init() { parts[memoryPart] = child.Does(starve) }

// memoryTask is the task of a consumer with little memory.
type memoryTask struct {
	testdb.Place
	Decodes bool // its codec needs memory, and not the body itself
}

func (t memoryTask) config() chanq.Config {
	return chanq.Config{Spec: chanq.Spec{MaxBody: memoryMost}, Codec: hungry{t.Decodes}, MaxCrashes: deathsOfOne}
}

// hungry is a codec of texts that needs more memory than is available for one of them.
type hungry struct{ decodes bool }

// text is passed to a codec, which a string is not.
type text struct{ value string }

const feast = "feast"

var eaten [][]byte

func (hungry) Encode(body any) ([]byte, error) { return []byte(body.(text).value), nil }
func (h hungry) Decode(data []byte, body any) error {
	for h.decodes && string(data) == feast {
		eaten = append(eaten, make([]byte, 1<<20)) // one large piece would pass the limit, because the runtime has reserved its addresses
	}
	body.(*text).value = string(data)
	return nil
}

// starve handles messages until its input or its memory ends.
func starve(ctx context.Context, t memoryTask, _ <-chan string) error {
	debug.SetGCPercent(100) // testdb sets more
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: memoryLimit, Max: memoryLimit}); err != nil {
		return err
	}
	db, err := t.Open()
	if err != nil {
		return err
	}
	q, err := chanq.Open[text](ctx, db, "starving", t.config())
	if err != nil {
		return err
	}
	c, err := q.Consume(ctx, chanq.ConsumerConfig{LeaseFor: 2 * time.Second, PollEvery: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	err = c.Handle(4, func(_ context.Context, l *chanq.Lease[text]) error {
		fmt.Println(l.Body.value)
		return nil
	})
	if err != nil {
		return err
	}
	return c.Shutdown(context.Background())
}

func TestOnlyTheMessageThatExhaustsMemoryIsDeadLettered(t *testing.T) {
	testdb.Long(t)
	t.Setenv("GOMAXPROCS", "2")
	smallStacks(t) // the stack of each thread counts as data of its process
	for _, c := range []struct {
		engine  testdb.Engine
		decodes bool
	}{{testdb.SQLite, true}, {testdb.Postgres, true}, {testdb.Postgres, false}} {
		t.Run(fmt.Sprintf("%s/decodes=%t", c.engine.Name, c.decodes), func(t *testing.T) {
			t.Parallel() // with each other: they wait most of the time
			testdb.Run(t, c.engine, func(w *testdb.World) { starving(w, c.decodes) })
		})
	}
}

// smallStacks limits the stacks of threads of the processes that the test starts.
func smallStacks(t *testing.T) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_STACK, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_STACK, &syscall.Rlimit{Cur: 1 << 20, Max: before.Max}))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_STACK, &before)) })
}

func starving(w *testdb.World, decodes bool) {
	w.Open()
	task := memoryTask{w.Place(), decodes}
	q := testdb.QueueOf[text](w, "starving", task.config())
	ms := make([]chanq.Message[text], 10)
	for i := range ms {
		ms[i].Body.value = fmt.Sprint(i)
	}
	ms[3].Body.value = feast
	if !decodes {
		ms[3].Body.value = strings.Repeat("x", memoryBody)
	}
	id := testdb.Send(w, q, ms...)[3]
	var mu sync.Mutex
	seen := map[string]bool{}
	deaths := 0
	for !testdb.Empty(w, q) {
		p, err := child.Start(context.Background(), memoryPart, task, func(line string) {
			mu.Lock()
			defer mu.Unlock()
			seen[line] = true
		})
		require.NoError(w, err)
		for alive := true; alive && !testdb.Empty(w, q); {
			select {
			case <-p.Ended():
				alive = false
				deaths++
				require.Error(w, p.Wait())
			case <-time.After(50 * time.Millisecond):
			}
		}
		require.LessOrEqual(w, deaths, 10*deathsOfOne, "one process after the other; some fail to start a thread")
		p.Stop()
		<-p.Ended()
	}
	require.GreaterOrEqual(w, deaths, deathsOfOne)
	require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDead, e.State)
	require.True(w, bytes.Equal([]byte(ms[3].Body.value), e.Body))
	mu.Lock()
	defer mu.Unlock()
	delete(seen, feast) // the runtime might notice the lack of memory a moment later
	require.Len(w, seen, len(ms)-1)
}
