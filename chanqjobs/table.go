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

// missing returns ErrNoSchema if tables are missing, and how to make them, after a statement has failed.
func missing(ctx context.Context, db *sql.DB, n chanq.Names, tables chanq.Tables, migrate string) error {
	tables.Create = nil
	cfg := chanq.Config{Dialect: n.Dialect, Schema: n.Schema, Durability: chanq.DurabilityAsIs}
	if _, err := chanq.MigrateTables(ctx, db, cfg, tables); errors.Is(err, chanq.ErrNoSchema) {
		return fmt.Errorf("%w; run chanqjobs.%s", err, migrate)
	}
	return nil
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
