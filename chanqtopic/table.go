package chanqtopic

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/chanq/chanq"
)

// The table of subscriptions, and its statements.

// tables has a row for each subscription. Its names have the types of chanq__queues, with which they are compared.
// filter is JSON.
var tables = chanq.Tables{Name: "subscriptions", Version: 1, MinVersion: 1, Create: func(d chanq.Dialect, _ int) []string {
	name := "{text}"
	if d == chanq.DialectSQLServer {
		name = fmt.Sprintf("varchar(%d)", mostTopic)
	}
	return []string{strings.ReplaceAll(`{create chanq__subscriptions} (
  topic  {name} NOT NULL,
  queue  {name} NOT NULL,
  filter {bytes} NOT NULL,
  PRIMARY KEY (topic, queue)
)`, "{name}", name)}
}}

// Migrate creates the table of subscriptions in cfg.Schema, or brings it up to date. Call it like chanq.Migrate: in a
// deployment, or when your programs start. If there is nothing to change, it costs one round trip, and needs no
// permission to create tables.
func Migrate(ctx context.Context, db *sql.DB, cfg chanq.Config) error {
	_, err := chanq.MigrateTables(ctx, db, cfg, tables)
	return err
}

// existing returns the names for statements on an existing table.
func existing(ctx context.Context, db *sql.DB, cfg chanq.Config) (chanq.Names, error) {
	only := tables
	only.Create = nil
	names, err := chanq.MigrateTables(ctx, db, chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema,
		StatementTimeout: cfg.StatementTimeout, Durability: chanq.DurabilityAsIs}, only)
	if errors.Is(err, chanq.ErrNoSchema) {
		err = fmt.Errorf("%w; run chanqtopic.Migrate, or the command: chanq topic migrate", err)
	}
	return names, err
}

const (
	// selectText has the queue's time of creation, or NULL if it was dropped.
	selectText = `SELECT s.topic, s.queue, s.filter, (SELECT q.created_at FROM {chanq__queues} AS q WHERE q.name = s.queue) AS made
FROM {chanq__subscriptions} AS s`
	topicText = selectText + ` WHERE s.topic = ?1 ORDER BY s.queue`
	listText  = selectText + ` ORDER BY s.topic, s.queue`
	// subscribeText stores nothing if there is no such queue.
	subscribeText = `INSERT INTO {chanq__subscriptions} (topic, queue, filter)
SELECT ?1, q.name, ?3 FROM {chanq__queues} AS q WHERE q.name = ?2
ON CONFLICT (topic, queue) DO UPDATE SET filter = excluded.filter
RETURNING queue`
	subscribeBatch = `UPDATE {chanq__subscriptions} SET filter = ?3 WHERE topic = ?1 AND queue = ?2;
IF @@ROWCOUNT = 0
    INSERT INTO {chanq__subscriptions} (topic, queue, filter)
    SELECT ?1, q.name, ?3 FROM {chanq__queues} AS q
    WHERE q.name = ?2 AND NOT EXISTS (SELECT 1 FROM {chanq__subscriptions} WITH (UPDLOCK, SERIALIZABLE) WHERE topic = ?1 AND queue = ?2);
SELECT name FROM {chanq__queues} WHERE name = ?2;`
	unsubscribeText = `DELETE FROM {chanq__subscriptions}{output} WHERE topic = ?1 AND queue = ?2{returning}`
)

// render returns a text for the database.
func render(n chanq.Names, text string) string {
	words := []string{"{output}", "", "{returning}", " RETURNING queue"}
	switch n.Dialect {
	case chanq.DialectPostgres: // which cannot infer these types
		words = append(words, "SELECT ?1, q.name, ?3", "SELECT ?1::text, q.name, ?3::bytea")
	case chanq.DialectSQLServer:
		words = []string{subscribeText, subscribeBatch, "{output}", " OUTPUT deleted.queue", "{returning}", ""}
	}
	return n.SQL(strings.NewReplacer(words...).Replace(text))
}

// stored is a subscription in the table.
type stored struct {
	Subscription
	made sql.NullString // when the queue was created
}

// querier is a *sql.DB or a transaction.
type querier interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

// read returns the subscriptions that a statement selects.
func read(ctx context.Context, on querier, n chanq.Names, text string, args ...any) (all []stored, err error) {
	rows, err := on.QueryContext(ctx, render(n, text), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s stored
		var filter []byte
		err := rows.Scan(&s.Topic, &s.Queue, &filter, &s.made)
		if err == nil {
			err = json.Unmarshal(filter, &s.Filter)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
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
