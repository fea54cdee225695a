package chanqjobs

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// What the statements of this package share.

// render returns a text for the database, with the words of its dialect.
func render(n chanq.Names, text string, words ...string) string {
	return n.SQL(strings.NewReplacer(words...).Replace(text))
}

// typed returns a text for the database. PostgreSQL needs the types of some parameters, others have no such words.
func typed(n chanq.Names, text string) string {
	if n.Dialect != chanq.DialectPostgres {
		text = strings.NewReplacer("::text", "", "::bigint", "", "::bytea", "").Replace(text)
	}
	return n.SQL(text)
}

// trimIndex returns the text of an index that leads to the rows of a table that are trimmed. It is not UNIQUE: on PostgreSQL
// two first rows of one key would meet there if they have the same millisecond. ON CONFLICT looks at the primary key only, so
// one of their statements would fail.
func trimIndex(d chanq.Dialect, table, column string) string {
	on := "{" + table + "}"
	if d == chanq.DialectSQLite { // which accepts no schema here
		on = table
	}
	return fmt.Sprintf("CREATE INDEX %s_%s ON %s (%s)", table, column, on, column)
}

// idArg returns an ID as an argument.
func idArg(n chanq.Names, id chanq.ID) any {
	if n.Dialect == chanq.DialectPostgres {
		return id.String()
	}
	return id[:]
}

// ofQueue returns an error for a job that was received from another queue.
func ofQueue[T any](q *chanq.Queue[T], d *chanq.Delivery) error {
	if d.Queue != q.Label() {
		return fmt.Errorf("chanqjobs: the job %s is of the queue %s, not of %s", d.ID, d.Queue, q.Label())
	}
	return nil
}

// querier is a *sql.DB or a transaction.
type querier interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

// queryRow reads the only row of a statement, or returns sql.ErrNoRows. It reads to the end, where an error might be.
func queryRow(ctx context.Context, on querier, text string, args []any, columns ...any) error {
	rows, err := on.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	err = sql.ErrNoRows
	for rows.Next() {
		if err = rows.Scan(columns...); err != nil {
			return err
		}
	}
	return cmp.Or(rows.Err(), err)
}

// Migrate creates the tables of batches, results, progress and Once in cfg.Schema, or brings them up to date. Call it like
// chanq.Migrate: in a deployment, or when your programs start. If there is nothing to change, it costs four round trips,
// and needs no permission to create tables.
func Migrate(ctx context.Context, db *sql.DB, cfg chanq.Config) error {
	for _, tables := range []chanq.Tables{batchTables, resultTables, progressTables, onceTables} {
		if _, err := chanq.MigrateTables(ctx, db, cfg, tables); err != nil {
			return err
		}
	}
	return nil
}

// howToMigrate adds to ErrNoSchema how to make the tables.
func howToMigrate(err error) error {
	if errors.Is(err, chanq.ErrNoSchema) {
		err = fmt.Errorf("%w; run chanqjobs.Migrate, or the command: chanq jobs migrate", err)
	}
	return err
}

// missing returns ErrNoSchema if tables are missing, and how to make them, after a statement has failed.
func missing(ctx context.Context, db *sql.DB, n chanq.Names, tables chanq.Tables) error {
	tables.Create = nil
	cfg := chanq.Config{Dialect: n.Dialect, Schema: n.Schema, Durability: chanq.DurabilityAsIs}
	if _, err := chanq.MigrateTables(ctx, db, cfg, tables); errors.Is(err, chanq.ErrNoSchema) {
		return howToMigrate(err)
	}
	return nil
}

// gone returns ErrNoSchema if the queue was dropped. Call it after a statement has failed. It costs a round trip.
func gone(ctx context.Context, db *sql.DB, n chanq.Names) error {
	cfg := chanq.Config{Dialect: n.Dialect, Schema: n.Schema, Durability: chanq.DurabilityAsIs}
	if _, err := chanq.StoredConfig(ctx, db, n.Queue, cfg); errors.Is(err, chanq.ErrNoSchema) {
		return err
	}
	return nil
}

// readCommitted makes statements of a transaction see what others commit, whatever the default of the database is. It
// must be the first statement.
func readCommitted(ctx context.Context, tx *sql.Tx, n chanq.Names) error {
	if n.Dialect != chanq.DialectPostgres {
		return nil
	}
	_, err := tx.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
	return err
}

// pause waits for d, or until ctx is cancelled.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
