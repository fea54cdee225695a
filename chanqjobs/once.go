package chanqjobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
)

// onceTables has a row for each key of Once. until is when its period is over, in Unix milliseconds. Keys are bytes, which
// all databases compare exactly. The index leads to the rows that are trimmed.
var onceTables = chanq.Tables{Name: "once", Version: 1, MinVersion: 1, Create: func(d chanq.Dialect, _ int) []string {
	key := "{bytes}"
	if d == chanq.DialectSQLServer {
		key = fmt.Sprintf("varbinary(%d)", mostOnce) // which an index can have
	}
	return []string{strings.ReplaceAll(`{create chanq__once} (
  name  {key} NOT NULL,
  item  {key} NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (name, item)
)`, "{key}", key), trimIndex(d, "chanq__once", "until")}
}}

const (
	// mostOnce is the most bytes of a name or a key.
	mostOnce = 200
	// longestOnce is the longest period.
	longestOnce = 100 * 365 * 24 * time.Hour
	// onceFor is how long a row is kept after its period: a key that is used in each period is rarely trimmed, so that
	// its next call does not wait for the transaction that trims it.
	onceFor = time.Hour
)

const (
	// onceText finds a key whose period is not over without a lock, so such calls do not wait for each other. A call that
	// meets an open transaction with the key waits for its end.
	onceText = `INSERT INTO {chanq__once} AS o (name, item, until)
SELECT ?1::bytea, ?2::bytea, {now} + ?3::bigint WHERE NOT EXISTS (SELECT 1 FROM {chanq__once} WHERE name = ?1 AND item = ?2 AND until > {now})
ON CONFLICT (name, item) DO UPDATE SET until = {now} + ?3 WHERE o.until <= {now}
RETURNING 1`
	// onceBatch reads under READCOMMITTEDLOCK: with row versions it would not wait.
	onceBatch = `DECLARE @first int = 0;
IF NOT EXISTS (SELECT 1 FROM {chanq__once} WITH (READCOMMITTEDLOCK) WHERE name = ?1 AND item = ?2 AND until > {now})
BEGIN
    UPDATE {chanq__once} SET until = {now} + ?3 WHERE name = ?1 AND item = ?2 AND until <= {now};
    SET @first = @@ROWCOUNT;
    IF @first = 0
    BEGIN
        INSERT INTO {chanq__once} (name, item, until)
        SELECT ?1, ?2, {now} + ?3
        WHERE NOT EXISTS (SELECT 1 FROM {chanq__once} AS o WITH (UPDLOCK, SERIALIZABLE) WHERE o.name = ?1 AND o.item = ?2);
        SET @first = @@ROWCOUNT;
    END;
END;
SELECT 1 AS taken WHERE @first > 0;`
	onceTrimText = `DELETE FROM {chanq__once} WHERE (name, item) IN (
  SELECT name, item FROM {chanq__once} WHERE until < {now} - ?1 ORDER BY until LIMIT 10{skip locked})`
	onceTrimTop = `DELETE TOP (10) FROM {chanq__once} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) WHERE until < {now} - ?1`
)

// onceFrom returns a text for the database.
func onceFrom(n chanq.Names, text string) string {
	skip := ""
	switch n.Dialect {
	case chanq.DialectPostgres:
		skip = " FOR UPDATE SKIP LOCKED"
	case chanq.DialectSQLServer:
		text = strings.NewReplacer(onceText, onceBatch, onceTrimText, onceTrimTop).Replace(text)
	}
	return typed(n, strings.ReplaceAll(text, "{skip locked}", skip))
}

// Once reports whether this is the first call with this name and key in a period, in all programs. Use it before a send
// that must not be repeated for some time, even if the first message is handled, in the same transaction.
//
// The period begins with the first call, by the clock of the database. If your transaction rolls back, nothing is taken.
// While it is open, calls with the same name and key wait, on SQL Server also some others: call it last.
//
// name and key have up to 200 bytes of UTF-8. q is any queue of the schema. Migrate makes the table. A call costs one
// round trip, a first one two.
func Once[T any](ctx context.Context, tx chanq.Tx, q *chanq.Queue[T], name, key string, period time.Duration) (first bool, err error) {
	_, err = q.SendTx(ctx, tx) // which checks tx
	if err == nil {
		err = checkOnce(name, key, period)
	}
	if err == nil {
		names, one := q.Names(), 0
		ms := (period + time.Millisecond - 1).Milliseconds()
		err = queryRow(ctx, tx, onceFrom(names, onceText), []any{[]byte(name), []byte(key), ms}, &one)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, onceFrom(names, onceTrimText), onceFor.Milliseconds())
		}
	}
	if err != nil {
		return false, fmt.Errorf("chanqjobs: once %q %q: %w", name, key, err)
	}
	return true, nil
}

// checkOnce checks the arguments of Once.
func checkOnce(name, key string, period time.Duration) error {
	for _, s := range []string{name, key} {
		if s == "" || len(s) > mostOnce || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return fmt.Errorf("the name and the key must be 1 to %d bytes of UTF-8 without NUL", mostOnce)
		}
	}
	if period <= 0 || period > longestOnce {
		return fmt.Errorf("the period is %v: must be above 0, and at most %v", period, longestOnce)
	}
	return nil
}
