package sqlite

import (
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

const ackText = `DELETE FROM {live} WHERE rowid IN (` + matched + `)
RETURNING id, fence`

const archiveInsertText = `INSERT OR REPLACE INTO {done} (id, priority, enqueued_at, ended_at, outcome, fence, attempts, dedup_key, type, last_error, history, headers, body{order})
SELECT id, priority, enqueued_at, {now}, {acked}, fence, attempts, dedup_key, type, last_error, history, headers, body{order}
FROM {live} WHERE rowid IN (` + matched + `)`

// An extension that arrives after a later one must not shorten that one's lease.
const extendText = `UPDATE {live} SET lease_until = max(lease_until, {now} + ?2) WHERE rowid IN (` + matched + `)
RETURNING id, fence`

// Nack and DeadLetter: record = id 16, fence 19, amount 13 (the delay of a nack; twice the cause of a dead-letter, and
// the attempts that it refunds), error offset 9 and length 4, time of the handler 10.
const endSize = 16 + 19 + 13 + 9 + 4 + 10

const endList = `(
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 71 FROM n WHERE o + 71 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS amount,
         CAST(substr(?1, o + 61, 10) AS INTEGER) AS took,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 48, 9) AS INTEGER), CAST(substr(?1, o + 57, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p`

// addAttempt is the history of a row q with another attempt: see sqlbatch.MostHistory.
func addAttempt(ended, took, holder, text string) string {
	return `substr(` + ended + ` || ' ' || (` + took + `) || ' ' || coalesce(substr(` + holder + `, 1, {most name}), '') || char(10) || coalesce(substr(` + text + `, 1, {most text}), '') || char(30) || coalesce(q.history, ''), 1, {most history})`
}

const (
	kept   = `q.history`
	nameOf = `(SELECT m.name FROM {consumers} AS m WHERE m.id = {id})`
)

// failed is the history after an attempt that failed.
var failed = addAttempt(`{now}`, `p.took`, `{holder of q}`, `p.error`)

// expired is the history after a lease has expired.
func expired(ended, took, holder string) string {
	return addAttempt(ended, took, strings.Replace(nameOf, "{id}", holder, 1), `'{expired}'`)
}

func nackOf(attempts, history string) string {
	return `UPDATE {live} AS q
SET due_at = {now} + p.amount, lease_until = 0, fence = q.fence + 1, attempts = ` + attempts + `, lapses = 0, leased_by = NULL, last_error = coalesce(p.error, q.last_error), history = ` + history + `
FROM ` + endList + `
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1`
}

var deadLetterInsertText = `INSERT OR REPLACE INTO {dead} (id, priority, enqueued_at, ended_at, cause, fingerprint, noticed_at, fence, attempts, dedup_key, type, last_error, history, headers, body{order})
SELECT q.id, q.priority, q.enqueued_at, {now}, p.amount >> 1, p.fingerprint, 0, q.fence + 1, q.attempts - (p.amount & 1), q.dedup_key, q.type, coalesce(p.error, q.last_error), iif(p.amount & 1, q.history, ` + failed + `), q.headers, q.body{q.order}
FROM ` + withFingerprints(endList, "?3") + ` CROSS JOIN {live} AS q ON q.id = p.id AND q.fence = p.fence`

// withFingerprints returns a list of ends with a number of 19 digits for each, 0 for none.
func withFingerprints(ends, list string) string {
	return strings.Replace(ends, "SELECT substr(?1, o, 16) AS id,", "SELECT substr(?1, o, 16) AS id, nullif(CAST(substr("+list+", (o - 1) / 71 * 19 + 1, 19) AS INTEGER), 0) AS fingerprint,", 1)
}

const deadLetterDeleteText = `DELETE FROM {live} WHERE rowid IN (
  SELECT q.rowid FROM ` + endList + ` CROSS JOIN {live} AS q ON q.id = p.id AND q.fence = p.fence)
RETURNING id, fence`

// A release keeps the place of the message.
const releaseText = `UPDATE {live} SET lease_until = 0, fence = fence + 1, attempts = attempts - 1, leased_by = NULL WHERE rowid IN (` + matched + `)
RETURNING id, fence - 1`

func (q *queue) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.ack, Args: []any{packItems(items)}}
}

func (q *queue) Archive(items []sqlbatch.Item) sqlbatch.Statement {
	args := []any{packItems(items)}
	return sqlbatch.Statement{Text: q.ack, Args: args, Prior: []sqlbatch.Statement{{Text: q.archiveInsert, Args: args}}}
}

func (q *queue) Nack(items []sqlbatch.NackItem) sqlbatch.Statement { return q.nackAs(q.nack, items) }

func (q *queue) Snooze(items []sqlbatch.NackItem) sqlbatch.Statement {
	return q.nackAs(q.snooze, items)
}

func (q *queue) nackAs(text string, items []sqlbatch.NackItem) sqlbatch.Statement {
	list := make([]byte, 0, len(items)*endSize)
	var errs, deliveries []byte
	for i := range items {
		list, errs = appendEnd(list, errs, items[i].Item, build.Milliseconds(items[i].Delay), items[i].Took, items[i].Error)
		deliveries = appendDigits(deliveries, items[i].Delivery, 19)
	}
	args := []any{list, errs}
	if q.ordered {
		args = append(args, orNone(deliveries), fencesByID(items, func(i sqlbatch.NackItem) sqlbatch.Item { return i.Item }))
	}
	return sqlbatch.Statement{Text: text, Args: args}
}

func (q *queue) DeadLetter(items []sqlbatch.DeadLetterItem) sqlbatch.Statement {
	list := make([]byte, 0, len(items)*endSize)
	var errs, deliveries, fingerprints []byte
	for i := range items {
		list, errs = appendEnd(list, errs, items[i].Item, int64(items[i].Cause)<<1|flag(items[i].Uncounted), items[i].Took, items[i].Error)
		deliveries = appendDigits(deliveries, items[i].Delivery, 19)
		fingerprints = appendDigits(fingerprints, items[i].Fingerprint, 19)
	}
	insert := sqlbatch.Statement{Text: q.deadLetterInsert, Args: []any{list, errs}}
	if q.ordered {
		insert.Args = append(insert.Args, orNone(deliveries))
	}
	insert.Args = append(insert.Args, orNone(fingerprints))
	return sqlbatch.Statement{Text: q.deadLetterDelete, Args: []any{list, errs}, Prior: []sqlbatch.Statement{insert}}
}
