package chanq

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

func TestTheBufferKeepsWithinItsBytes(t *testing.T) {
	q := openTestQueue[[]byte](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	c := testConsumer(t, q, ConsumerConfig{PrefetchBytes: 300_000})
	for range 16 { // the first claim does not know the size of bodies
		_, err := p.Send(t.Context(), Message[[]byte]{Body: make([]byte, 100_000)})
		require.NoError(t, err)
		require.NoError(t, (<-c.C()).Ack())
	}
	ms := make([]Message[[]byte], 50)
	for i := range ms {
		ms[i].Body = make([]byte, 100_000)
	}
	_, err := p.SendBatch(t.Context(), ms...)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return c.Stats().Buffered == 3 }, time.Minute, time.Millisecond)
	require.Never(t, func() bool { return c.Stats().Buffered > 3 }, 300*time.Millisecond, 5*time.Millisecond)
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestAHandlersOddErrorsStillSettleTheMessage(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		backoff func(*Delivery, error) time.Duration
	}{
		"a delay beyond all bounds": {err: RetryAfter(290*365*24*time.Hour, errors.New("busy"))},
		"an Error that panics":      {err: (*nilError)(nil)},
		"a Backoff that panics": {err: errors.New("busy"),
			backoff: func(*Delivery, error) time.Duration { panic("no") }},
		"a Backoff without end": {err: errors.New("busy"),
			backoff: func(*Delivery, error) time.Duration { return 1<<63 - 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			q := openTestQueue[string](t, Config{})
			p := testProducer(t, q, ProducerConfig{})
			_, err := p.Send(t.Context(), Message[string]{})
			require.NoError(t, err)
			c := testConsumer(t, q, ConsumerConfig{Backoff: test.backoff})
			require.NoError(t, c.Handle(1, func(context.Context, *Lease[string]) error {
				c.Stop()
				return test.err
			}))
			require.NoError(t, c.Shutdown(soon(t)))
			require.EqualValues(t, 1, c.Stats().Nacked)
		})
	}
}

func TestALeaseOfASlowClaimIsExtendedBeforeTheNextTick(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.Send(t.Context(), Message[string]{})
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Hour})
	l := <-c.C()
	require.NoError(t, l.Extend(t.Context(), time.Minute)) // the time that a slow claim leaves
	require.Eventually(t, func() bool { return time.Until(l.Deadline()) > 30*time.Minute }, time.Minute,
		time.Millisecond)
	require.NoError(t, l.Ack())
}

func TestAckAllReturnsTheSameForALeaseThatIsGivenTwice(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	_, err := testProducer(t, q, ProducerConfig{}).Send(t.Context(), Message[int]{})
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{})
	l := <-c.C()
	c.Stop()
	require.NoError(t, l.Release())
	var batch *BatchError
	require.ErrorAs(t, Ack(soon(t), l, l), &batch)
	require.ErrorIs(t, batch.Errs[0], ErrSettled)
	require.ErrorIs(t, batch.Errs[1], ErrSettled)
}

func TestAnAckOfUnknownOutcomeIsDoneOnlyWhileTheLeaseRuns(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	for _, test := range []struct {
		name string
		late bool
	}{{"while it runs", false}, {"after it ran out", true}} {
		t.Run(test.name, func(t *testing.T) {
			_, err := p.Send(t.Context(), Message[string]{Body: "x"})
			require.NoError(t, err)
			c := testConsumer(t, q, ConsumerConfig{})
			delivered := <-c.C()
			l := delivered.lease
			_, err = q.Cancel(t.Context(), delivered.ID) // whichever attempt deleted the row
			require.NoError(t, err)
			require.True(t, l.Take(lease.Ack))
			if test.late {
				l.Period.Begin(base.Now(), 0)
			}
			l.Rare.Write().MaybeApplied = true
			require.NoError(t, l.Home.Owner.Settle(t.Context(), l))
			err = delivered.Wait(soon(t))
			if !test.late {
				require.NoError(t, err)
				return
			}
			var op *OpError
			require.ErrorAs(t, err, &op)
			require.True(t, op.Unknown)
		})
	}
}

func TestWhatLeasesShareIsSmall(t *testing.T) {
	require.LessOrEqual(t, claim.SlabLeases*(unsafe.Sizeof(lease.Lease{})+unsafe.Sizeof(Lease[[]byte]{}))+
		4*table.Chunk, uintptr(64<<10), "the slabs, and chunks that a slab's bytes may lie in")
	rows := make([]table.Claimed, 100)
	for i := range rows {
		rows[i].Body = make([]byte, 10)
	}
	require.Equal(t, claim.SlabLeases, sharing[[]byte](rows))
	require.Equal(t, claim.SlabLeases, sharing[string](rows))
	require.Equal(t, 1, sharing[map[string]any](rows), "a codec may make a value of any size")
	rows[3].Body = make([]byte, slabBytes)
	require.Equal(t, 3, sharing[[]byte](rows))
	require.Equal(t, 1, sharing[[]byte](rows[3:]))
	rows[1].Headers = make([]byte, slabBytes/headersGrow)
	require.Equal(t, 1, sharing[[]byte](rows), "headers are larger when they are decoded")
}

func TestABackoffThatFailsIsReplacedByTheDefault(t *testing.T) {
	for name, backoff := range map[string]func(*Delivery, error) time.Duration{
		"panic":           func(*Delivery, error) time.Duration { panic("no delay") },
		"goexit":          func(*Delivery, error) time.Duration { runtime.Goexit(); return 0 },
		"negative":        func(*Delivery, error) time.Duration { return -1 },
		"overflow":        func(*Delivery, error) time.Duration { return math.MinInt64 },
		"above a century": func(*Delivery, error) time.Duration { return math.MaxInt64 },
	} {
		c := &consumer{cfg: ConsumerConfig{Backoff: backoff}}
		for range 100 {
			d := c.backoff(&Delivery{Attempt: 1}, nil)
			require.GreaterOrEqual(t, d, time.Millisecond, name)
			require.LessOrEqual(t, d, time.Second+time.Millisecond, name)
		}
	}
	c := &consumer{cfg: ConsumerConfig{Backoff: func(*Delivery, error) time.Duration { return 0 }}}
	require.Zero(t, c.backoff(&Delivery{Attempt: 1}, nil), "at once is a delay")
}

func TestLeasesThatExpiredDoNotCountForTheBackoff(t *testing.T) {
	d := &Delivery{Attempt: 9, lease: &lease.Lease{Attempt: 9, Lapses: 8}}
	for range 100 {
		require.LessOrEqual(t, ExponentialBackoff(time.Second, time.Hour)(d, nil), time.Second+time.Millisecond)
	}
}

func TestAnExponentialBackoffNeverOverflows(t *testing.T) {
	for _, high := range []time.Duration{math.MaxInt64, 1 << 62, 200 * 365 * 24 * time.Hour} {
		delay := ExponentialBackoff(time.Second, high)
		for _, attempt := range []int{34, 35, 70, 1000, math.MaxInt} {
			longest := time.Duration(0)
			for range 50 {
				d := delay(&Delivery{Attempt: attempt}, nil)
				require.Positive(t, d)
				longest = max(longest, d)
			}
			require.Greater(t, longest, 365*24*time.Hour, "attempt %d", attempt)
		}
	}
}

func TestWithoutAHookACallOfAHandlerAllocatesNothing(t *testing.T) {
	c, d := &consumer{queue: &queue{}}, &Delivery{}
	require.Zero(t, testing.AllocsPerRun(100, func() { c.handled(d, HandlerOutcome{Kind: OutcomeAck}, 1, nil) }))
	l, fn := &Lease[string]{}, Handler[string](func(context.Context, *Lease[string]) error { return nil })
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = invoke(c, l, fn) }), "nor does one without Middleware")
}

// BenchmarkHook measures the overhead of calling a hook.
func BenchmarkHook(b *testing.B) {
	n := 0
	hook := func(SentEvent) { n++ }
	b.Run("call=apart", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			call(hook, SentEvent{Queue: "q"})
		}
	})
	b.Run("call=plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hook(SentEvent{Queue: "q"})
		}
	})
}

// faulty panics where one kind of statement is built. Each goroutine of chanq builds statements outside
// of the driver.
type faulty struct {
	sqlbatch.Queue
	at string
}

func (f faulty) fault(at string) {
	if f.at == at {
		endSoon()
		panic("a fault of chanq")
	}
}

func (f faulty) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	f.fault("claim")
	return f.Queue.Claim(p)
}

func (f faulty) Read(p sqlbatch.ReadParams) sqlbatch.Statement {
	f.fault("read")
	return f.Queue.Read(p)
}

func (f faulty) Extend(consumer [16]byte, items []sqlbatch.Item, d time.Duration) sqlbatch.Statement {
	f.fault("extend")
	return f.Queue.Extend(consumer, items, d)
}

func (f faulty) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	f.fault("ack")
	return f.Queue.Ack(items)
}

func (f faulty) Join(m sqlbatch.Consumer) sqlbatch.Statement {
	f.fault("join")
	return f.Queue.Join(m)
}

func (f faulty) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement {
	f.fault("enqueue")
	return f.Queue.Enqueue(rows)
}

func (f faulty) InOwnTx() sqlbatch.Queue { // a pipe's transaction
	f.fault("pipe")
	return f.Queue.InOwnTx()
}

func (f faulty) Sample(s sqlbatch.Sample) sqlbatch.Statement {
	f.fault("sample")
	return f.Queue.Sample(s)
}

// endSoon ends the program without an error if the panic that follows has not ended it within a second.
func endSoon() { time.AfterFunc(time.Second, func() { os.Exit(0) }) }

// TestAFaultOfChanqEndsTheProgram runs itself as a program for each goroutine. If a goroutine ended and
// the program continued, leases would not be extended, or calls would not return.
func TestAFaultOfChanqEndsTheProgram(t *testing.T) {
	const variable = "CHANQ_FAULT"
	if at := os.Getenv(variable); at != "" {
		meetFault(t, at)
		return
	}
	for _, at := range []string{"claim", "read", "extend", "ack", "join", "enqueue", "pipe", "sample"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAFaultOfChanqEndsTheProgram$")
			program.Env = append(os.Environ(), variable+"="+at, "TMPDIR="+t.TempDir())
			out, err := program.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), "panic: a fault of chanq")
		})
	}
}

// meetFault makes a goroutine panic, and waits for at most a minute.
func meetFault(t *testing.T, at string) {
	cfg, ms := Config{}, make([]Message[string], 2)
	if at == "read" {
		cfg = Config{Spec: Spec{Kind: KindOrdered}}
		ms[0].Key, ms[1].Key = "a", "a"
	}
	q := openTestQueue[string](t, cfg)
	q.core.recorder.Every = time.Millisecond
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.SendBatch(t.Context(), ms...)
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	q.core.table.SQL = faulty{q.core.table.SQL, at}
	p = testProducer(t, q, ProducerConfig{})
	c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Second, Prefetch: 2})
	switch at {
	case "enqueue":
		_, err = p.Send(soon(t), Message[string]{})
	case "pipe":
		err = Pipe(c, q, 2, func(context.Context, *Lease[string]) ([]Message[string], error) { return nil, nil })
	case "ack":
		err = (<-c.C()).Ack()
	case "extend": // a lease that ends while the program pauses makes room for a claim
		go func() {
			for range c.C() {
			}
		}()
	}
	<-soon(t).Done()
	require.Fail(t, "the program continues", err)
}

// TestAPanicOfTheDriverEndsTheProgram: also if the goroutine that called chanq recovers from panics, as servers do.
// database/sql and the driver might have left locks that nothing opens.
func TestAPanicOfTheDriverEndsTheProgram(t *testing.T) {
	const variable = "CHANQ_PANIC"
	if where := os.Getenv(variable); where != "" {
		meetPanic(t, where)
		return
	}
	for _, where := range []string{"claim", "ack", "pipe", "call", "caller"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAPanicOfTheDriverEndsTheProgram$")
			program.Env = append(os.Environ(), variable+"="+where, "TMPDIR="+t.TempDir())
			out, err := program.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), "panic: oh, in chanq\n", where)
			require.Contains(t, string(out), "faultdb", "the stack of the driver")
		})
	}
}

// connector opens connections of a data source.
type connector struct {
	driver driver.Driver
	source string
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.source) }
func (c connector) Driver() driver.Driver                        { return c.driver }

// meetPanic makes the driver panic, and waits for at most 10 s.
func meetPanic(t *testing.T, where string) {
	source := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "q.db")) +
		"?_txlock=immediate&_pragma=synchronous(FULL)"
	faults := faultdb.New(connector{openSQLite(t).Driver(), source})
	db := sql.OpenDB(faults)
	require.NoError(t, Migrate(t.Context(), db, "orders", Config{}))
	q, err := Open[string](t.Context(), db, "orders", Config{})
	require.NoError(t, err)
	_, err = q.Send(t.Context(), Message[string]{})
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{})
	panics := func(texts ...string) {
		faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if slices.Contains(texts, op.Text) || op.Kind == faultdb.Begin {
				endSoon()
				return faultdb.Panic(errors.New("oh"))
			}
			return faultdb.Fault{}
		})
	}
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	st := q.core.table.SQL
	switch where {
	case "claim":
		panics(st.Claim(sqlbatch.ClaimParams{Rows: 1}).Text)
		(<-c.C()).Release()
	case "ack":
		panics(st.Ack(make([]sqlbatch.Item, 1)).Text, st.SkipLocked().Ack(make([]sqlbatch.Item, 1)).Text)
		err = (<-c.C()).Ack()
	case "pipe":
		panics()
		err = Pipe(c, q, 2, func(context.Context, *Lease[string]) ([]Message[string], error) { return nil, nil })
	case "call":
		panics(st.Empty().Text)
		_, err = q.Empty(within)
	case "caller":
		panics(st.Enqueue(make([]sqlbatch.Row, 1)).Text)
		func() {
			defer func() { _ = recover() }()
			_, err = q.Send(within, Message[string]{})
		}()
	}
	<-within.Done()
	panic(fmt.Sprint("the program continues: ", err)) // without a cleanup, which might wait
}

// TestHandleTakesTheLeasesOfSeveralConsumers: each consumer counts the calls for its leases.
func TestHandleTakesTheLeasesOfSeveralConsumers(t *testing.T) {
	merged := make(chan *Lease[string], 2)
	var consumers []*Consumer[string]
	for range 2 {
		q := openTestQueue[string](t, Config{})
		_, err := testProducer(t, q, ProducerConfig{}).Send(soon(t), Message[string]{})
		require.NoError(t, err)
		c := testConsumer(t, q, ConsumerConfig{})
		merged <- <-c.C()
		consumers = append(consumers, c)
	}
	close(merged)
	require.NoError(t, Handle(merged, 2, func(context.Context, *Lease[string]) error { return nil }))
	for _, c := range consumers {
		require.NoError(t, c.Flush(soon(t)))
		require.Equal(t, int64(1), c.Stats().Acked)
	}
	require.ErrorContains(t, Handle(merged, 0, func(context.Context, *Lease[string]) error { return nil }),
		"workers is 0")
	require.ErrorContains(t, Handle(merged, 1, nil), "fn must not be nil")
}
