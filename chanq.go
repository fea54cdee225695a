// Package chanq turns a table in a SQL database into Go channels.
//
// A Producer groups sends into multi-row INSERTs. A Consumer claims batches
// ahead of the reader and delivers them on a buffered channel of leases; Ack
// and Nack are grouped into periodic statements. SQL Server is the database it
// is made for; the same code runs on PostgreSQL, and on SQLite with nothing to
// install.
//
// Delivery is at least once. Each claim of a message has a fence, an integer
// that rises with every claim, and every later write names it: a consumer that
// outlived its lease cannot settle a message that another one holds.
//
// Begin with Migrate, once, and Open. Queue.Producer sends: by a channel
// (Producer.C) or waiting for the database (Producer.Send). Queue.Consume reads:
// Consumer.C, Consumer.All and Consumer.Batches yield leases to settle, and
// Consumer.Handle calls a function in a pool of workers. Pipe makes a stage of a
// pipeline, and Queue.TryLease serves programs that look once and end.
//
// Producer.SendTx, Lease.AckTx and AckTx join the caller's transaction: a message
// and the rows that it belongs to are stored together or not at all.
//
// One message travels so:
//
//	Producer.Send → group commit (send.go, enqueue.go) → INSERT (sqlbatch)
//	→ claim (claim.go, claimed.go) → Consumer.C → your code
//	→ Lease.Ack (lease.go) → grouped settle (settle.go, settle_store.go) → DELETE
//
// while the keeper (keeper.go) extends the leases of what is held.
package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Config says how a queue is stored. The zero value is right for most. Nothing of
// it is kept in the database: give the same to all programs that use a queue.
type Config struct {
	// Dialect is the SQL to speak. Default: found from the *sql.DB's driver.
	Dialect sqlbatch.Dialect
	// Schema that holds the tables. Default: dbo on SQL Server, public on
	// PostgreSQL, main on SQLite.
	Schema string
	// Codec of bodies that are neither []byte, string nor json.RawMessage.
	// Default JSON.
	Codec Codec
	// Durability: what to do about a database that may lose a commit after it has
	// confirmed it (delayed durability of SQL Server, synchronous_commit = off of
	// PostgreSQL, synchronous below FULL of SQLite). Default DurabilityRequired: Open
	// and Migrate refuse it with ErrNotDurable, as they find it for their connection.
	Durability Durability
	// Hooks are told of what happens. Default none.
	Hooks Hooks
	// MaxAttempts is how often a message is delivered before it is set aside as
	// dead: by the Nack of the last attempt, or, when that one's process died, by
	// the claim that would be the next. A message whose last lease ran out while others
	// may have been to blame is delivered once more, without them; so with 1 or 2, or
	// after attempts that failed otherwise, there may be one attempt more. A Nack takes
	// what only lapsed before out of the count: messages that lay beside one that kills
	// its process keep their attempts for failures of their own. Default 10,
	// at most 1,000,000.
	MaxAttempts int
	// MaxBody is the most bytes of an encoded body; a larger one is refused with
	// ErrTooLarge. Default 1 MiB, at most 256 MiB.
	MaxBody int
	// Retain keeps acked messages in the done table for this long. Default 0:
	// they are deleted. Of messages sent again with one ID it keeps the last, on
	// SQL Server each.
	Retain time.Duration
	// SessionMaxAge is how old a connection of a producer or consumer may become
	// before it is replaced, in the manner of SetConnMaxLifetime, which does not see
	// connections that are in use for so long: after a switch to another server by
	// DNS they would stay with the old one. It is renewed, too, when it was idle for a
	// minute. A statement or transaction that is under way is never cut. Default
	// 30 min, at least 100 ms. Connections to SQLite are not renewed.
	SessionMaxAge time.Duration
}

const (
	defaultMaxAttempts = 10
	defaultMaxBody     = 1 << 20
)

func (c Config) withDefaults() (Config, error) {
	v := validator{}
	v.limit("Config.MaxAttempts", &c.MaxAttempts, defaultMaxAttempts, 1, 1_000_000)
	v.limit("Config.MaxBody", &c.MaxBody, defaultMaxBody, 1, 256<<20)
	v.duration("Config.Retain", &c.Retain, 0, 0, sqlbatch.MaxDelay)
	v.duration("Config.SessionMaxAge", &c.SessionMaxAge, 30*time.Minute, 100*time.Millisecond, sqlbatch.MaxDelay)
	if c.Durability > DurabilityAsIs {
		v.fail("Config.Durability is %d: must be DurabilityRequired (%d, the default) or DurabilityAsIs (%d)", c.Durability, DurabilityRequired, DurabilityAsIs)
	}
	if c.Codec == nil {
		c.Codec = JSON
	} else if isNil(c.Codec) {
		v.fail("Config.Codec: a nil %T; leave it unset for JSON", c.Codec)
	}
	return c, v.err()
}

// Schema lists the statements that Migrate would run for a queue whose tables
// do not exist, in order, for a database administrator to read and run. Each
// may be run again without harm. For SQL Server the schema's name must not have $(
// in it, which sqlcmd would replace. d is sqlbatch.SQLServer, sqlbatch.Postgres or
// sqlbatch.SQLite.
func Schema(d sqlbatch.Dialect, queue string, cfg Config) ([]string, error) {
	if isNil(d) {
		return nil, errors.New("chanq: schema: dialect is nil; give sqlbatch.SQLServer, sqlbatch.Postgres or sqlbatch.SQLite")
	}
	names := sqlbatch.Names{Schema: cfg.Schema, Queue: queue}
	if err := sqlbatch.CheckNames(names); err != nil {
		return nil, fmt.Errorf("chanq: schema: %w", err)
	}
	if d.Name() == sqlbatch.SQLServer.Name() && strings.Contains(cfg.Schema, "$(") {
		return nil, fmt.Errorf("chanq: schema: schema name %q: sqlcmd would put the value of a variable in the place of $(…); use Migrate", cfg.Schema)
	}
	var texts []string
	for _, m := range d.Migrations(names) {
		texts = append(texts, m.Statements...)
	}
	return texts, nil
}

// Open connects to a queue whose tables Migrate has made. It costs two round
// trips and starts nothing; a Queue need not be closed. It never changes the
// schema: ErrNoSchema and ErrNewerSchema say what to do. It refuses a database that
// would break chanq's promises, and says what would mend it: tables of before the
// first release, an encoding that cannot hold all messages, and commits that may be
// lost (ErrNotDurable; see Config.Durability). The caller keeps db, and closes it
// after the last Producer and Consumer have ended.
func Open[T any](ctx context.Context, db *sql.DB, queue string, cfg Config) (*Queue[T], error) {
	core, err := newQueue("open", db, queue, cfg)
	if err != nil {
		return nil, err
	}
	if err := session.Enough(db); err != nil {
		return nil, fmt.Errorf("chanq: open %s: %w", queue, err)
	}
	s := openOnce(db, core.dialect)
	defer s.close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return s.Run(ctx, st, scan) }
	version, err := core.version(run)
	if err != nil {
		return nil, &OpError{Op: "open", Queue: queue, Err: err}
	}
	switch {
	case version < sqlbatch.Version:
		return nil, &OpError{Op: "open", Queue: queue, Err: fmt.Errorf("%w of version %d (found %d); run chanq.Migrate, or the command: chanq migrate %s",
			ErrNoSchema, sqlbatch.Version, version, queue)}
	case version > sqlbatch.Version:
		return nil, &OpError{Op: "open", Queue: queue, Err: fmt.Errorf("%w: version %d, this chanq knows %d; upgrade this program",
			ErrNewerSchema, version, sqlbatch.Version)}
	}
	if err := core.trust(run); err != nil {
		return nil, &OpError{Op: "open", Queue: queue, Err: err}
	}
	return &Queue[T]{core: core}, nil
}

// findDialect knows drivers by their package, so that none is imported here.
func findDialect(db *sql.DB) (sqlbatch.Dialect, error) {
	t := reflect.TypeOf(db.Driver())
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch path := t.PkgPath(); {
	case path == "github.com/microsoft/go-mssqldb", strings.HasPrefix(path, "github.com/microsoft/go-mssqldb/"):
		return sqlbatch.SQLServer, nil
	case strings.HasPrefix(path, "github.com/jackc/pgx/") && strings.HasSuffix(path, "/stdlib"), path == "github.com/lib/pq":
		return sqlbatch.Postgres, nil
	case path == "modernc.org/sqlite":
		return sqlbatch.SQLite, nil
	default:
		return nil, fmt.Errorf("unknown driver %s (%s): set Config.Dialect to sqlbatch.SQLServer, sqlbatch.Postgres or sqlbatch.SQLite", t, path)
	}
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Interface, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// validator collects what is wrong with a config, so that all is said at once.
type validator struct{ errs []error }

func (v *validator) fail(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

func (v *validator) err() error { return errors.Join(v.errs...) }

// limit sets a zero field to its default and checks its bounds.
func (v *validator) limit(field string, value *int, standard, low, high int) {
	if *value == 0 {
		*value = standard
	} else if *value < low || *value > high {
		v.fail("%s is %d: must be 0 (the default, %d) or from %d to %d", field, *value, standard, low, high)
	}
}

func (v *validator) duration(field string, value *time.Duration, standard, low, high time.Duration) {
	if *value == 0 {
		*value = standard
	} else if *value < low || *value > high {
		v.fail("%s is %v: must be 0 (the default, %v) or from %v to %v", field, *value, standard, low, high)
	}
}
