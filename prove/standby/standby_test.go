package standby_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	timeout = 500 * time.Millisecond // Config.StatementTimeout: after it a statement is cancelled, and the server makes its rows visible
	bound   = 2500 * time.Millisecond
)

// drivers are how a driver treats a statement whose context ends: pgx closes the connection; others, such as lib/pq, wait for the answer
// to their cancellation.
var drivers = map[string]func(*pgconn.PgConn) ctxwatch.Handler{
	"closes": nil,
	"waits": func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: time.Minute}
	},
}

// While the standby is away, the primary confirms no commit. It makes rows visible when the wait of their commit is cancelled, and a
// repetition finds them. Then the primary is lost.
func TestNothingThatWasReportedStoredIsMissingOnThePromotedStandby(t *testing.T) {
	testdb.Long(t)
	primary := pgtest.StartCluster(t)
	standby := primary.Standby(t)
	admin := open(t, primary, nil)
	execute(t, admin, `ALTER SYSTEM SET synchronous_standby_names = 'standby'`)
	execute(t, admin, `SELECT pg_reload_conf()`)
	until(t, admin, `SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'`)

	p := &program{t: t}
	var kept, last []call // made before the standby is stopped
	for driver, watch := range drivers {
		p.db, p.driver = open(t, primary, watch), driver
		for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
			kept, last = append(kept, p.sends(kind, "kept")...), append(last, p.sends(kind, "last")...)
			kept, last = p.settles(kind, kept, last)
		}
	}

	require.NoError(t, standby.Crash())
	results := begin(t.Context(), kept)
	until(t, admin, `SELECT count(*) > 0 FROM chanq_closes_plain`)
	require.NoError(t, standby.Resume())
	reported := kept[:0]
	for i, err := range results() {
		var failed *chanq.OpError
		if errors.As(err, &failed) && failed.Unknown { // it claims nothing
			continue
		}
		require.NoError(t, err, kept[i].body)
		reported = append(reported, kept[i])
	}
	require.Greater(t, len(reported), len(results())/2)

	require.NoError(t, standby.Crash())
	until(t, admin, `SELECT count(*) = 0 FROM pg_stat_replication`)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for i, err := range begin(ctx, last)() {
		var failed *chanq.OpError
		c := last[i]
		switch {
		case err == nil:
			t.Errorf("%s: nil, though the standby is away", c.body)
		case c.sends && (!errors.As(err, &failed) || !failed.Unknown):
			assert.Zero(t, count(t, admin, c), "%s: %v", c.body, err)
		}
	}
	require.NoError(t, primary.Crash())
	p.end()

	require.NoError(t, standby.Resume())
	require.NoError(t, standby.Promote())
	promoted := open(t, standby, nil)
	for _, c := range reported {
		assert.Equal(t, c.left, count(t, promoted, c), "%s: messages on the promoted standby", c.body)
	}
}

// call is a call that claims something about the message with a body when it returns nil: left of them are in a table.
type call struct {
	table, body string
	input       string // of a Pipe, which may have nacked the message when the machine was slow: it is in one of the two tables
	left        int
	sends       bool // and nothing is stored if its error is not Unknown
	do          func(context.Context) error
}

// begin makes the calls concurrently. results waits for their errors.
func begin(ctx context.Context, calls []call) (results func() []error) {
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() { errs[i] = c.do(ctx) })
	}
	return func() []error {
		all.Wait()
		return errs
	}
}

// program sends and settles on one *sql.DB at a time.
type program struct {
	t      *testing.T
	db     *sql.DB
	driver string
	ends   []func(context.Context) // of producers and consumers
	sync.WaitGroup
}

func (p *program) queue(name string, kind chanq.Kind) *chanq.Queue[string] {
	cfg := chanq.Config{StatementTimeout: timeout, History: chanq.HistoryOff, Spec: chanq.Spec{Kind: kind}}
	require.NoError(p.t, chanq.Migrate(p.t.Context(), p.db, name, cfg))
	q, err := chanq.Open[string](p.t.Context(), p.db, name, cfg)
	require.NoError(p.t, err)
	return q
}

func (p *program) producer(q *chanq.Queue[string]) *chanq.Producer[string] {
	producer, err := q.Producer(context.WithoutCancel(p.t.Context()), chanq.ProducerConfig{})
	require.NoError(p.t, err)
	p.ends = append(p.ends, func(ctx context.Context) { _ = producer.Close(ctx) })
	return producer
}

func (p *program) sends(kind chanq.Kind, when string) (calls []call) {
	name, db := p.driver+"_"+kind.String(), p.db
	q := p.queue(name, kind)
	one, channel := p.producer(q), p.producer(q)
	add := func(what string, do func(ctx context.Context, m chanq.Message[string]) error) {
		c := call{body: fmt.Sprintf("%s, %s, %s", what, name, when), table: name, left: 1, sends: true}
		c.do = func(ctx context.Context) error { return do(ctx, chanq.Msg(c.body)) }
		calls = append(calls, c)
	}
	add("Queue.Send", func(ctx context.Context, m chanq.Message[string]) error {
		_, err := q.Send(ctx, m)
		return err
	})
	add("Queue.Send of several", func(ctx context.Context, m chanq.Message[string]) error {
		_, err := q.Send(ctx, m, chanq.Msg("another"))
		return err
	})
	add("Producer.Send", func(ctx context.Context, m chanq.Message[string]) error {
		_, err := one.Send(ctx, m)
		return err
	})
	add("SendBatch", func(ctx context.Context, m chanq.Message[string]) error {
		_, err := one.SendBatch(ctx, m, chanq.Msg("another"))
		return first(err)
	})
	add("a DedupKey", func(ctx context.Context, m chanq.Message[string]) error {
		m.DedupKey = m.Body
		_, err := one.Send(ctx, m)
		return err
	})
	add("the channel", func(ctx context.Context, m chanq.Message[string]) error {
		channel.C() <- m
		return channel.Flush(ctx)
	})
	calls[len(calls)-1].sends = false // Flush says only that it has not ended
	add("InTx", func(ctx context.Context, m chanq.Message[string]) (err error) {
		m.ID = chanq.NewID()
		for {
			err = inTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.SendTx(ctx, tx, m)
				return err
			})
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	})
	calls[len(calls)-1].sends = false // the last transaction might end before its commit
	add("a duplicate", func(ctx context.Context, m chanq.Message[string]) (err error) {
		id, key := chanq.NewID(), m.Body
		m.ID, m.DedupKey = id, key
		within, cancel := context.WithTimeout(ctx, timeout/2)
		defer cancel()
		_, err = q.Send(within, m) // visible when it is cancelled
		if err == nil {
			return nil
		}
		m.ID = chanq.NewID()
		receipts, err := q.Send(ctx, m)
		if err == nil && receipts[0].Duplicate && receipts[0].ID != id {
			return fmt.Errorf("a duplicate of %v, not of %v", receipts[0].ID, id)
		}
		return err
	})
	calls[len(calls)-1].sends = false // a message that is certainly a duplicate is certainly not stored
	return calls
}

// inTx is chanq.InTx, with as much time as a statement.
func inTx(ctx context.Context, db *sql.DB, fn func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return chanq.InTx(ctx, db, fn)
}

// first returns the error of the first message.
func first(err error) error {
	if batch := (*chanq.BatchError)(nil); errors.As(err, &batch) {
		return batch.Errs[0]
	}
	return err
}

// settles appends calls that settle leases.
func (p *program) settles(kind chanq.Kind, kept, last []call) (_, _ []call) {
	name := p.driver + "_settled_" + kind.String()
	q, in, out := p.queue(name, kind), p.queue(p.driver+"_in_"+kind.String(), kind), p.queue("out", chanq.KindPlain)
	ways := map[string]func(context.Context, *chanq.Lease[string]) error{
		"Ack": func(ctx context.Context, l *chanq.Lease[string]) error { return errors.Join(l.Ack(), l.Wait(ctx)) },
		"the function Ack": func(ctx context.Context, l *chanq.Lease[string]) error {
			return first(chanq.Ack(ctx, l))
		},
		"DeadLetter": func(ctx context.Context, l *chanq.Lease[string]) error {
			return errors.Join(l.Nack(chanq.DeadLetter(errors.New("poor"))), l.Wait(ctx))
		},
	}
	c, piped := p.consumer(q), p.consumer(in)
	goOn := map[string]chan struct{}{"kept": make(chan struct{}), "last": make(chan struct{})}
	began := make(chan *chanq.Lease[string])
	p.Go(func() {
		_ = chanq.Pipe(piped, out, len(goOn), func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			began <- l
			<-goOn[l.Type]
			return []chanq.Message[string]{chanq.Msg(l.Body)}, nil
		})
	})
	for when, calls := range map[string]*[]call{"kept": &kept, "last": &last} {
		for what, settle := range ways {
			l := p.deliver(q, c.C(), chanq.Message[string]{Body: fmt.Sprintf("%s, %s, %s", what, name, when)})
			*calls = append(*calls, call{table: name, body: l.Body, do: func(ctx context.Context) error { return settle(ctx, l) }})
		}
		l := p.deliver(in, began, chanq.Message[string]{Body: fmt.Sprintf("Pipe, %s, %s", name, when), Type: when})
		*calls = append(*calls, call{table: "out", input: in.Name(), body: l.Body, left: 1, do: func(ctx context.Context) error {
			close(goOn[when])
			return l.Wait(ctx)
		}})
	}
	return kept, last
}

func (p *program) consumer(q *chanq.Queue[string]) *chanq.Consumer[string] {
	c, err := q.Consume(context.WithoutCancel(p.t.Context()), chanq.ConsumerConfig{PollEvery: time.Minute})
	require.NoError(p.t, err)
	p.ends = append(p.ends, func(ctx context.Context) { _ = c.Shutdown(ctx) })
	return c
}

// deliver sends a message, with its own key in an ordered queue, and returns its lease.
func (p *program) deliver(q *chanq.Queue[string], leases <-chan *chanq.Lease[string], m chanq.Message[string]) *chanq.Lease[string] {
	if q.Spec().Kind == chanq.KindOrdered {
		m.Key = m.Body
	}
	_, err := q.Send(p.t.Context(), m)
	require.NoError(p.t, err)
	return <-leases
}

// end ends producers and consumers, whose database is away.
func (p *program) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, end := range p.ends {
		p.Go(func() { end(ctx) })
	}
	p.Wait()
}

func open(t *testing.T, c *pgtest.Cluster, watch func(*pgconn.PgConn) ctxwatch.Handler) *sql.DB {
	config, err := pgx.ParseConfig(c.DSN())
	require.NoError(t, err)
	if watch != nil {
		config.BuildContextWatcherHandler = watch
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func execute(t *testing.T, db *sql.DB, text string) {
	_, err := db.Exec(text)
	require.NoError(t, err)
}

// count returns how many messages with the body of a call are in its table.
func count(t *testing.T, db *sql.DB, c call) (sum int) {
	for _, table := range []string{c.table, c.input} {
		if n := 0; table != "" {
			require.NoError(t, db.QueryRow(`SELECT count(*) FROM chanq_`+table+` WHERE convert_from(body, 'UTF8') = $1`, c.body).Scan(&n))
			sum += n
		}
	}
	return sum
}

// until waits until a query returns true.
func until(t *testing.T, db *sql.DB, text string) {
	require.Eventually(t, func() bool {
		var is bool
		return db.QueryRow(text).Scan(&is) == nil && is
	}, testdb.Patience, 20*time.Millisecond, text)
}
