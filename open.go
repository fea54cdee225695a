package chanq

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The checks of Open: of the tables, and of the settings of the database.

func openCore(ctx context.Context, db *sql.DB, name string, cfg Config) (*queue, error) {
	core, err := newQueue(ctx, "open", db, name, cfg)
	if err != nil {
		return nil, err
	}
	err = session.Within(ctx, core.cfg.StatementTimeout, func(ctx context.Context) error {
		return session.Enough(ctx, db, core.table.Dialect)
	})
	if err != nil {
		return nil, core.failed("open", core.unanswered(err))
	}
	s := session.OpenOnce(db, core.table.Dialect)
	defer s.Close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		return session.Within(ctx, core.cfg.StatementTimeout, func(ctx context.Context) error { return s.Run(ctx, st, scan) })
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

// unfitError is the reason why a database cannot be used. Retrying does not help.
type unfitError struct{ error }

func (e *unfitError) Unwrap() error { return e.error }

// check returns an unfitError if the stored queue differs from Config.
func (s schema) check(found stored) error {
	err := found.Unusable()
	switch {
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

// Durability controls whether Open and Migrate accept a database that may lose confirmed commits.
type Durability uint8

// The durabilities.
const (
	// DurabilityRequired refuses such a database with ErrNotDurable.
	DurabilityRequired Durability = iota
	// DurabilityAsIs accepts it. Commits are then faster, and a crash of the server undoes the last ones. (On SQLite it is a crash of
	// the machine; with delayed durability of SQL Server also an ordinary shutdown.) Messages whose Send returned nil are lost, acked
	// messages are redelivered, and a leased message is delivered to another consumer while its holder still processes it.
	DurabilityAsIs
)

// trust returns an unfitError if settings of the database would break the guarantees of chanq. It costs one round trip, and needs no
// tables.
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
			reasons = append(reasons, fmt.Errorf("tables from before the first release of chanq (%s): rename chanq_%[2]s, chanq_%[2]s_dead and chanq_%[2]s_done with their indexes and constraints, run chanq.Migrate, and send their messages again", what, s.q.names.Queue))
		case kind == sqlbatch.ProblemDurability && s.q.cfg.Durability == DurabilityAsIs:
		case kind == sqlbatch.ProblemMemory && s.shared(ctx):
		case kind == sqlbatch.ProblemDurability:
			reasons = append(reasons, fmt.Errorf("%w: %s: %s; or set Config.Durability to DurabilityAsIs", ErrNotDurable, what, remedy))
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
