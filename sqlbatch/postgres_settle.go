package sqlbatch

import "time"

// postgresMatch finds the lease of each element of a list by the primary key.
// ANY with an array of one leaves the planner no other way than that: the list
// outside, one probe inside (see Postgres). Lists are in id order, so settles
// and extensions lock their rows in one order and do not deadlock with each
// other. No FOR UPDATE before: it would write and log every row twice.
//
// There is no SKIP LOCKED: a settle waits for its row. Fence and id are looked
// at once more when the row is free, in its latest version, so an ack that waited
// for an extension applies, and one that waited for another claim does not.
//
// The planner does not see how long a list is, since that is behind a SELECT. For a
// thousand items in a table that its statistics call empty it would rather read all
// of the table, and hold each row against all of the list.
const postgresMatch = `q.id = ANY (ARRAY[a.id]) AND q.fence = ANY (ARRAY[a.fence])`

const postgresItemList = `unnest((SELECT $1::uuid[]), (SELECT $2::integer[])) AS a (id, fence)`

const postgresFromItems = `FROM ` + postgresItemList + `
WHERE ` + postgresMatch

// postgresAck deletes leases. A repeat deletes nothing, so an unknown outcome
// may be repeated.
const postgresAck = `DELETE FROM {live} AS q
USING ` + postgresItemList + `
WHERE ` + postgresMatch + `
RETURNING uuid_send(q.id), q.fence`

func (q *postgresQueue) Ack(items []Item) Statement {
	ids, fences := postgresItems(items)
	return Statement{Text: q.ack, Args: []any{ids, fences}}
}

// postgresArchive is postgresAck that keeps the rows, in one statement. An id may
// be among the kept already: an INSERT that was repeated after an unknown
// outcome may bring back a message that had ended meanwhile. The older copy
// gives way.
const postgresArchive = `WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + postgresItemList + `
  WHERE ` + postgresMatch + `
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, q.attempts, q.dedup_key, q.last_error, q.headers, q.body
)
INSERT INTO {done} AS d (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT id, priority, enqueued_at, {now}, fence, attempts, dedup_key, last_error, headers, body
FROM gone
` + postgresReplace + `
RETURNING uuid_send(d.id), d.fence`

const postgresReplace = `ON CONFLICT (id) DO UPDATE SET
  priority = excluded.priority, enqueued_at = excluded.enqueued_at, ended_at = excluded.ended_at, fence = excluded.fence,
  attempts = excluded.attempts, dedup_key = excluded.dedup_key, last_error = excluded.last_error,
  headers = excluded.headers, body = excluded.body`

func (q *postgresQueue) Archive(items []Item) Statement {
	ids, fences := postgresItems(items)
	return Statement{Text: q.archive, Args: []any{ids, fences}}
}

// postgresNack ends leases by raising the fence: a late ack or a repeat of this
// matches nothing.
const postgresNack = `UPDATE {live} AS q
SET visible_at = {now} + coalesce(a.delay, 0), fence = q.fence + 1, leased_by = NULL,
    last_error = CASE WHEN a.error > 0 THEN convert_from(substring($6::bytea FROM a.error_at FOR a.error), 'UTF8') ELSE q.last_error END
FROM unnest((SELECT $1::uuid[]), (SELECT $2::integer[]), (SELECT $3::bigint[]), (SELECT $4::integer[]), (SELECT $5::integer[])) AS a (id, fence, delay, error_at, error)
WHERE ` + postgresMatch + `
RETURNING uuid_send(q.id), q.fence - 1`

func (q *postgresQueue) Nack(items []NackItem) Statement {
	items = sortedBy(items, func(a, b NackItem) int { return compareLeases(a.Item, b.Item) })
	l := newPostgresEnds(len(items))
	for i := range items {
		l.add(items[i].Item, items[i].Delay, items[i].Error)
	}
	at, length := l.errors.place()
	return Statement{Text: q.nack, Args: []any{l.ids.literal(), l.fences.literal(), l.delays.orEmpty(), at, length, l.errors.data}}
}

// postgresRelease gives messages back as they were claimed: due at their former
// time, so that they keep their place in the order, and the attempt not counted.
// The fence still rises, since it never goes back.
const postgresRelease = `UPDATE {live} AS q
SET visible_at = a.due, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM unnest((SELECT $1::uuid[]), (SELECT $2::integer[]), (SELECT $3::bigint[])) AS a (id, fence, due)
WHERE ` + postgresMatch + `
RETURNING uuid_send(q.id), q.fence - 1`

func (q *postgresQueue) Release(items []ReleaseItem) Statement {
	items = sortedBy(items, func(a, b ReleaseItem) int { return compareLeases(a.Item, b.Item) })
	l, due := newPostgresEnds(len(items)), newPostgresArray(len(items), 13)
	for i := range items {
		l.add(items[i].Item, 0, "")
		due.number(items[i].Due)
	}
	return Statement{Text: q.release, Args: []any{l.ids.literal(), l.fences.literal(), due.literal()}}
}

// postgresBury moves leases to the dead table, as postgresArchive does.
const postgresBury = `WITH gone AS (
  DELETE FROM {live} AS q
  USING unnest((SELECT $1::uuid[]), (SELECT $2::integer[]), (SELECT $3::integer[]), (SELECT $4::integer[])) AS a (id, fence, error_at, error)
  WHERE ` + postgresMatch + `
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, q.attempts, q.dedup_key, q.headers, q.body,
            CASE WHEN a.error > 0 THEN convert_from(substring($5::bytea FROM a.error_at FOR a.error), 'UTF8') ELSE q.last_error END AS last_error
)
INSERT INTO {dead} AS d (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT id, priority, enqueued_at, {now}, fence + 1, attempts, dedup_key, last_error, headers, body
FROM gone
` + postgresReplace + `
RETURNING uuid_send(d.id), d.fence - 1`

func (q *postgresQueue) Bury(items []BuryItem) Statement {
	items = sortedBy(items, func(a, b BuryItem) int { return compareLeases(a.Item, b.Item) })
	l := newPostgresEnds(len(items))
	for i := range items {
		l.add(items[i].Item, 0, items[i].Error)
	}
	at, length := l.errors.place()
	return Statement{Text: q.bury, Args: []any{l.ids.literal(), l.fences.literal(), at, length, l.errors.data}}
}

// postgresEnds is the lists of a settle.
type postgresEnds struct {
	ids, fences, delays postgresArray
	errors              postgresBlob
}

func newPostgresEnds(n int) postgresEnds {
	return postgresEnds{
		ids: newPostgresArray(n, 32), fences: newPostgresArray(n, 2), delays: newPostgresArray(n, 6),
		errors: newPostgresBlob(n, 0),
	}
}

func (l *postgresEnds) add(item Item, delay time.Duration, text string) {
	l.ids.id(item.ID)
	l.fences.number(int64(item.Fence))
	l.delays.number(milliseconds(delay))
	text = cut(postgresText(text))
	l.errors.next(len(text))
	l.errors.data = append(l.errors.data, text...)
}

func postgresItems(items []Item) (ids, fences string) {
	l := newPostgresEnds(len(items))
	for _, item := range sortedBy(items, compareLeases) {
		l.ids.id(item.ID)
		l.fences.number(int64(item.Fence))
	}
	return l.ids.literal(), l.fences.literal()
}
