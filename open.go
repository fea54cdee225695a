package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Open and Migrate: the checks of the tables and of the settings of the database, and the statements of administrators.

func openCore(ctx context.Context, db *sql.DB, name string, cfg Config) (*queue, error) {
	core, err := newQueue("open", db, name, cfg)
	if err != nil {
		return nil, err
	}
	err = session.Within(ctx, core.cfg.StatementTimeout, func(ctx context.Context) error {
		return session.Enough(ctx, db, core.table.Dialect)
	})
	if err != nil {
		return nil, core.failed("open", core.unanswered(err))
	}
	s := session.OpenOnce(db, core.table.Dialect) // open during trust, which looks whether other connections differ
	defer s.Close()
	run := func(st sqlbatch.Statement, scan session.Scan) error {
		return session.Within(ctx, core.cfg.StatementTimeout,
			func(ctx context.Context) error { return s.Run(ctx, st, scan) })
	}
	tables := schema{core, run}
	found, err := tables.unlocked()
	if err == nil {
		err = tables.check(found)
	}
	if err == nil {
		core.adopt(found)
		err = tables.trust(ctx)
	}
	if err != nil {
		return nil, core.failed("open", core.unanswered(err))
	}
	return core, nil
}

// openCoreTx is openCore in the caller's transaction.
func openCoreTx(ctx context.Context, tx Tx, db *sql.DB, name string, cfg Config) (*queue, error) {
	core, err := newQueue("open", db, name, cfg)
	if err != nil {
		return nil, err
	}
	run := func(st sqlbatch.Statement, scan session.Scan) error { return session.RunTx(ctx, tx, st, scan) }
	tables := schema{core, run}
	found, err := tables.storedBy(core.table.SQL.InTx().Version())
	if err == nil {
		err = tables.check(found)
	}
	if err != nil {
		return nil, core.failTx("open", err)
	}
	core.adopt(found)
	return core, nil
}

// unfitError is the reason why a database cannot be used. Retrying does not help.
type unfitError struct{ error }

func (e *unfitError) Unwrap() error { return e.error }

// check returns an unfitError if the stored queue differs from Config.
func (s schema) check(found stored) error {
	err := found.Unusable()
	switch {
	case found.Version == 0:
		err = fmt.Errorf("%w: there is no such queue; run chanq.Migrate, or the command: chanq migrate %s", ErrNoSchema,
			s.q.names.Queue)
	case found.Version < sqlbatch.Version:
		err = fmt.Errorf("%w of version %d (found %d); run chanq.Migrate, or the command: chanq migrate %s",
			ErrNoSchema, sqlbatch.Version, found.Version, s.q.names.Queue)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrNewerSchema, err)
	default:
		err = cmp.Or(s.q.cfg.Spec.differs(found.spec(), false), found.shard.isNot(s.q.cfg.Shard))
	}
	if err != nil {
		return &unfitError{err}
	}
	return nil
}

// Durability controls whether Open and Migrate accept a database that can lose confirmed commits.
type Durability uint8

// The durabilities.
const (
	// DurabilityRequired refuses such a database with ErrNotDurable.
	DurabilityRequired Durability = iota
	// DurabilityAsIs accepts it. Commits are then faster, and a crash of the server (SQLite: of the machine) undoes the
	// last ones: messages whose Send returned nil are lost, acked messages are redelivered, two consumers can hold one
	// message.
	DurabilityAsIs
)

// trust returns an unfitError if settings of the database would break the guarantees of chanq. It costs one round trip,
// and needs no tables.
func (s schema) trust(ctx context.Context) error {
	found := map[string][]string{}
	err := s.run(s.q.table.SQL.Problems(), func(rows *sql.Rows) error {
		var kind, what string
		err := rows.Scan(&kind, &what)
		found[kind] = append(found[kind], what)
		return err
	})
	if err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	var reasons []error
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		list := found[kind]
		what, remedy := strings.Join(list, ", "), s.q.table.Dialect.Traits().Remedies[kind]
		switch {
		case kind == sqlbatch.ProblemForm:
			reasons = append(reasons, fmt.Errorf("tables from before the first release of chanq (%s): rename "+
				"chanq_%[2]s, chanq_%[2]s_dead and chanq_%[2]s_done with their indexes and constraints, run "+
				"chanq.Migrate, and send their messages again", what, s.q.names.Queue))
		case kind == sqlbatch.ProblemDurability && s.q.cfg.Durability == DurabilityAsIs:
		case kind == sqlbatch.ProblemMemory && s.shared(ctx):
		case kind == sqlbatch.ProblemSets && len(list) > 1: // the driver has passed on both
		case kind == sqlbatch.ProblemDurability:
			reasons = append(reasons, fmt.Errorf("%w: %s: %s; or set Config.Durability to DurabilityAsIs",
				ErrNotDurable, what, remedy))
		case remedy == "":
			reasons = append(reasons, errors.New(what))
		default:
			reasons = append(reasons, fmt.Errorf("%s: %s", what, remedy))
		}
	}
	if err := errors.Join(reasons...); err != nil {
		return &unfitError{err}
	}
	return nil
}

// shared reports whether the other connections of the *sql.DB have the tables of this one.
func (s schema) shared(ctx context.Context) bool {
	return s.q.db.Stats().MaxOpenConnections == 1 || // there are no others
		session.Within(ctx, s.q.cfg.StatementTimeout, func(ctx context.Context) error {
			return s.q.db.QueryRowContext(ctx, "SELECT 1 FROM sqlite_master").Scan(new(int))
		}) == nil
}

// runner runs a statement, on a session or in a transaction, and passes each of its rows to scan.
type runner = func(st sqlbatch.Statement, scan session.Scan) error

// schema is the tables of a queue in its database.
type schema struct {
	q   *queue
	run runner
}

// stored is what the database stores for a queue.
type stored struct {
	table.Stored
	shard ShardMark
}

func (s stored) spec() Spec { return specOf(s.Slots, s.Policy) }

// unlocked is stored without the lock of Migrate.
func (s schema) unlocked() (found stored, err error) { return withoutLock(s.q, s.stored) }

// withoutLock calls read without the lock of Migrate. SQLite may answer with an error while another process creates the
// tables, so it is then asked once more.
func withoutLock[R any](q *queue, read func() (R, error)) (found R, err error) {
	found, err = read()
	changed := (*sqlbatch.RunError)(nil)
	if q.table.Dialect.Traits().PrepareTells &&
		(errors.As(err, &changed) || q.classify(err) == sqlbatch.RolledBack) {
		return read()
	}
	return found, err
}

// stored reads what the database stores for the queue, in one round trip. Without tables the version is 0.
func (s schema) stored() (stored, error) { return s.storedBy(s.q.table.SQL.Version()) }

func (s schema) storedBy(version sqlbatch.Statement) (found stored, err error) {
	err = s.run(version, found.Scan)
	found.shard = ShardMark{Index: found.ShardIndex, Count: found.ShardCount}
	if err == nil && found.ShardCount > 0 {
		found.shard.Set, err = ParseID(found.ShardSet)
	}
	if err != nil && s.q.classify(err) == sqlbatch.NoSchema {
		return stored{}, nil
	}
	return found, err
}

// adopt applies what the database stores for the queue.
func (q *queue) adopt(s stored) {
	q.cfg.Shard, q.identity = s.shard, s.Identity
	q.table.SetPolicy(s.Policy)
	q.table.Ordered, q.signals.Debouncer.Ordered = s.Slots > 0, s.Slots > 0
	q.signals.Debouncer.Notifier = notifierOf(q.db, q.cfg.Notifier, s.Slots > 0)
	if n, ages := q.cfg.Notifier.(interface{ SessionMaxAge(time.Duration) }); ages {
		n.SessionMaxAge(q.cfg.SessionMaxAge)
	}
	q.render(s.Slots)
}

// StoredConfig returns cfg with the stored Spec and Shard of a queue, and with its Dialect, for programs that open
// shards one by one. Clear the Spec before Open, or a later Configure is ErrSpec. It costs one round trip. The error
// can be ErrNoSchema.
func StoredConfig(ctx context.Context, db *sql.DB, queue string, cfg Config) (Config, error) {
	asked := cfg
	asked.Spec, asked.Shard = Spec{}, ShardMark{}
	q, err := newQueue("open", db, queue, asked)
	if err != nil {
		return cfg, err
	}
	s := q.reading(ctx)
	found, err := s.unlocked()
	if err == nil && found.Version == 0 {
		err = s.check(found)
	}
	if err != nil {
		return cfg, q.failed("open", q.unanswered(err))
	}
	cfg.Dialect, cfg.Spec, cfg.Shard = Dialect(q.table.Dialect.Name()), found.spec(), found.shard
	return cfg, nil
}

// Migrate creates a queue with Config.Spec, or brings an existing one up to date and stores the fields of Config.Spec
// except zero ones. An older program stores its own again: docs/operate/schema.md. Call it in a deployment,
// or when your programs start: repeatedly, simultaneously, while producers and consumers run. It makes all changes in
// one transaction under a lock. If there is nothing to change, it costs three round trips and takes no lock.
//
// Your role needs permission to create tables in the schema, which must exist on SQL Server. For an existing queue
// permission to update its row is enough. Migrate refuses what Open refuses, and another Spec.Kind or Spec.Slots
// (ErrSpec).
func Migrate(ctx context.Context, db *sql.DB, queue string, cfg Config) error {
	return migrate(ctx, db, queue, cfg, "")
}

// CheckMigrate returns the error of Migrate, with the same cost and locks, and rolls back.
func CheckMigrate(ctx context.Context, db *sql.DB, queue string, cfg Config) error {
	return migrate(ctx, db, queue, cfg, "ROLLBACK")
}

// migrate runs the statements of Migrate. end is the last one, or "" for COMMIT.
func migrate(ctx context.Context, db *sql.DB, queue string, cfg Config, end string) error {
	q, err := newQueue("migrate", db, queue, cfg)
	if err != nil {
		return err
	}
	return q.migrating(ctx, func(s schema) error { return s.migrate(ctx, end) })
}

// reading returns the schema, on any connection.
func (q *queue) reading(ctx context.Context) schema {
	return schema{q, func(st sqlbatch.Statement, scan session.Scan) error { return q.once(ctx, st, scan) }}
}

// migrating calls do with a connection, which a transaction that do has begun does not outlive.
func (q *queue) migrating(ctx context.Context, do func(schema) error) error {
	conn, err := q.db.Conn(ctx)
	if err != nil {
		return q.failed("migrate", q.unanswered(fmt.Errorf("connect: %w", err)))
	}
	defer conn.Close()
	run := func(st sqlbatch.Statement, scan session.Scan) error {
		return session.RunOn(ctx, conn, q.table.Dialect, st, scan)
	}
	if err := do(schema{q, run}); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the transaction ends with the connection
		return q.failed("migrate", err)
	}
	return nil
}

func (s schema) migrate(ctx context.Context, end string) error {
	if err := s.trust(ctx); err != nil {
		return err
	}
	_, whole, changes, err := s.look(s.unlocked)
	if err != nil || whole && !changes {
		return err
	}
	if err := s.begin(whole, end == ""); err != nil {
		return err
	}
	spec, whole, _, err := s.look(s.stored) // under the lock: another process might have been first
	if err != nil {
		return err
	}
	record := s.q.table.SQL.Configure(spec.policy()) // the permission to update the row is enough
	if !whole {
		if s.q.cfg.Shard.Count > 0 && s.q.cfg.Shard.Set.IsZero() {
			s.q.cfg.Shard.Set = NewID()
			s.q.render(spec.Slots)
		}
		if err := s.apply(); err != nil {
			return err
		}
		record = s.q.table.SQL.Record(sqlbatch.Version, spec.policy())
	}
	if err := s.run(record, nil); err != nil {
		return err
	}
	return s.run(sqlbatch.Statement{Text: cmp.Or(end, s.q.table.Dialect.Commit())}, nil)
}

// look returns the new Spec of the queue; whether its tables of this version exist, with their indexes, and those that
// all queues share; and, if so, whether the Spec differs from the stored one. Tables that the role can neither see nor
// create count as existing.
func (s schema) look(read func() (stored, error)) (spec Spec, whole, changes bool, err error) {
	found, err := read()
	if err == nil {
		spec, err = s.change(found)
	}
	s.q.render(spec.Slots)
	if err != nil || found.Version < sqlbatch.Version {
		return spec, false, false, err
	}
	missing := 0
	err = s.run(s.q.table.SQL.Missing(), func(rows *sql.Rows) error { return rows.Scan(&missing) })
	return spec, missing == 0, spec != found.spec(), err
}

// begin begins the transaction of a migration, which excludes all others. Unless the queue is whole, the table of
// queues may be missing.
func (s schema) begin(whole, prepare bool) error {
	texts := s.q.table.Dialect.Begin()
	if !whole {
		if prepare {
			if err := s.prepare(); err != nil {
				return err
			}
		}
		registry := s.q.table.Dialect.Migrations(s.q.names)[0]
		texts = slices.Concat(texts, registry.Statements[:registry.Registry])
	}
	return runAll(s.run, texts)
}

func (s schema) apply() (err error) {
	for _, m := range s.q.table.Dialect.Migrations(s.q.names) {
		texts := m.Statements
		for _, f := range m.Formers {
			former := func(*sql.Rows) error { texts = slices.Concat(f.Add, texts); return nil }
			if err == nil {
				err = s.run(sqlbatch.Statement{Text: f.Ask}, former)
			}
		}
		if err == nil {
			err = runAll(s.run, texts)
		}
		if err != nil {
			return fmt.Errorf("migration %d: %w", m.Number, err)
		}
	}
	return nil
}

// prepare prepares a database that has no table.
func (s schema) prepare() error {
	fresh := s.q.table.Dialect.Fresh(s.q.names)
	if fresh.Ask == "" {
		return nil
	}
	found := false
	err := s.run(sqlbatch.Statement{Text: fresh.Ask}, func(*sql.Rows) error { found = true; return nil })
	if err != nil || !found {
		return err
	}
	return runAll(s.run, []string{fresh.Set, fresh.Rewrite})
}

// change returns the new Spec of the queue.
func (s schema) change(found stored) (spec Spec, err error) {
	cfg := s.q.cfg
	if found.Version == 0 {
		if cfg.Shard.Index > 0 && cfg.Shard.Set.IsZero() {
			return spec, errors.New("Config.Shard.Set is zero: must be that of shard 0, which Migrate generates and " +
				"StoredConfig returns")
		}
		return cfg.Spec.complete()
	}
	if err := found.Unusable(); err != nil {
		return spec, fmt.Errorf("%w: %w", ErrNewerSchema, err)
	}
	if err := cmp.Or(cfg.Spec.differs(found.spec(), true), found.shard.isNot(cfg.Shard)); err != nil {
		return spec, err
	}
	return cfg.Spec.over(found.spec()).complete()
}

func runAll(run runner, texts []string) error {
	for _, text := range texts {
		if err := run(sqlbatch.Statement{Text: text}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Schema returns the statements that Migrate would run for a new queue, in order, for your database administrator to
// run. Each can be run repeatedly. On SQL Server the schema's name must not contain $(, which sqlcmd would replace.
func Schema(d Dialect, queue string, cfg Config) ([]string, error) {
	dialect, names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	var texts []string
	if set := dialect.Fresh(names).Set; set != "" {
		texts = append(texts, set)
	}
	for _, m := range dialect.Migrations(names) {
		texts = append(texts, m.Statements...)
	}
	return texts, nil
}

// View returns the statements that create the view chanq_<queue>__messages of an existing queue, for people and
// programs in other languages: see docs/guides/sql.md. Migrate creates no view; chanqadmin.Drop removes it. The rules
// of Schema apply.
func View(d Dialect, queue string, cfg Config) ([]string, error) {
	dialect, names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	return dialect.View(names), nil
}

// Procedures returns the statements that create the procedure chanq_<queue>__send (on PostgreSQL a function), by which
// programs in other languages send messages: see docs/guides/sql.md. The rules of View apply. SQLite has no procedures:
// errors.ErrUnsupported.
func Procedures(d Dialect, queue string, cfg Config) ([]string, error) {
	dialect, names, err := printable(d, queue, cfg)
	if err != nil {
		return nil, err
	}
	texts := dialect.Procedures(names)
	if len(texts) == 0 {
		return nil, fmt.Errorf("chanq: schema: %s has no procedures: %w", d, errors.ErrUnsupported)
	}
	return texts, nil
}

// printable returns the dialect and the names for statements that are printed.
func printable(dialect Dialect, queue string, cfg Config) (sqlbatch.Dialect, sqlbatch.Names, error) {
	refuse := func(err error) (sqlbatch.Dialect, sqlbatch.Names, error) {
		return nil, sqlbatch.Names{}, fmt.Errorf("chanq: schema: %w", err)
	}
	d, err := table.DialectNamed("the Dialect", string(dialect))
	if err != nil {
		return refuse(err)
	}
	v := validator{}
	cfg.Spec.check(&v)
	cfg.Shard.check(&v)
	if cfg.Shard.Count > 0 && cfg.Shard.Set.IsZero() {
		v.wrong("Config.Shard.Set is zero: must be the same for all shards, for example from NewID")
	}
	spec, err := cfg.Spec.complete()
	if err := errors.Join(v.err(), err); err != nil {
		return refuse(err)
	}
	names := cfg.names(queue, spec.Slots)
	names.Policy = spec.policy()
	if err := sqlbatch.CheckNames(names); err != nil {
		return refuse(err)
	}
	if dialect == DialectSQLServer && strings.Contains(cfg.Schema, "$(") {
		return refuse(fmt.Errorf("Config.Schema is %q: sqlcmd would replace $(…) by the value of a variable; use "+
			"Migrate", cfg.Schema))
	}
	return d, names, nil
}

// Tables are tables of a package that is built on chanq, such as chanqcron. All queues of a schema share them.
type Tables struct {
	// Name of the set, in the form of a queue's name. Its tables are chanq__<Name>, or begin with chanq__<Name>_.
	Name string
	// Version is the number of the latest change of Create, from 1 on. Programs below MinVersion cannot use the tables
	// any more.
	Version, MinVersion int
	// Create returns texts for Names.SQL that create the tables, or change those of an earlier version; 0: there are
	// none. Without Create, missing tables are ErrNoSchema.
	Create func(d Dialect, from int) []string
}

// MigrateTables creates the tables, or brings them up to date, in one transaction under the lock of Migrate, and
// returns the names for statements on them. If there is nothing to change, it costs one round trip, takes no lock, and
// needs no permission to create tables. ErrNewerSchema: a newer version of the package has changed them.
func MigrateTables(ctx context.Context, db *sql.DB, cfg Config, t Tables) (Names, error) {
	cfg.Label = t.Name
	q, err := newQueue("migrate", db, t.Name, cfg)
	if err != nil {
		return Names{}, err
	}
	d := q.table.Dialect
	names := Names{Dialect(d.Name()), cfg.Schema, ""}
	found, err := withoutLock(q, func() (int, error) { return q.reading(ctx).version(t) })
	if err == nil && found < t.Version && t.Create == nil {
		err = fmt.Errorf("%w of version %d (found %d)", ErrNoSchema, t.Version, found)
	}
	if err != nil || found >= t.Version {
		return names, q.failed("migrate", err)
	}
	return names, q.migrating(ctx, func(s schema) error {
		err := s.prepare()
		if err == nil {
			err = runAll(s.run, append(d.Begin(), d.Text(q.names, createVersions)))
		}
		if err == nil {
			found, err = s.version(t)
		}
		if err != nil {
			return err
		}
		var texts []string
		if found < t.Version { // otherwise another process was first
			texts = append(t.Create(names.Dialect, found), fmt.Sprintf(insertVersion, t.Name),
				fmt.Sprintf(updateVersion, t.Version, t.MinVersion, t.Name))
		}
		texts = append(texts, d.Commit())
		for i := range texts {
			texts[i] = d.Text(q.names, texts[i])
		}
		return runAll(s.run, texts)
	})
}

// The versions of the sets of tables, which only the holder of the lock of Migrate writes.
const (
	createVersions = `{create chanq__tables} (name varchar(40) NOT NULL PRIMARY KEY, version integer NOT NULL,
  min_version integer NOT NULL)`
	selectVersion = `SELECT version, min_version FROM {chanq__tables} WHERE name = '%s'`
	insertVersion = `INSERT INTO {chanq__tables} (name, version, min_version) SELECT '%[1]s', 0, 0
WHERE NOT EXISTS (SELECT 1 FROM {chanq__tables} WHERE name = '%[1]s')`
	updateVersion = `UPDATE {chanq__tables} SET version = %d, min_version = %d WHERE name = '%s'`
)

// version returns the stored version of tables, or 0 if there is none.
func (s schema) version(t Tables) (version int, err error) {
	least := 0
	err = s.run(sqlbatch.Statement{Text: s.q.table.Dialect.Text(s.q.names, fmt.Sprintf(selectVersion, t.Name))},
		func(rows *sql.Rows) error { return rows.Scan(&version, &least) })
	if err != nil && s.q.classify(err) == sqlbatch.NoSchema {
		return 0, nil
	}
	if least > t.Version {
		err = &unfitError{fmt.Errorf("%w: the tables are of version %d, for programs of version %d or later, and this "+
			"one is of version %d; upgrade this program", ErrNewerSchema, version, least, t.Version)}
	}
	return version, err
}
