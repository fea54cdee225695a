package chanq

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// faulty panics where one kind of statement is built. Each goroutine of chanq builds statements outside
// of the driver.
type faulty struct {
	sqlbatch.Queue
	at string
}

func (f faulty) fault(at string) {
	if f.at == at {
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

// meetFault makes a goroutine panic, and waits for at most a minute. The panic ends the program
// earlier.
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

// TestAPanicOfTheDriverEndsTheProgram: also if the goroutine that called chanq recovers from panics, as servers do. database/sql and the
// driver might have left locks that nothing opens.
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
			require.Contains(t, string(out), "panic: oh, in a statement of chanq\n", where)
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
	source := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "q.db")) + "?_txlock=immediate&_pragma=synchronous(FULL)"
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
