package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// match finds the lease of each element of a list by the primary key. ANY with an array of one allows the planner only
// one plan: the list outside, one probe inside (see Dialect). Lists are in id order, so settles and extensions lock
// their rows in one order and do not deadlock with each other.
//
// Fence and id are checked again, in the row's latest version, when a locked row is free. An ack that waited for an
// extension applies, and one that waited for another claim does not.
//
// The planner does not see how long a list is, since that is behind a SELECT. For a thousand items in a table that its
// statistics call empty it would rather read the whole table, and compare each row with the whole list.
//
// A list has fences relative to $2: the fences of one claim are the same number of nineteen digits.
const match = `q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])`

// locked is how a settle treats a row that another transaction has locked.
type locked uint8

const (
	// waits: in the caller's transaction.
	waits locked = iota
	// waitsShortly waits for LockWait, and then the statement fails without any effect. The setting is made before the
	// first row is searched, where the list is evaluated, and ends with the statement's own transaction. (Citus evaluates
	// the list on the node that received the statement, and waits on the other: docs/operate/citus.md.)
	waitsShortly
	// skips locks free rows before it writes, and therefore writes each row twice: an ack of a thousand takes 1.7 times as
	// long (docs/internals/decisions.md).
	skips
)

// list follows FROM or USING in a settle: its leases as a, and their rows as q. Parameters are the ids, a fence, how far
// each lease's fence is above it, and then the other columns of the list, which have a name and a type each.
func (l locked) list(columns ...string) string {
	selected := []string{"a.id", "a.above"}
	for _, column := range columns {
		name, _, _ := strings.Cut(column, " ")
		selected = append(selected, "a."+name)
	}
	return l.listOf(selected, columns)
}

// errorList is list with other columns, and a text: error, which is NULL if none is to be stored. Citus requires that it
// is built here, and allows no function like this in SET or RETURNING.
func (l locked) errorList(columns ...string) string {
	return l.listOf(withError([]string{"a.id", "a.above"}, columns), append(columns, "starts integer", "bytes integer"))
}

// withError selects columns and a text, whose bytes are the parameter after those of all lists.
func withError(selected, columns []string) []string {
	for _, column := range columns {
		name, _, _ := strings.Cut(column, " ")
		selected = append(selected, "a."+name)
	}
	return append(selected, fmt.Sprintf("CASE WHEN a.bytes > 0 THEN convert_from(substring($%d::bytea FROM a.starts FOR a.bytes), 'UTF8') END AS error", 6+len(columns)))
}

// listOf selects from the list of these columns. The planner merges the two selects. Citus accepts this form; elsewhere
// it accepts no function with sub-selects as arguments.
func (l locked) listOf(selected, columns []string) string {
	ids := "$1::uuid[]"
	if l == waitsShortly {
		ids = fmt.Sprintf("CASE WHEN set_config('lock_timeout', w.ms, true) IS NOT NULL THEN %s END FROM (VALUES ('%d')) AS w (ms)", ids, sqlbatch.LockWait.Milliseconds())
	}
	names, arrays := []string{"id", "above"}, []string{"(SELECT " + ids + ")", "(SELECT $3::bigint[])"}
	for i, column := range columns {
		name, kind, _ := strings.Cut(column, " ")
		names = append(names, name)
		arrays = append(arrays, fmt.Sprintf("(SELECT $%d::%s[])", i+4, kind))
	}
	list := "(\n  SELECT " + strings.Join(selected, ", ") + "\n  FROM unnest(" + strings.Join(arrays, ", ") + ") AS a (" + strings.Join(names, ", ") + ")\n) AS a"
	if l == skips {
		list = "(\n  SELECT a.* FROM " + list + `
  JOIN {live} AS q ON ` + match + `
  FOR UPDATE OF q SKIP LOCKED
) AS a`
	}
	return list + "\nWHERE " + match
}

// settles are the statements that apply to leases.
type settles struct{ ack, archive, nack, snooze, release, deadLetter, extend string }

func newSettles(r renderer, locked locked) *settles {
	s := &settles{
		ack:        r.Replace(ackText(locked)),
		archive:    r.Replace(archiveText(locked)),
		nack:       r.Replace(nackText(locked, `q.attempts - q.lapses`, failed("a"))),
		snooze:     r.Replace(nackText(locked, `q.attempts - q.lapses - 1`, kept)),
		release:    r.Replace(releaseText(locked)),
		deadLetter: r.Replace(deadLetterText(locked)),
		extend:     r.Replace(extendText(locked)),
	}
	if r.ordered {
		s.order(r, locked)
	}
	return s
}

// ackText deletes leases. A repetition deletes nothing, so an ack with an unknown outcome can be repeated. An ack of a
// consumer has a row without values if it has deleted all, which is almost always so.
func ackText(locked locked) string {
	text := `DELETE FROM {live} AS q
USING ` + locked.list() + `
RETURNING `
	if locked != waitsShortly {
		return text + `uuid_send(q.id), q.fence`
	}
	return `WITH gone AS (
` + text + `q.id, q.fence
), n AS (
  SELECT count(*) = cardinality($1::uuid[]) AS all FROM gone
)
SELECT uuid_send(gone.id), gone.fence FROM n JOIN gone ON NOT n.all
UNION ALL
SELECT NULL, NULL FROM n WHERE n.all`
}

func (q *queue) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	l := packItems(items)
	return sqlbatch.Statement{Text: q.settle.ack, Args: l.args()}
}

// archiveText is ackText that keeps the rows, in one statement. An id might already be among the archived rows: an
// INSERT that was repeated after an unknown outcome might restore a message that had ended meanwhile. The older copy is
// replaced.
func archiveText(locked locked) string {
	return `WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + locked.list() + `
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, q.attempts, q.dedup_key, q.type, q.last_error, q.history, q.headers, q.body{q.order}
)
INSERT INTO {done} AS d (id, priority, enqueued_at, ended_at, outcome, fence, attempts, dedup_key, type, last_error, history, headers, body{order})
SELECT id, priority, enqueued_at, {now}, {acked}, fence, attempts, dedup_key, type, last_error, history, headers, body{order}
FROM gone
` + replace + `, outcome = excluded.outcome
RETURNING uuid_send(d.id), d.fence`
}

const replace = `ON CONFLICT (id) DO UPDATE SET
  priority = excluded.priority, enqueued_at = excluded.enqueued_at, ended_at = excluded.ended_at, fence = excluded.fence,
  attempts = excluded.attempts, dedup_key = excluded.dedup_key, type = excluded.type, last_error = excluded.last_error, history = excluded.history,
  headers = excluded.headers, body = excluded.body{replace order}`

func (q *queue) Archive(items []sqlbatch.Item) sqlbatch.Statement {
	l := packItems(items)
	return sqlbatch.Statement{Text: q.settle.archive, Args: l.args()}
}

// addAttempt is the history of a row q with another attempt: see sqlbatch.MostHistory.
func addAttempt(ended, took, holder, text string) string {
	return `left(` + ended + ` || ' ' || (` + took + `) || ' ' || coalesce(left(` + holder + `, {most name}), '') || chr(10) || ` + text + ` || chr(30) || coalesce(q.history, ''), {most history})`
}

const (
	kept   = `q.history`
	nameOf = `(SELECT m.name FROM {consumers} AS m WHERE m.id = {id})`
)

// failed is the history after an attempt that failed. from has the rest.
func failed(from string) string {
	return addAttempt(`{now}`, `coalesce(`+from+`.took, 0)`, `{holder of q}`, `coalesce(left(`+from+`.error, {most text}), '')`)
}

// afterDeath is that of a dead message, in the columns of deadLetteredError.
var afterDeath = `CASE WHEN q.uncounted = 1 THEN q.history ELSE ` + failed("q") + ` END`

// expired is the history after a lease has expired.
func expired(ended, took, holder string) string {
	return addAttempt(ended, took, strings.Replace(nameOf, "{id}", holder, 1), `'{expired}'`)
}

// nackText ends leases by raising the fence: a late ack or a repetition matches nothing.
func nackText(locked locked, attempts, history string) string {
	return `UPDATE {live} AS q
SET due_at = {now} + coalesce(a.delay, 0), lease_until = 0, fence = q.fence + 1, attempts = ` + attempts + `, lapses = 0, leased_by = NULL, last_error = coalesce(a.error, q.last_error), history = ` + history + `
FROM ` + locked.errorList("delay bigint", "took bigint") + `
RETURNING uuid_send(q.id), q.fence - 1`
}

func (q *queue) Nack(items []sqlbatch.NackItem) sqlbatch.Statement {
	return q.nackOf(q.settle.nack, items)
}

func (q *queue) Snooze(items []sqlbatch.NackItem) sqlbatch.Statement {
	return q.nackOf(q.settle.snooze, items)
}

func (q *queue) nackOf(text string, items []sqlbatch.NackItem) sqlbatch.Statement {
	items = sortedBy(items, func(a, b sqlbatch.NackItem) int { return compareLeases(a.Item, b.Item) })
	l := newEnds(len(items))
	for i := range items {
		l.add(items[i].Item)
		l.note(items[i].Error)
		l.deliveries.number(items[i].Delivery)
		l.numbers.number(build.Milliseconds(items[i].Delay))
		l.took.number(build.Milliseconds(items[i].Took))
	}
	return l.statement(text, q.ordered)
}

// releaseText restores messages to their state before the claim: they have kept their place in the order, and the
// attempt is not counted. The fence still rises, since it never decreases.
func releaseText(locked locked) string {
	return `UPDATE {live} AS q
SET lease_until = 0, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM ` + locked.list() + `
RETURNING uuid_send(q.id), q.fence - 1`
}

func (q *queue) Release(items []sqlbatch.ReleaseItem) sqlbatch.Statement {
	l, deliveries := packMarks(items, deliveryOf)
	args := l.args()
	if q.ordered {
		args = append(args, deliveries)
	}
	return sqlbatch.Statement{Text: q.settle.release, Args: args}
}

// deadLetterText moves leases to the dead-letter table, as archiveText does.
func deadLetterText(locked locked) string {
	return `WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + locked.errorList(deadLetterColumns...) + `
  RETURNING q.id, q.priority, q.enqueued_at, ` + deadLettered + `, q.fence, q.attempts - (coalesce(a.ended, 0) & 1) AS attempts, q.dedup_key, q.type, q.headers, q.body,
            ` + deadLetteredError + `{q.order}
)
INSERT INTO {dead} AS d (id, priority, enqueued_at, ended_at, cause, fingerprint, fence, attempts, dedup_key, type, last_error, history, headers, body{order})
SELECT id, priority, enqueued_at, {now}, cause, fingerprint, fence + 1, attempts, dedup_key, type, last_error, ` + afterDeath + `, headers, body{order}
FROM gone AS q
` + replace + replaceCause + `
RETURNING uuid_send(d.id), d.fence - 1`
}

// deadLetterColumns: ended is the cause, and its lowest bit is whether the attempt is refunded.
var deadLetterColumns = []string{"ended integer", "took bigint", "fingerprint bigint"}

const (
	deadLettered = `(coalesce(a.ended, 0) >> 1)::smallint AS cause, a.fingerprint`

	deadLetteredError = `coalesce(a.error, q.last_error) AS last_error, q.history, q.leased_by, a.took, a.error, coalesce(a.ended, 0) & 1 AS uncounted`

	replaceCause = `, cause = excluded.cause, fingerprint = excluded.fingerprint, noticed_at = 0`
)

func (q *queue) DeadLetter(items []sqlbatch.DeadLetterItem) sqlbatch.Statement {
	items = sortedBy(items, func(a, b sqlbatch.DeadLetterItem) int { return compareLeases(a.Item, b.Item) })
	l, fingerprints := newEnds(len(items)), newArray(len(items), 18)
	for i := range items {
		l.add(items[i].Item)
		l.note(items[i].Error)
		l.deliveries.number(items[i].Delivery)
		l.numbers.number(int64(items[i].Cause)<<1 | flag(items[i].Uncounted))
		l.took.number(build.Milliseconds(items[i].Took))
		fingerprints.numberOrNull(items[i].Fingerprint)
	}
	return l.statement(q.settle.deadLetter, q.ordered, fingerprints.orEmpty())
}

// extendText moves the end of the leases; fences stay.
func extendText(locked locked) string {
	return `UPDATE {live} AS q
SET lease_until = greatest(q.lease_until, {now} + $4::bigint)
FROM ` + locked.list() + `
RETURNING uuid_send(q.id), q.fence`
}

func (q *queue) Extend(consumer [16]byte, items []sqlbatch.Item, lease time.Duration) sqlbatch.Statement {
	l := packItems(items)
	args := l.args(build.Milliseconds(lease))
	if q.ordered {
		args = append(args, hexID(consumer))
	}
	return sqlbatch.Statement{Text: q.settle.extend, Args: args}
}

// ends has the lists of a settle: the leases, the fence of the delivery and a number for each, how long it took, and
// the errors.
type ends struct {
	ids, above, deliveries, numbers, took array
	fence                                 int64 // of the first item
	errors                                blob
}

func newEnds(n int) *ends {
	return &ends{
		ids: newArray(n, 32), above: newArray(n, 2), deliveries: newArray(n, 19), numbers: newArray(n, 6),
		took: newArray(n, 6), errors: newBlob(n, 0),
	}
}

func (l *ends) add(item sqlbatch.Item) {
	if l.ids.b.Len() == 0 {
		l.fence = item.Fence
	}
	l.ids.id(item.ID)
	l.above.number(item.Fence - l.fence)
}

// note adds the error of the item added last.
func (l *ends) note(text string) {
	text = build.Cut(validText(text))
	l.errors.next(len(text))
	l.errors.data = append(l.errors.data, text...)
}

// args returns the parameters of a settle, which begin with the leases.
func (l *ends) args(others ...any) []any {
	return append([]any{l.ids.literal(), l.fence, l.above.orEmpty()}, others...)
}

// statement builds a settle with errors, and with other lists after the numbers. Plain queues have no delivery fences.
func (l *ends) statement(text string, ordered bool, others ...any) sqlbatch.Statement {
	var args []any
	if ordered {
		args = append(args, l.deliveries.literal())
	}
	at, length := l.errors.place()
	return sqlbatch.Statement{Text: text, Args: l.args(append(append(append(args, l.numbers.orEmpty(), l.took.orEmpty()), others...), at, length, l.errors.data)...)}
}

func packItems(items []sqlbatch.Item) *ends {
	l := newEnds(len(items))
	for _, item := range sortedBy(items, compareLeases) {
		l.add(item)
	}
	return l
}
