package chanq_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Invalid input: the error names the field and the rule, nothing is sent to the database, and
// nothing panics.

// opened returns a database that counts its operations, and a queue on it.
func opened(t *testing.T, cfg chanq.Config) (*faultdb.Connector, *sql.DB, *chanq.Queue[string]) {
	t.Helper()
	w := testdb.New(t, testdb.Memory)
	q := w.Queue("orders", cfg)
	return w.Faults, w.DB, q
}

// requireWords checks that an error contains all these words.
func requireWords(t *testing.T, err error, words ...string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, strings.HasPrefix(err.Error(), "chanq: "), err.Error())
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
}

type nilCodec struct{ chanq.Codec }

func TestAWrongConfigIsRefusedByItsField(t *testing.T) {
	faults, db, _ := opened(t, chanq.Config{})
	before := faults.Ops()
	for _, c := range []struct {
		field string
		cfg   chanq.Config
	}{
		{"Spec.MaxAttempts is -2", chanq.Config{Spec: chanq.Spec{MaxAttempts: -2}}},
		{"Spec.MaxAttempts is 1000001", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1_000_001}}},
		{"Spec.MaxBody is -1", chanq.Config{Spec: chanq.Spec{MaxBody: -1}}},
		{"Spec.MaxBody is 33554433", chanq.Config{Spec: chanq.Spec{MaxBody: 32<<20 + 1}}},
		{"Spec.Retain is -2ns", chanq.Config{Spec: chanq.Spec{Retain: -2}}},
		{"Spec.Retain", chanq.Config{Spec: chanq.Spec{Retain: sqlbatch.MaxDelay + 1}}},
		{"Config.Codec", chanq.Config{Codec: (*nilCodec)(nil)}},
		{"schema name", chanq.Config{Schema: strings.Repeat("x", 64)}},
		{"schema name", chanq.Config{Schema: "a\x00b"}},
	} {
		_, err := chanq.Open[string](t.Context(), db, "orders", c.cfg)
		requireWords(t, err, "open orders", c.field)
		requireWords(t, chanq.Migrate(t.Context(), db, "orders", c.cfg), "migrate orders", c.field)
	}
	all := chanq.Config{Spec: chanq.Spec{MaxAttempts: -2, MaxBody: -1, Retain: -2}}
	_, err := chanq.Open[string](t.Context(), db, "orders", all)
	requireWords(t, err, "Spec.MaxAttempts", "Spec.MaxBody", "Spec.Retain")
	require.Equal(t, before, faults.Ops())
}

func TestATypeIntoWhichNoJSONCanBeDecodedIsRefused(t *testing.T) {
	_, db, _ := opened(t, chanq.Config{})
	_, err := chanq.Open[io.Reader](t.Context(), db, "orders", chanq.Config{})
	requireWords(t, err, "open orders", "no JSON can be decoded into a io.Reader", "json.RawMessage")
	_, err = chanq.Open[any](t.Context(), db, "orders", chanq.Config{})
	require.NoError(t, err)
	_, err = chanq.Open[io.Reader](t.Context(), db, "orders", chanq.Config{Codec: struct{ chanq.Codec }{chanq.JSON}})
	require.NoError(t, err, "a codec may know the types behind an interface")
}

func TestADatabaseOfOneConnectionIsRefused(t *testing.T) {
	for dsn, refused := range map[string]bool{":memory:": true, "": true, "file::memory:?cache=shared": false} {
		db, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		defer db.Close()
		require.NoError(t, chanq.Migrate(t.Context(), db, "orders", chanq.Config{}))
		_, err = chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
		if refused {
			requireWords(t, err, "open orders", "each connection of the *sql.DB has another one",
				`embedded.Open(":memory:")`)
			requireWords(t, chanq.Migrate(t.Context(), db, "orders", chanq.Config{}), "migrate orders",
				"each connection")
		} else {
			require.NoError(t, err, dsn)
		}
	}
}

// A limit of one connection is the usual way to share a database in memory, and no reason to wait for another
// connection.
func TestADatabaseInMemoryWithOneConnectionIsMigratedImmediately(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"orders", "orders", "mails"} {
		require.NoError(t, chanq.Migrate(ctx, db, name, chanq.Config{}))
	}
	_, err = chanq.Open[string](ctx, db, "orders", chanq.Config{})
	requireWords(t, err, "SetMaxOpenConns(2)")
	db.SetMaxOpenConns(2) // the check of the other connection ends, though the program holds it
	held, err := db.Conn(ctx)
	require.NoError(t, err)
	defer held.Close()
	_, err = chanq.Open[string](ctx, db, "orders", chanq.Config{StatementTimeout: 100 * time.Millisecond})
	require.Error(t, err)
	require.NoError(t, ctx.Err())
}

func TestAWrongQueueNameIsRefused(t *testing.T) {
	faults, db, _ := opened(t, chanq.Config{})
	before := faults.Ops()
	for _, name := range []string{"", "Orders", "1orders", "_orders", "or-ders", "or ders", "or\"ders", "or'ders",
		"órders", "orders\n", "orders;drop", "a.b",
		strings.Repeat("o", 41), "orders__dead", "orders_", "_queues", "\x00"} {
		_, err := chanq.Open[string](t.Context(), db, name, chanq.Config{})
		requireWords(t, err, "queue name")
		requireWords(t, chanq.Migrate(t.Context(), db, name, chanq.Config{}), "queue name")
		_, err = chanq.Schema(chanq.DialectSQLite, name, chanq.Config{})
		requireWords(t, err, "queue name")
	}
	_, err := chanq.Open[string](t.Context(), db, strings.Repeat("o", 10_000), chanq.Config{})
	require.EqualError(t, err, `chanq: open: queue name "oooooooooooooooooooo"… of 10000 bytes: at most 40`)
	require.EqualError(t, chanq.Migrate(t.Context(), db, "Orders", chanq.Config{}),
		`chanq: migrate: queue name "Orders": must be words of a-z and 0-9 joined by single underscores, `+
			"the first one beginning with a letter")
	require.Equal(t, before, faults.Ops())
}

func TestAMissingDatabaseOrDialectIsRefused(t *testing.T) {
	_, err := chanq.Open[string](t.Context(), nil, "orders", chanq.Config{})
	requireWords(t, err, "db is nil")
	requireWords(t, chanq.Migrate(t.Context(), nil, "orders", chanq.Config{}), "db is nil")
	for _, dialect := range []chanq.Dialect{"", "oracle"} {
		_, err = chanq.Schema(dialect, "orders", chanq.Config{})
		requireWords(t, err, `the Dialect is "`+string(dialect)+`"`, `must be "sqlserver", "postgres" or "sqlite"`)
	}
	_, db, _ := opened(t, chanq.Config{})
	_, err = chanq.Open[string](t.Context(), db, "orders", chanq.Config{Dialect: "oracle", MaxCrashes: -1})
	requireWords(t, err, `Config.Dialect is "oracle"`, `must be "sqlserver", "postgres" or "sqlite"`,
		"Config.MaxCrashes is -1")

	unknown := sql.OpenDB(noConnector{})
	defer unknown.Close()
	var op *chanq.OpError
	_, err = chanq.Open[string](t.Context(), unknown, "orders", chanq.Config{})
	requireWords(t, err, "does not know the driver chanq_test.noDriver", "set Config.Dialect")
	require.ErrorAs(t, err, &op)
	require.Equal(t, [2]string{"open", "orders"}, [2]string{op.Op, op.Queue})
	cfg := chanq.Config{Dialect: chanq.DialectSQLite}
	_, err = chanq.Open[string](t.Context(), unknown, "orders", cfg)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorIs(t, err, chanq.ErrUnavailable, "the state of an unreachable database is unknown")
	require.ErrorAs(t, err, &op)
	require.Equal(t, [2]string{"open", "orders"}, [2]string{op.Op, op.Queue})
	require.ErrorIs(t, chanq.Migrate(t.Context(), unknown, "orders", cfg), chanq.ErrUnavailable)
	_, err = chanqadmin.Queues(t.Context(), unknown, cfg)
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

type (
	noConnector struct{}
	noDriver    struct{}
)

func (noConnector) Connect(context.Context) (driver.Conn, error) { return nil, io.ErrClosedPipe }
func (noConnector) Driver() driver.Driver                        { return noDriver{} }
func (noDriver) Open(string) (driver.Conn, error)                { return nil, io.ErrClosedPipe }

func TestTheErrorForAMissingTableNamesTheCommandThatCreatesIt(t *testing.T) {
	_, db, _ := opened(t, chanq.Config{})
	_, err := chanq.Open[string](t.Context(), db, "invoices", chanq.Config{})
	require.ErrorIs(t, err, chanq.ErrNoSchema)
	requireWords(t, err, "chanq.Migrate", "chanq migrate invoices")
	var op *chanq.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "open", op.Op)
	require.Equal(t, "invoices", op.Queue)
}

func TestTooFewConnectionsAreSaid(t *testing.T) {
	_, db, q := opened(t, chanq.Config{})
	db.SetMaxOpenConns(1)
	_, err := chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
	requireWords(t, err, "SetMaxOpenConns(2)")
	_, err = q.Consume(t.Context(), chanq.ConsumerConfig{})
	requireWords(t, err, "consume orders", "SetMaxOpenConns")
	_, err = q.Producer(t.Context(), chanq.ProducerConfig{})
	requireWords(t, err, "producer orders", "SetMaxOpenConns")
}

func TestAWrongProducerConfigIsRefusedByItsField(t *testing.T) {
	faults, _, q := opened(t, chanq.Config{})
	before := faults.Ops()
	for field, cfg := range map[string]chanq.ProducerConfig{
		"ProducerConfig.BatchRows is -1":          {BatchRows: -1},
		"ProducerConfig.BatchRows is 513":         {BatchRows: 513},
		"ProducerConfig.BatchBytes is -1":         {BatchBytes: -1},
		"ProducerConfig.BatchBytes is 33554433":   {BatchBytes: 32<<20 + 1},
		"ProducerConfig.Linger is -1ns":           {Linger: -1},
		"ProducerConfig.Linger is 1m0.000000001s": {Linger: time.Minute + 1},
		"ProducerConfig.InFlight is -1":           {InFlight: -1},
		"ProducerConfig.InFlight is 65":           {InFlight: 65},
		"ProducerConfig.BufferBytes is -1":        {BufferBytes: -1},
	} {
		_, err := q.Producer(t.Context(), cfg)
		requireWords(t, err, "producer orders", field, "must be 0 (the default")
	}
	require.Equal(t, before, faults.Ops())
}

func TestAWrongConsumerConfigIsRefusedByItsField(t *testing.T) {
	faults, _, q := opened(t, chanq.Config{})
	before := faults.Ops()
	for field, cfg := range map[string]chanq.ConsumerConfig{
		"ConsumerConfig.Name":                          {Name: strings.Repeat("x", 201)},
		"ConsumerConfig.Name is \"a\\x00b\"":           {Name: "a\x00b"},
		"ConsumerConfig.Name is \"\\xff\"":             {Name: "\xff"},
		"ConsumerConfig.Prefetch is -1":                {Prefetch: -1},
		"ConsumerConfig.Prefetch is 100001":            {Prefetch: 100_001},
		"ConsumerConfig.PrefetchBytes is -1":           {PrefetchBytes: -1},
		"ConsumerConfig.LeaseFor is -1ns":              {LeaseFor: -1},
		"ConsumerConfig.LeaseFor is 99ms":              {LeaseFor: 99 * time.Millisecond},
		"ConsumerConfig.MaxExtend is 1ns":              {MaxExtend: 1},
		"ConsumerConfig.PollEvery is -1ns":             {PollEvery: -1},
		"ConsumerConfig.PollEvery is 1h0m0.000000001s": {PollEvery: time.Hour + 1},
		"ConsumerConfig.MaxExtend is -1ns":             {MaxExtend: -1},
	} {
		_, err := q.Consume(t.Context(), cfg)
		requireWords(t, err, "consume orders", field)
	}
	_, err := q.Consume(t.Context(), chanq.ConsumerConfig{Prefetch: -1, LeaseFor: -1})
	requireWords(t, err, "Prefetch", "LeaseFor")
	require.Equal(t, before, faults.Ops())
}

func TestWrongArgumentsOfQueueCallsAreRefused(t *testing.T) {
	synctest.Test(t, wrongArguments)
}

func wrongArguments(t *testing.T) {
	faults, _, q := opened(t, chanq.Config{})
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{PollEvery: time.Hour})
	require.NoError(t, err)
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer c.Shutdown(soon)
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	defer p.Close(soon)
	_, err = p.Send(t.Context(), chanq.Message[string]{})
	require.NoError(t, err)
	l := <-c.C()
	c.Stop()
	_, open := <-c.C()
	require.False(t, open, "the consumer neither claims nor polls")
	synctest.Wait() // the work that Stop has started
	testdb.Admin(q) // opens it
	before := faults.Ops()

	nothing := func(context.Context, *chanq.Lease[string]) error { return nil }
	for words, call := range map[string]func() error{
		"list orders: List.Limit is -1": func() error {
			_, err := testdb.Peek(t.Context(), q,
				chanqadmin.StateReady, -1)
			return err
		},
		"list orders: state \"odd\"": func() error {
			_, err := testdb.Peek(t.Context(), q, "odd",
				1)
			return err
		},
		"purge orders: state \"\"":           func() error { _, err := testdb.Purge(t.Context(), q, ""); return err },
		"redrive orders: Change.Limit is -1": func() error { _, err := testdb.Redrive(t.Context(), q, -1); return err },
		"workers is 0":                       func() error { return c.Handle(0, nothing) },
		"fn must not be nil":                 func() error { return c.Handle(1, nil) },
		"tx must not be nil":                 func() error { return l.AckTx(t.Context(), nil) },
		"extend: span is 1ms":                func() error { return l.Extend(t.Context(), time.Millisecond) },
	} {
		requireWords(t, call(), words)
	}
	_, err = q.SendTx(t.Context(), nil, chanq.Message[string]{})
	requireWords(t, err, "tx must not be nil")
	receipts, err := p.SendBatch(t.Context())
	require.NoError(t, err)
	require.Empty(t, receipts)
	require.Equal(t, before, faults.Ops())
	require.NoError(t, l.Ack(), "none of it touched the lease")
	require.NoError(t, l.Wait(t.Context()))
}

func TestUnsentAndCloseReturnEachMessageOnce(t *testing.T) {
	synctest.Test(t, unsentOnce)
}

func unsentOnce(t *testing.T) {
	_, _, q := opened(t, chanq.Config{Spec: chanq.Spec{MaxBody: 10}})
	for range 50 {
		p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
		require.NoError(t, err)
		const n, calls = 50, 4
		for range n {
			p.C() <- chanq.Msg("longer than MaxBody")
		}
		lists := make(chan []chanq.Unsent[string], 10*calls+1)
		var calling sync.WaitGroup
		for range calls {
			calling.Go(func() {
				for range 10 {
					lists <- p.Unsent()
				}
			})
		}
		var left *chanq.UnsentError[string]
		if errors.As(p.Close(t.Context()), &left) {
			lists <- left.Unsent
		}
		calling.Wait()
		close(lists)
		seen := map[chanq.ID]bool{}
		for list := range lists {
			for _, u := range list {
				require.False(t, seen[u.Message.ID], "it is returned twice")
				seen[u.Message.ID] = true
			}
		}
		require.Len(t, seen, n)
	}
}

func TestHandlersMayWrapNil(t *testing.T) {
	require.NotPanics(t, func() {
		require.Empty(t, chanq.RetryAfter(time.Second, nil).Error())
		require.Equal(t, "dead-lettered by its handler, without an error", chanq.DeadLetter(nil).Error())
	})
	require.ErrorIs(t, chanq.RetryAfter(time.Second, io.EOF), io.EOF)
	require.ErrorIs(t, chanq.DeadLetter(io.EOF), io.EOF)
}

// SQLite statements read numbers from blobs, using the encoding of the file. With any encoding except UTF-8 they would
// silently store every body empty.
func TestAFileInUTF16IsRefused(t *testing.T) {
	for _, encoding := range []string{"UTF-16le", "UTF-16be", "UTF-16"} {
		db, err := embedded.Open(filepath.Join(t.TempDir(), "application.db"))
		require.NoError(t, err)
		defer db.Close()
		for _, text := range []string{"PRAGMA encoding = '" + encoding + "'", "CREATE TABLE application (name TEXT)"} {
			_, err = db.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		refused := func(err error) {
			t.Helper()
			require.ErrorContains(t, err, "PRAGMA encoding is UTF-16")
			require.ErrorContains(t, err, "made with PRAGMA encoding = 'UTF-8'")
		}
		refused(chanq.Migrate(t.Context(), db, "orders", chanq.Config{}))
		var tables int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master").Scan(&tables))
		require.Equal(t, 1, tables, "nothing was created")

		texts, err := chanq.Schema(chanq.DialectSQLite, "orders", chanq.Config{})
		require.NoError(t, err)
		for _, text := range texts {
			_, err = db.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		_, err = chanq.Open[string](t.Context(), db, "orders", chanq.Config{Durability: chanq.DurabilityAsIs})
		refused(err)
	}
}

func TestSchemasWhoseNamesAScriptWouldChangeAreRefused(t *testing.T) {
	for _, d := range []chanq.Dialect{chanq.DialectSQLServer, chanq.DialectPostgres, chanq.DialectSQLite} {
		_, err := chanq.Schema(d, "orders", chanq.Config{Schema: "a\nGO\nb"})
		requireWords(t, err, "schema name", "control characters")
	}
	_, err := chanq.Schema(chanq.DialectSQLServer, "orders", chanq.Config{Schema: "a$(b)"})
	requireWords(t, err, "Config.Schema", "sqlcmd")
	_, err = chanq.Schema(chanq.DialectPostgres, "orders", chanq.Config{Schema: "a$(b)"})
	require.NoError(t, err)
}

// The remedy is another database: the encoding of a session does not matter.
func TestADatabaseThatCannotHoldAllTextIsRefused(t *testing.T) {
	db := pgtest.Encoding(t, "LATIN1")
	_, err := chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
	require.ErrorIs(t, err, chanq.ErrNoSchema)
	texts, err := chanq.Schema(chanq.DialectPostgres, "orders", chanq.Config{})
	require.NoError(t, err)
	for _, text := range texts {
		_, err = db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	_, err = chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
	requireWords(t, err, "LATIN1", "ENCODING 'UTF8'", "cannot be changed")
	require.NotContains(t, err.Error(), "client_encoding")
}
