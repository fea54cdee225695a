package sqlbatch

import (
	"fmt"
	"strings"
	"time"
)

// The statements of one SQLite queue. {live} and its kin are names; every
// packed list ?1 is walked by the same counter, o being the offset of a record.
// The counter stands to the left of a CROSS JOIN, which SQLite never reorders:
// the list outside, the unique index on id inside.

// Enqueue: record = id 16, priority+1 1, delay 13, key offset 9 and length 3,
// headers offset 9 and length 6, body offset 9 and length 9; numbers are
// decimal digits, because SQLite casts digits, not bytes, to integers.
const sqliteRowSize = 16 + 1 + 13 + 9 + 3 + 9 + 6 + 9 + 9

const sqliteEnqueue = `INSERT INTO {live} (id, priority, visible_at, enqueued_at, due_at, fence, attempts, dedup_key, headers, body)
SELECT id, priority, t.now + delay, t.now, t.now + delay, 0, 0, dedup_key, headers, body
FROM (SELECT {now} AS now) AS t CROSS JOIN (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 75 FROM n WHERE o + 75 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 1) AS INTEGER) - 1 AS priority,
         CAST(substr(?1, o + 17, 13) AS INTEGER) AS delay,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 30, 9) AS INTEGER), CAST(substr(?1, o + 39, 3) AS INTEGER)) AS TEXT), '') AS dedup_key,
         nullif(substr(?2, CAST(substr(?1, o + 42, 9) AS INTEGER), CAST(substr(?1, o + 51, 6) AS INTEGER)), x'') AS headers,
         substr(?2, CAST(substr(?1, o + 57, 9) AS INTEGER), CAST(substr(?1, o + 66, 9) AS INTEGER)) AS body
  FROM n) AS r`

// WHERE true keeps ON CONFLICT from being read as a join condition.
const sqliteEnqueueNew = sqliteEnqueue + `
WHERE true
ON CONFLICT DO NOTHING
RETURNING id`

const sqliteFind = `SELECT id, dedup_key, fence, (leased_by IS NOT NULL AND visible_at > {now}) AS leased
FROM {live}
WHERE id IN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1))
             SELECT substr(?1, o, 16) FROM n)
   OR dedup_key IN (SELECT value FROM json_each(?2))`

// Claim: four seeks into (priority, visible_at, id), highest lane first. The
// outer LIMIT ends the walk as soon as enough rows were found, and is 0 when
// the queue is paused. One writer: no row can be locked by another.
const sqliteClaim = `UPDATE {live} SET due_at = visible_at, visible_at = {now} + ?2, fence = fence + 1, attempts = attempts + 1, leased_by = ?3
WHERE rowid IN (SELECT rowid FROM (
{lanes}
  ) LIMIT (SELECT iif(paused, 0, ?1) FROM {queues} WHERE name = {name}))
RETURNING id, priority, fence, attempts, enqueued_at, due_at, dedup_key, headers, body`

// + 0: SQLite parses and plans a statement anew each time that a value is bound
// to a bare parameter of a LIMIT.
const sqliteReadyLane = `    SELECT * FROM (SELECT rowid FROM {live} WHERE priority = %d AND visible_at <= {now} ORDER BY visible_at, id LIMIT ?1 + 0)`

const sqliteNextDue = `SELECT min(due) FROM (
{lanes}
) WHERE (SELECT NOT paused FROM {queues} WHERE name = {name})`

const sqliteNextDueLane = `  SELECT * FROM (SELECT visible_at - {now} AS due FROM {live} WHERE priority = %d ORDER BY visible_at, id LIMIT 1)`

// The rows that a list of id 16, fence 10 names.
const sqliteMatched = `SELECT q.rowid FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 26 FROM n WHERE o + 26 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN {live} AS q ON q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 10) AS INTEGER)`

const sqliteItemSize = 26

const sqliteAck = `DELETE FROM {live} WHERE rowid IN (` + sqliteMatched + `)
RETURNING id, fence`

const sqliteArchiveInsert = `INSERT OR REPLACE INTO {done} (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT id, priority, enqueued_at, {now}, fence, attempts, dedup_key, last_error, headers, body
FROM {live} WHERE rowid IN (` + sqliteMatched + `)`

const sqliteExtend = `UPDATE {live} SET visible_at = {now} + ?2 WHERE rowid IN (` + sqliteMatched + `)
RETURNING id, fence`

// Nack and Bury: record = id 16, fence 10, delay 13, error offset 9 and length 4.
const sqliteNackSize = 16 + 10 + 13 + 9 + 4

const sqliteNackList = `(
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 52 FROM n WHERE o + 52 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 10) AS INTEGER) AS fence,
         CAST(substr(?1, o + 26, 13) AS INTEGER) AS delay,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 39, 9) AS INTEGER), CAST(substr(?1, o + 48, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p`

const sqliteNack = `UPDATE {live} AS q
SET visible_at = {now} + p.delay, fence = q.fence + 1, leased_by = NULL, last_error = coalesce(p.error, q.last_error)
FROM ` + sqliteNackList + `
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1`

const sqliteBuryInsert = `INSERT OR REPLACE INTO {dead} (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT q.id, q.priority, q.enqueued_at, {now}, q.fence + 1, q.attempts, q.dedup_key, coalesce(p.error, q.last_error), q.headers, q.body
FROM ` + sqliteNackList + ` CROSS JOIN {live} AS q ON q.id = p.id AND q.fence = p.fence`

const sqliteBuryDelete = `DELETE FROM {live} WHERE rowid IN (
  SELECT q.rowid FROM ` + sqliteNackList + ` CROSS JOIN {live} AS q ON q.id = p.id AND q.fence = p.fence)
RETURNING id, fence`

// Release: record = id 16, fence 10, due 13.
const sqliteReleaseSize = 16 + 10 + 13

const sqliteRelease = `UPDATE {live} AS q
SET visible_at = p.due, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 39 FROM n WHERE o + 39 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 10) AS INTEGER) AS fence,
         CAST(substr(?1, o + 26, 13) AS INTEGER) AS due
  FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1`

type sqliteQueue struct {
	enqueue, enqueueNew, find, claim, nextDue string
	ack, archiveInsert, extend                string
	nack, buryInsert, buryDelete, release     string
	version, record, stats, get               string
	cancel, redriveOldest, redriveListed      string
	redriveInsert, redriveDelete              string
	setPaused, trim                           string
	peek, purge                               map[State]string
}

func (sqlite) Queue(n Names) Queue {
	r := sqliteNames(n)
	text := func(template string, lane ...string) string {
		if len(lane) > 0 {
			template = strings.Replace(template, "{lanes}", sqliteLanes(lane[0]), 1)
		}
		return r.Replace(template)
	}
	q := &sqliteQueue{
		enqueue: text(sqliteEnqueue), enqueueNew: text(sqliteEnqueueNew), find: text(sqliteFind),
		claim: text(sqliteClaim, sqliteReadyLane), nextDue: text(sqliteNextDue, sqliteNextDueLane),
		ack: text(sqliteAck), archiveInsert: text(sqliteArchiveInsert), extend: text(sqliteExtend),
		nack: text(sqliteNack), buryInsert: text(sqliteBuryInsert), buryDelete: text(sqliteBuryDelete),
		release: text(sqliteRelease),
		version: text(sqliteVersion), record: text(sqliteRecord), stats: text(sqliteStats), get: text(sqliteGet),
		cancel:        text(sqliteCancel),
		redriveOldest: text(sqliteRedriveMark + sqliteOldestDead), redriveListed: text(sqliteRedriveMark + sqliteListedDead),
		redriveInsert: text(sqliteRedriveInsert), redriveDelete: text(sqliteRedriveDelete),
		setPaused: text(sqliteSetPaused), trim: text(sqliteTrim),
		peek: map[State]string{
			Ready:     text(sqlitePeekLive, sqliteReadyLane),
			Scheduled: text(sqlitePeekLive, sqliteScheduledLane),
			Leased:    text(sqlitePeekLive, sqliteLeasedLane),
			Dead:      text(sqlitePeekDead),
			Done:      text(sqlitePeekDone),
		},
		purge: map[State]string{
			Ready:     text(sqlitePurgeLive, sqliteReadyLane),
			Scheduled: text(sqlitePurgeLive, sqliteScheduledPurgeLane),
			Leased:    text(sqlitePurgeLive, sqliteLeasedPurgeLane),
			Dead:      text(sqlitePurgeDead),
			Done:      text(sqlitePurgeDone),
		},
	}
	return q
}

// sqliteLanes is one SELECT per priority, highest first.
func sqliteLanes(template string) string {
	var lanes []string
	for p := PriorityUrgent; p >= PriorityLow; p-- {
		lanes = append(lanes, strings.ReplaceAll(template, "%d", fmt.Sprint(p)))
	}
	return strings.Join(lanes, "\n    UNION ALL\n")
}

// InTx is the same queue: no text has transaction control of its own.
func (q *sqliteQueue) InTx() Queue { return q }

func (q *sqliteQueue) Enqueue(rows []Row) Statement    { return packSQLiteRows(q.enqueue, rows) }
func (q *sqliteQueue) EnqueueNew(rows []Row) Statement { return packSQLiteRows(q.enqueueNew, rows) }

func packSQLiteRows(text string, rows []Row) Statement {
	size := 0
	for i := range rows {
		size += len(rows[i].Key) + len(rows[i].Headers) + len(rows[i].Body)
	}
	list := make([]byte, 0, len(rows)*sqliteRowSize)
	data := make([]byte, 0, size)
	for i := range rows {
		row := &rows[i]
		list = append(list, row.ID[:]...)
		list = append(list, '0'+byte(row.Priority-PriorityLow))
		list = appendDigits(list, milliseconds(row.Delay), 13)
		list = appendDigits(list, int64(len(data)+1), 9)
		list = appendDigits(list, int64(len(row.Key)), 3)
		data = append(data, row.Key...)
		list = appendDigits(list, int64(len(data)+1), 9)
		list = appendDigits(list, int64(len(row.Headers)), 6)
		data = append(data, row.Headers...)
		list = appendDigits(list, int64(len(data)+1), 9)
		list = appendDigits(list, int64(len(row.Body)), 9)
		data = append(data, row.Body...)
	}
	if len(data) == 0 {
		data = []byte{0} // the driver binds an empty blob as NULL, of which every part is NULL
	}
	return Statement{Text: text, Args: []any{list, data}}
}

func (q *sqliteQueue) Find(ids [][16]byte, keys []string) Statement {
	return Statement{Text: q.find, Args: []any{packSQLiteIDs(ids), jsonStrings(keys)}}
}

func (q *sqliteQueue) Claim(p ClaimParams) Statement {
	return Statement{Text: q.claim, Args: []any{int64(p.Rows), milliseconds(p.Lease), p.Member[:]}}
}

func (q *sqliteQueue) NextDue() Statement { return Statement{Text: q.nextDue} }

func (q *sqliteQueue) Ack(items []Item) Statement {
	return Statement{Text: q.ack, Args: []any{packSQLiteItems(items)}}
}

func (q *sqliteQueue) Archive(items []Item) Statement {
	args := []any{packSQLiteItems(items)}
	return Statement{Text: q.ack, Args: args, Prior: []Statement{{Text: q.archiveInsert, Args: args}}}
}

func (q *sqliteQueue) Extend(items []Item, lease time.Duration) Statement {
	return Statement{Text: q.extend, Args: []any{packSQLiteItems(items), milliseconds(lease)}}
}

func (q *sqliteQueue) Nack(items []NackItem) Statement {
	list := make([]byte, 0, len(items)*sqliteNackSize)
	var errs []byte
	for i := range items {
		list, errs = appendNack(list, errs, items[i].Item, items[i].Delay, items[i].Error)
	}
	return Statement{Text: q.nack, Args: []any{list, errs}}
}

func (q *sqliteQueue) Bury(items []BuryItem) Statement {
	list := make([]byte, 0, len(items)*sqliteNackSize)
	var errs []byte
	for i := range items {
		list, errs = appendNack(list, errs, items[i].Item, 0, items[i].Error)
	}
	insert := Statement{Text: q.buryInsert, Args: []any{list, errs}}
	return Statement{Text: q.buryDelete, Args: []any{list, errs}, Prior: []Statement{insert}}
}

func (q *sqliteQueue) Release(items []ReleaseItem) Statement {
	list := make([]byte, 0, len(items)*sqliteReleaseSize)
	for i := range items {
		list = appendItem(list, items[i].Item)
		list = appendDigits(list, items[i].Due, 13)
	}
	return Statement{Text: q.release, Args: []any{list}}
}

func appendNack(list, errs []byte, item Item, delay time.Duration, text string) (newList, newErrs []byte) {
	text = cut(text)
	list = appendItem(list, item)
	list = appendDigits(list, milliseconds(delay), 13)
	list = appendDigits(list, int64(len(errs)+1), 9)
	list = appendDigits(list, int64(len(text)), 4)
	return list, append(errs, text...)
}

func packSQLiteItems(items []Item) []byte {
	list := make([]byte, 0, len(items)*sqliteItemSize)
	for i := range items {
		list = appendItem(list, items[i])
	}
	return list
}

func appendItem(list []byte, item Item) []byte {
	return appendDigits(append(list, item.ID[:]...), int64(item.Fence), 10)
}

func packSQLiteIDs(ids [][16]byte) []byte {
	list := make([]byte, 0, len(ids)*16)
	for i := range ids {
		list = append(list, ids[i][:]...)
	}
	return list
}

// appendDigits appends v, which is not negative, as width decimal digits.
func appendDigits(b []byte, v int64, width int) []byte {
	n := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := n + width - 1; v > 0 && i >= n; i-- {
		b[i] = '0' + byte(v%10)
		v /= 10
	}
	return b
}
