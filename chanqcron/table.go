package chanqcron

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// The table of schedules, and its statements.

// tables has a row for each schedule. Times are Unix milliseconds. Each statement that changes a row seeks it by its
// name, and holds no other.
var tables = chanq.Tables{Name: "schedules", Version: 1, MinVersion: 1, Create: func(chanq.Dialect, int) []string {
	return []string{`{create chanq__schedules} (
  name         {text} NOT NULL PRIMARY KEY,
  queue        {text} NOT NULL,
  line         {text} NOT NULL,
  zone         {text} NOT NULL,
  catch_up     integer NOT NULL,
  max_missed   integer NOT NULL,
  grace_ms     bigint NOT NULL,
  overlap      integer NOT NULL,
  priority     integer NOT NULL,
  ttl_ms       bigint NOT NULL,
  order_key    {text} NOT NULL,
  kind         {text} NOT NULL,
  headers      {bytes} NOT NULL,
  body         {bytes} NOT NULL,
  next_at      bigint NOT NULL,
  last_at      bigint NULL,
  paused_at    bigint NULL,
  paused_by    {text} NULL,
  pause_reason {text} NULL,
  ensured_at   bigint NOT NULL
)`}
}}

// Migrate creates the table of schedules in cfg.Schema, or brings it up to date. Call it like chanq.Migrate: in a
// deployment, or when your programs start. If there is nothing to change, it costs one round trip, and needs no
// permission to create tables.
func Migrate(ctx context.Context, db *sql.DB, cfg chanq.Config) error {
	_, err := chanq.MigrateTables(ctx, db, cfg, tables)
	return err
}

// opened returns the names for statements on an existing table.
func opened(ctx context.Context, db *sql.DB, cfg chanq.Config) (chanq.Names, error) {
	existing := tables
	existing.Create = nil
	names, err := chanq.MigrateTables(ctx, db, cfg, existing)
	if errors.Is(err, chanq.ErrNoSchema) {
		err = fmt.Errorf("%w; run chanqcron.Migrate, or the command: chanq schedule migrate", err)
	}
	return names, err
}

const (
	clockText = `SELECT {now} AS now`
	// dueText reads all schedules of a queue, without their messages.
	dueText = `SELECT {now} AS now, name, line, zone, catch_up, max_missed, grace_ms, next_at FROM {chanq__schedules} WHERE queue = ?1 AND paused_at IS NULL`
	// tickText changes a row only if it is as it was read: one process of all does that for each tick. It waits for a
	// process that is about to, and takes over if that one dies.
	tickText = `UPDATE {chanq__schedules} SET next_at = ?1, last_at = ?2{output}
WHERE name = ?3 AND next_at = ?4 AND queue = ?5 AND line = ?6 AND zone = ?7 AND paused_at IS NULL{returning}`
	sentColumns = `overlap, priority, ttl_ms, order_key, kind, headers, body`

	setText = `UPDATE {chanq__schedules} SET next_at = CASE WHEN line = ?3 AND zone = ?4 THEN next_at ELSE ?14 END,
  line = ?3, zone = ?4, catch_up = ?5, max_missed = ?6, grace_ms = ?7, overlap = ?8, priority = ?9, ttl_ms = ?10, order_key = ?11,
  kind = ?12, headers = ?13, body = ?15, ensured_at = {now}{output name}
WHERE name = ?1 AND queue = ?2{returning name}`
	// addText adds nothing if another process has just added the schedule.
	addText = `INSERT INTO {chanq__schedules} (name, queue, line, zone, catch_up, max_missed, grace_ms, overlap, priority, ttl_ms, order_key, kind, headers, next_at, body, ensured_at){output name}
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, {now} WHERE {absent}{returning name}`

	listText   = `SELECT name, queue, line, zone, catch_up, max_missed, grace_ms, overlap, kind, next_at, last_at, paused_at, paused_by, pause_reason, ensured_at FROM {chanq__schedules} ORDER BY name`
	jobText    = `SELECT {now} AS now, queue, line, zone, ` + sentColumns + ` FROM {chanq__schedules} WHERE name = ?1`
	pauseText  = `UPDATE {chanq__schedules} SET paused_at = {now}, paused_by = ?2, pause_reason = ?3{output name} WHERE name = ?1{returning name}`
	resumeText = `UPDATE {chanq__schedules} SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, next_at = CASE WHEN paused_at IS NULL THEN next_at ELSE ?2 END{output name} WHERE name = ?1 AND line = ?3 AND zone = ?4{returning name}`
	removeText = `DELETE FROM {chanq__schedules}{output deleted} WHERE name = ?1{returning name}`
)

// render returns a text for the database.
func render(n chanq.Names, text string) string {
	words := strings.NewReplacer("{output}", "", "{returning}", "\nRETURNING "+sentColumns,
		"{output name}", "", "{output deleted}", "", "{returning name}", "\nRETURNING name",
		"{absent}", "true ON CONFLICT (name) DO NOTHING")
	if n.Dialect == chanq.DialectSQLServer {
		words = strings.NewReplacer("{output}", "\nOUTPUT inserted."+strings.ReplaceAll(sentColumns, ", ", ", inserted."), "{returning}", "",
			"{output name}", "\nOUTPUT inserted.name", "{output deleted}", "\nOUTPUT deleted.name", "{returning name}", "",
			"{absent}", "NOT EXISTS (SELECT 1 FROM {chanq__schedules} WITH (UPDLOCK, SERIALIZABLE) WHERE name = ?1)")
	}
	return n.SQL(words.Replace(text))
}

// job is the message of a schedule, as it is stored.
type job struct {
	overlap bool
	message chanq.Message[[]byte]
}

// columns are where the sentColumns are scanned to. done completes the job.
func (j *job) columns() (columns []any, done func() error) {
	var overlap, priority int
	var ttl int64
	var headers []byte
	m := &j.message
	return []any{&overlap, &priority, &ttl, &m.Key, &m.Type, &headers, &m.Body}, func() error {
		j.overlap, m.Priority, m.TTL = overlap != 0, chanq.Priority(priority), time.Duration(ttl)*time.Millisecond
		return json.Unmarshal(headers, &m.Headers)
	}
}

// at returns the message for a tick, or for Send.
func (j *job) at(name string, tick time.Time) chanq.Message[[]byte] {
	m := j.message
	m.Headers = headers(m.Headers, name, tick)
	if !j.overlap {
		m.DedupKey = dedupKey(name)
	}
	return m
}

// dedupKey is the key of the messages of a schedule that must not overlap.
func dedupKey(name string) string { return "schedule " + name }

// querier is a *sql.DB or a *sql.Tx.
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

func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}
