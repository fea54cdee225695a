// Package histories runs random histories of a queue (producers, consumers, operators, crashes and
// a clock that jumps) against a reference model that predicts every outcome and every row, and runs
// a fixed scenario with a fault at each of its operations on the database.
package histories

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// clock reads and moves the database's clock, as observed by a queue.
type clock struct {
	db      *sql.DB
	dialect sqlbatch.Dialect
	read    string
	jump    string // moves every time in the live table back by ? milliseconds
	lapses  string // id and lapses of every live message, which no public call returns
	lock    string // locks the row of an id in a transaction; "" if a row cannot be locked alone
}

func newClock(db *sql.DB, d sqlbatch.Dialect, queue string) (clock, error) {
	live := "chanq_" + queue
	switch d.Name() {
	case "sqlite":
		return clock{
			db: db, dialect: d,
			read:   `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)`,
			lapses: fmt.Sprintf(`SELECT id, lapses FROM "%s"`, live),
			jump:   fmt.Sprintf(`UPDATE "%s" SET due_at = due_at - ?1, lease_until = CASE WHEN leased_by IS NULL THEN lease_until ELSE lease_until - ?1 END, expires_at = expires_at - ?1`, live),
		}, nil
	case "postgres":
		return clock{
			db: db, dialect: d,
			read:   `SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint`,
			lapses: fmt.Sprintf(`SELECT uuid_send(id), lapses FROM "public"."%s"`, live),
			jump:   fmt.Sprintf(`UPDATE "public"."%s" SET due_at = due_at - $1::bigint, lease_until = CASE WHEN leased_by IS NULL THEN lease_until ELSE lease_until - $1::bigint END, expires_at = expires_at - $1::bigint`, live),
			lock:   fmt.Sprintf(`SELECT 1 FROM "public"."%s" WHERE uuid_send(id) = $1 FOR UPDATE`, live),
		}, nil
	case "sqlserver":
		return clock{
			db: db, dialect: d,
			read:   `SELECT DATEDIFF_BIG(millisecond, '19700101', CONVERT(datetime2(3), SYSUTCDATETIME()))`,
			lapses: fmt.Sprintf(`SELECT id, lapses FROM [dbo].[%s]`, live),
			jump:   fmt.Sprintf(`UPDATE [dbo].[%s] SET due_at = DATEADD(millisecond, -@p1, due_at), lease_until = CASE WHEN leased_by IS NULL THEN lease_until ELSE DATEADD(millisecond, -@p1, lease_until) END, expires_at = DATEADD(millisecond, -@p1, expires_at)`, live),
			lock:   fmt.Sprintf(`UPDATE [dbo].[%s] SET priority = priority WHERE id = @p1`, live),
		}, nil
	default:
		return clock{}, fmt.Errorf("the clock of %s is not known", d.Name())
	}
}

func (c clock) now(t require.TestingT) int64 {
	var ms int64
	require.NoError(t, c.db.QueryRowContext(context.Background(), c.read).Scan(&ms))
	return ms
}

func (c clock) advance(t require.TestingT, d time.Duration) {
	var err error
	for range 100 { // if a row is locked, the role's lock_timeout ends the statement
		if _, err = c.db.ExecContext(context.Background(), c.jump, d.Milliseconds()); err == nil || c.dialect.Classify(err) != sqlbatch.RolledBack {
			break
		}
	}
	require.NoError(t, err)
}

// lapsed returns the lapses of each live message.
func (c clock) lapsed(t require.TestingT) map[chanq.ID]int {
	rows, err := c.db.QueryContext(context.Background(), c.lapses)
	require.NoError(t, err)
	defer rows.Close()
	lapsed := map[chanq.ID]int{}
	for rows.Next() {
		var id []byte
		var n int
		require.NoError(t, rows.Scan(&id, &n))
		lapsed[chanq.ID(id)] = n
	}
	require.NoError(t, rows.Err())
	return lapsed
}
