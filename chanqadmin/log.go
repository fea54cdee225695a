package chanqadmin

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Logged is a change in the log of changes.
type Logged struct {
	Queue  string    `json:"queue"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	What   string    `json:"what"`             // for example redrive
	Which  string    `json:"which,omitempty"`  // of Select or the Spec, for example "state=dead cause=rejected"
	Reason string    `json:"reason,omitempty"` // Change.Reason
	// Ended is zero while the change runs, and permanently if its program crashed or the database did not store its end.
	Ended    time.Time `json:"ended,omitzero"`
	Messages int       `json:"messages"`        // that were changed, even with an Error
	Error    string    `json:"error,omitempty"` // why it failed
}

// The log has so many changes of a queue, for so long.
const (
	mostLogged = 1000
	loggedFor  = 90 * 24 * time.Hour
)

// logTime bounds each statement of the log, for which the change waits.
const logTime = 2 * time.Second

// The statements of the table chanq__log, which Migrate creates. They use its keys: (id), and (queue, id) for one queue. IDs are UUIDv7, in the
// order of time. The trim also deletes what is too old of other queues, which might have been dropped: by the database's clock, among the IDs
// that are too old by the program's.
const (
	logBeginText = `INSERT INTO {chanq__log} (id, queue, at, actor, what, which, reason) VALUES (?1, ?2, {now}, ?3, ?4, ?5, ?6)`
	logEndText   = `UPDATE {chanq__log} SET ended_at = {now}, messages = ?2, error = ?3 WHERE id = ?1`
	logFirstText = `SELECT min(f.id) FROM (SELECT {top}id FROM {chanq__log} WHERE queue = ?1 ORDER BY id DESC{limit}) AS f`
	logTrimText  = `DELETE FROM {chanq__log} WHERE queue = ?1 AND id < ?2 OR id < ?3 AND at < {now} - ?4`
	logReadText  = `SELECT {top}queue, at, actor, what, which, reason, ended_at, messages, error FROM {chanq__log}{of} ORDER BY id DESC{limit}`
)

// firstAt is before the IDs of messages and changes that are made at a time.
func firstAt(at time.Time) string {
	ms := at.UnixMilli()
	return fmt.Sprintf("%08x-%04x", ms>>16, ms&0xFFFF)
}

// limited returns a text for the database, in which {top} and {limit} limit the rows.
func limited(d sqlbatch.Dialect, n sqlbatch.Names, text string, rows int) string {
	top, limit := "", fmt.Sprintf(" LIMIT %d", rows)
	if d.Name() == string(chanq.DialectSQLServer) {
		top, limit = fmt.Sprintf("TOP (%d) ", rows), ""
	}
	return d.Text(n, strings.NewReplacer("{top}", top, "{limit}", limit).Replace(text))
}

// logged makes a change, which do does, and keeps it in the log. It writes the row before the change, and its end after it: a change that a
// crash interrupts is in the log. The row is no part of a transaction of the change, because that of PostgreSQL would end with a refused
// INSERT, and a change of many messages has many transactions.
func (c *Change) logged(ctx context.Context, db *sql.DB, d sqlbatch.Dialect, n sqlbatch.Names, what, which string, do func() (int, error)) error {
	id := chanq.NewID().String()
	first := "" // of those that stay
	run := func(ctx context.Context, text string, args ...any) error {
		within := logTime
		if until, ends := ctx.Deadline(); ends { // the rest is for the change
			within = min(within, time.Until(until)/4)
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		st := sqlbatch.Statement{Text: limited(d, n, text, mostLogged), Args: args}
		return repeat(ctx, db, d, defaultStatementTimeout, st, func() {}, func(rows *sql.Rows) error { return rows.Scan(&first) })
	}
	unlogged := run(ctx, logBeginText, id, n.Queue, c.actor(), what, cut(which), c.Reason)
	changed, err := do()
	if unlogged == nil {
		ended := sql.NullString{Valid: err != nil}
		if err != nil {
			ended.String = cut(err.Error())
		}
		over := context.WithoutCancel(ctx)
		unlogged = run(over, logEndText, id, changed, ended)
		if unlogged == nil && run(over, logFirstText, n.Queue) == nil {
			_ = run(over, logTrimText, n.Queue, first, firstAt(time.Now().Add(-loggedFor)), loggedFor.Milliseconds()) // the next change tries again
		}
	}
	if unlogged != nil && c.Unlogged != nil && (err == nil || changed > 0) {
		c.Unlogged(fmt.Errorf("chanq: the log of changes of %s: %w", n.Queue, unlogged))
	}
	return err
}

// LogChange calls do, which changes something that belongs to the queue, for example a schedule, and keeps the change in the log: with what
// and which (see Logged), and with the number of messages that do returns. LogChange returns the error of do, or why it did not call do.
// It costs four round trips, and uses Dialect and Schema of cfg. Limit, PerSecond and DryRun of c must be zero.
func LogChange(ctx context.Context, db *sql.DB, queue string, cfg chanq.Config, c Change, what, which string, do func() (int, error)) error {
	d, err := table.DialectOf(db, string(cfg.Dialect))
	n := sqlbatch.Names{Schema: cfg.Schema, Queue: queue}
	if err == nil {
		err = cmp.Or(sqlbatch.CheckNames(n), c.checkSet())
	}
	if err != nil {
		return fmt.Errorf("chanq: %s of %s: %w", what, queue, err)
	}
	return c.logged(ctx, db, d, n, what, which, do)
}

// logged is Change.logged for the queue.
func (q *Queue) logged(ctx context.Context, what, which string, c *Change, do func() (int, error)) error {
	return c.logged(ctx, q.db, q.dialect, namesOf(q.Name(), q.cfg), what, which, do)
}

// cut returns a text that fits into a column.
func cut(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(s[:min(len(s), sqlbatch.MaxPauseText)], "")
}

// Log returns the latest changes of a queue, or of all queues of Config.Schema if queue is "", even of queues that were dropped. limit is the
// most that it returns, from 1 to 10,000. The log has the last 1,000 changes of each queue. Each change deletes the entries of all queues that
// are older than 90 days. Log costs one round trip, and uses Dialect and Schema of cfg.
func Log(ctx context.Context, db *sql.DB, queue string, limit int, cfg chanq.Config) (list []Logged, err error) {
	d, err := table.DialectOf(db, string(cfg.Dialect))
	n := sqlbatch.Names{Schema: cfg.Schema, Queue: cmp.Or(queue, "any")}
	switch {
	case err != nil:
	case limit < 1 || limit > 10_000:
		err = fmt.Errorf("limit is %d: must be from 1 to 10,000", limit)
	default:
		err = sqlbatch.CheckNames(n)
	}
	if err != nil {
		return nil, fmt.Errorf("chanq: log: %w", err)
	}
	of, args := "", []any(nil)
	if queue != "" {
		of, args = " WHERE queue = ?1", []any{queue}
	}
	s := session.OpenOnce(db, d)
	defer s.Close()
	st := sqlbatch.Statement{Text: limited(d, n, strings.Replace(logReadText, "{of}", of, 1), limit), Args: args}
	err = s.Run(ctx, st, func(rows *sql.Rows) error {
		var l Logged
		var at int64
		var ended, messages sql.NullInt64
		var failure sql.NullString
		err := rows.Scan(&l.Queue, &at, &l.Actor, &l.What, &l.Which, &l.Reason, &ended, &messages, &failure)
		l.At, l.Ended, l.Messages, l.Error = time.UnixMilli(at).UTC(), timeOf(ended), int(messages.Int64), failure.String
		list = append(list, l)
		return err
	})
	if session.Classify(d, err) == sqlbatch.NoSchema {
		err = fmt.Errorf("%w; run chanq.Migrate, or the command: chanq migrate QUEUE (%w)", chanq.ErrNoSchema, err)
	}
	if err != nil {
		return nil, fmt.Errorf("chanq: log: %w", err)
	}
	return list, nil
}
