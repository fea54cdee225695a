package chanq

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// What a database is asked before it is trusted with a queue.

// Durability says what Open and Migrate do about a database that may lose a commit
// after it has confirmed it.
type Durability uint8

// The durabilities.
const (
	// DurabilityRequired refuses such a database with ErrNotDurable.
	DurabilityRequired Durability = iota
	// DurabilityAsIs takes it. Commits are faster then, and a crash of the server (of
	// the machine, with SQLite; an ordinary shutdown too, with delayed durability of
	// SQL Server) takes the last ones back: messages are lost whose Send returned
	// nil, acked ones are delivered again, and a message that was leased is delivered
	// to another while its holder works on.
	DurabilityAsIs
)

// trust returns why the database must not be trusted with the queue, or nil. One
// round trip, by run; it needs no tables.
func (q *queue) trust(run runner) error {
	found := map[string][]string{}
	err := run(q.sql.Problems(), func(rows *sql.Rows) error {
		var kind, what string
		err := rows.Scan(&kind, &what)
		found[kind] = append(found[kind], what)
		return err
	})
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	var reasons []error
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		list := found[kind]
		what, remedy := strings.Join(list, ", "), q.dialect.Traits().Remedies[kind]
		switch {
		case kind == sqlbatch.ProblemForm:
			reasons = append(reasons, fmt.Errorf("tables of before the first release of chanq (%s): drop or rename chanq_%[2]s, chanq_%[2]s_dead and chanq_%[2]s_done, with their indexes and constraints, then run chanq.Migrate", what, q.name))
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
