package chanq

import (
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
	if err := session.Enough(db); err != nil {
		return nil, fmt.Errorf("chanq: open %s: %w", core.label, err)
	}
	s := session.OpenOnce(db, core.dialect)
	defer s.Close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return s.Run(ctx, st, scan) }
	err = core.fits(run)
	if err == nil {
		err = core.trusted(run)
	}
	if err != nil {
		return nil, &OpError{Op: "open", Queue: core.label, Err: core.unanswered(err)}
	}
	return core, nil
}

// fits adopts what the database stores of the queue, or returns how it differs from Config. It costs one round trip, by run.
func (q *queue) fits(run runner) error {
	found, err := q.stored(run)
	if err != nil {
		return err
	}
	if err := q.check(found); err != nil {
		return &unfitError{err}
	}
	q.adopt(found)
	return nil
}

// unfitError is the reason why a database cannot be used. Repetition does not help.
type unfitError struct{ error }

func (e *unfitError) Unwrap() error { return e.error }

// trusted is trust, whose error is an unfitError unless the statement failed.
func (q *queue) trusted(run runner) error {
	var failed error
	err := q.trust(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
		failed = run(st, scan)
		return failed
	})
	if err != nil && failed == nil {
		return &unfitError{err}
	}
	return err
}

// check returns how the stored queue differs from Config, or nil.
func (q *queue) check(found stored) error {
	if found.Version < sqlbatch.Version {
		return fmt.Errorf("%w of version %d (found %d); run chanq.Migrate, or the command: chanq migrate %s",
			ErrNoSchema, sqlbatch.Version, found.Version, q.name)
	}
	if err := found.Unusable(); err != nil {
		return fmt.Errorf("%w: %w", ErrNewerSchema, err)
	}
	if err := q.cfg.Spec.differs(found.spec(), false); err != nil {
		return err
	}
	return found.shard.isNot(q.cfg.Shard)
}

// Durability says whether Open and Migrate accept a database that may lose a commit after it has confirmed it.
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

// trust returns an error if settings of the database would break the guarantees of chanq. It costs one round trip, by run, and needs no
// tables.
func (q *queue) trust(run runner) error {
	found := map[string][]string{}
	err := run(q.sql.Problems(), func(rows *sql.Rows) error {
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
		what, remedy := strings.Join(list, ", "), q.dialect.Traits().Remedies[kind]
		switch {
		case kind == sqlbatch.ProblemForm:
			reasons = append(reasons, fmt.Errorf("tables from before the first release of chanq (%s): rename chanq_%[2]s, chanq_%[2]s_dead and chanq_%[2]s_done with their indexes and constraints, run chanq.Migrate, and send their messages again", what, q.name))
		case kind == sqlbatch.ProblemDurability && q.cfg.Durability == DurabilityAsIs:
		case kind == sqlbatch.ProblemDurability:
			reasons = append(reasons, fmt.Errorf("%w: %s: %s; or set Config.Durability to DurabilityAsIs", ErrNotDurable, what, remedy))
		case remedy == "":
			reasons = append(reasons, errors.New(what))
		default:
			reasons = append(reasons, fmt.Errorf("%s: %s", what, remedy))
		}
	}
	return errors.Join(reasons...)
}
