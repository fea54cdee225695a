package sqlbatch

import (
	"fmt"
	"strings"
	"time"
)

// postgresMatch finds the lease of each element of a list by the primary key.
// ANY with an array of one leaves the planner no other way than that: the list
// outside, one probe inside (see Postgres). Lists are in id order, so settles
// and extensions lock their rows in one order and do not deadlock with each
// other.
//
// Fence and id are looked at once more when a row that was locked is free, in its
// latest version, so an ack that waited for an extension applies, and one that
// waited for another claim does not.
//
// The planner does not see how long a list is, since that is behind a SELECT. For a
// thousand items in a table that its statistics call empty it would rather read all
// of the table, and hold each row against all of the list.
//
// A list has fences relative to $2: those of one claim are the same number of
// nineteen digits.
const postgresMatch = `q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[$2::bigint + coalesce(a.above, 0)])`

// postgresLocked is what a settle does about a row that somebody has locked.
type postgresLocked uint8

const (
	// postgresWaits: for the caller's transaction.
	postgresWaits postgresLocked = iota
	// postgresWaitsShortly: for LockWait, then it fails, and nothing is done. The
	// setting is made before the first row is looked for, where the list is
	// evaluated, and ends with the statement's own transaction.
	postgresWaitsShortly
	// postgresSkips locks what is free before it writes, and so writes each row
	// twice: an ack of a thousand takes 1.7 times as long (docs/decisions.md).
	postgresSkips
)

// list is what follows FROM or USING in a settle: its leases as a, and their rows
// as q. Parameters are the ids, a fence, how far each lease's fence is above it, and then
// the other columns of the list, which have a name and a type each.
func (l postgresLocked) list(columns ...string) string {
	ids := "$1::uuid[]"
	if l == postgresWaitsShortly {
		ids = fmt.Sprintf("CASE WHEN set_config('lock_timeout', '%d', true) IS NOT NULL THEN %s END", LockWait.Milliseconds(), ids)
	}
	names, arrays := []string{"id", "above"}, []string{"(SELECT " + ids + ")", "(SELECT $3::bigint[])"}
	for i, column := range columns {
		name, kind, _ := strings.Cut(column, " ")
		names = append(names, name)
		arrays = append(arrays, fmt.Sprintf("(SELECT $%d::%s[])", i+4, kind))
	}
	unnested := "unnest(" + strings.Join(arrays, ", ") + ") AS a (" + strings.Join(names, ", ") + ")"
	if l == postgresSkips {
		unnested = `(
  SELECT a.* FROM ` + unnested + `
  JOIN {live} AS q ON ` + postgresMatch + `
  FOR UPDATE OF q SKIP LOCKED
) AS a`
	}
	return unnested + "\nWHERE " + postgresMatch
}

// postgresSettles are the statements that apply to leases.
type postgresSettles struct{ ack, archive, nack, release, bury, extend, endAfter string }

func newPostgresSettles(r *strings.Replacer, locked postgresLocked) *postgresSettles {
	return &postgresSettles{
		ack:      r.Replace(postgresAck(locked)),
		archive:  r.Replace(postgresArchive(locked)),
		nack:     r.Replace(postgresNack(locked)),
		release:  r.Replace(postgresRelease(locked)),
		bury:     r.Replace(postgresBury(locked)),
		extend:   r.Replace(postgresExtend(locked, `greatest(q.visible_at, {now} + $4::bigint)`)),
		endAfter: r.Replace(postgresExtend(locked, `{now} + $4::bigint`)),
	}
}

// postgresAck deletes leases. A repeat deletes nothing, so an unknown outcome
// may be repeated.
func postgresAck(locked postgresLocked) string {
	return `DELETE FROM {live} AS q
USING ` + locked.list() + `
RETURNING uuid_send(q.id), q.fence`
}

func (q *postgresQueue) Ack(items []Item) Statement {
	l := postgresItems(items)
	return Statement{Text: q.settle.ack, Args: l.args()}
}

// postgresArchive is postgresAck that keeps the rows, in one statement. An id may
// be among the kept already: an INSERT that was repeated after an unknown
// outcome may bring back a message that had ended meanwhile. The older copy
// gives way.
func postgresArchive(locked postgresLocked) string {
	return `WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + locked.list() + `
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, q.attempts, q.dedup_key, q.last_error, q.headers, q.body
)
INSERT INTO {done} AS d (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT id, priority, enqueued_at, {now}, fence, attempts, dedup_key, last_error, headers, body
FROM gone
` + postgresReplace + `
RETURNING uuid_send(d.id), d.fence`
}

const postgresReplace = `ON CONFLICT (id) DO UPDATE SET
  priority = excluded.priority, enqueued_at = excluded.enqueued_at, ended_at = excluded.ended_at, fence = excluded.fence,
  attempts = excluded.attempts, dedup_key = excluded.dedup_key, last_error = excluded.last_error,
  headers = excluded.headers, body = excluded.body`

func (q *postgresQueue) Archive(items []Item) Statement {
	l := postgresItems(items)
	return Statement{Text: q.settle.archive, Args: l.args()}
}

// postgresNack ends leases by raising the fence: a late ack or a repeat of this
// matches nothing.
func postgresNack(locked postgresLocked) string {
	return `UPDATE {live} AS q
SET visible_at = {now} + coalesce(a.delay, 0), fence = q.fence + 1, attempts = q.attempts - q.lapses, lapses = 0, leased_by = NULL,
    last_error = CASE WHEN a.error > 0 THEN convert_from(substring($7::bytea FROM a.error_at FOR a.error), 'UTF8') ELSE q.last_error END
FROM ` + locked.list("delay bigint", "error_at integer", "error integer") + `
RETURNING uuid_send(q.id), q.fence - 1`
}

func (q *postgresQueue) Nack(items []NackItem) Statement {
	items = sortedBy(items, func(a, b NackItem) int { return compareLeases(a.Item, b.Item) })
	l := newPostgresEnds(len(items))
	for i := range items {
		l.add(items[i].Item)
		l.note(items[i].Error)
		l.numbers.number(milliseconds(items[i].Delay))
	}
	at, length := l.errors.place()
	return Statement{Text: q.settle.nack, Args: l.args(l.numbers.orEmpty(), at, length, l.errors.data)}
}

// postgresRelease gives messages back as they were claimed: due at their former
// time, so that they keep their place in the order, and the attempt not counted.
// The fence still rises, since it never goes back.
func postgresRelease(locked postgresLocked) string {
	return `UPDATE {live} AS q
SET visible_at = a.due, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM ` + locked.list("due bigint") + `
RETURNING uuid_send(q.id), q.fence - 1`
}

func (q *postgresQueue) Release(items []ReleaseItem) Statement {
	items = sortedBy(items, func(a, b ReleaseItem) int { return compareLeases(a.Item, b.Item) })
	l := newPostgresEnds(len(items))
	for i := range items {
		l.add(items[i].Item)
		l.numbers.number(items[i].Due)
	}
	return Statement{Text: q.settle.release, Args: l.args(l.numbers.literal())}
}

// postgresBury moves leases to the dead table, as postgresArchive does.
func postgresBury(locked postgresLocked) string {
	return `WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + locked.list("uncounted integer", "error_at integer", "error integer") + `
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, q.attempts - coalesce(a.uncounted, 0) AS attempts, q.dedup_key, q.headers, q.body,
            CASE WHEN a.error > 0 THEN convert_from(substring($7::bytea FROM a.error_at FOR a.error), 'UTF8') ELSE q.last_error END AS last_error
)
INSERT INTO {dead} AS d (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT id, priority, enqueued_at, {now}, fence + 1, attempts, dedup_key, last_error, headers, body
FROM gone
` + postgresReplace + `
RETURNING uuid_send(d.id), d.fence - 1`
}

func (q *postgresQueue) Bury(items []BuryItem) Statement {
	items = sortedBy(items, func(a, b BuryItem) int { return compareLeases(a.Item, b.Item) })
	l := newPostgresEnds(len(items))
	for i := range items {
		l.add(items[i].Item)
		l.note(items[i].Error)
		uncounted := int64(0)
		if items[i].Uncounted {
			uncounted = 1
		}
		l.numbers.number(uncounted)
	}
	at, length := l.errors.place()
	return Statement{Text: q.settle.bury, Args: l.args(l.numbers.orEmpty(), at, length, l.errors.data)}
}

// postgresExtend moves the end of the leases; fences stay.
func postgresExtend(locked postgresLocked, end string) string {
	return `UPDATE {live} AS q
SET visible_at = ` + end + `
FROM ` + locked.list() + `
RETURNING uuid_send(q.id), q.fence`
}

func (q *postgresQueue) Extend(items []Item, lease time.Duration) Statement {
	l := postgresItems(items)
	return Statement{Text: q.settle.extend, Args: l.args(milliseconds(lease))}
}

func (q *postgresQueue) EndAfter(items []Item, lease time.Duration) Statement {
	l := postgresItems(items)
	return Statement{Text: q.settle.endAfter, Args: l.args(milliseconds(lease))}
}

// postgresLook probes the primary key. Plain reads wait for nobody.
const postgresLook = `SELECT uuid_send(q.id), q.fence
FROM unnest((SELECT $1::uuid[])) AS a (id)
JOIN {live} AS q ON q.id = ANY (ARRAY[a.id])`

func (q *postgresQueue) Look(ids [][16]byte) Statement {
	return Statement{Text: q.look, Args: []any{postgresIDs(ids)}}
}

// postgresEnds is the lists of a settle: the leases, a number for each, and the
// errors.
type postgresEnds struct {
	ids, above, numbers postgresArray
	fence               int64 // the first one's
	errors              postgresBlob
}

func newPostgresEnds(n int) postgresEnds {
	return postgresEnds{
		ids: newPostgresArray(n, 32), above: newPostgresArray(n, 2), numbers: newPostgresArray(n, 6),
		errors: newPostgresBlob(n, 0),
	}
}

func (l *postgresEnds) add(item Item) {
	if len(l.ids.b) == 1 {
		l.fence = item.Fence
	}
	l.ids.id(item.ID)
	l.above.number(item.Fence - l.fence)
}

// note adds the error of the item added last.
func (l *postgresEnds) note(text string) {
	text = cut(postgresText(text))
	l.errors.next(len(text))
	l.errors.data = append(l.errors.data, text...)
}

// args are the parameters of a settle, which begin with the leases.
func (l *postgresEnds) args(others ...any) []any {
	return append([]any{l.ids.literal(), l.fence, l.above.orEmpty()}, others...)
}

func postgresItems(items []Item) postgresEnds {
	l := newPostgresEnds(len(items))
	for _, item := range sortedBy(items, compareLeases) {
		l.add(item)
	}
	return l
}
