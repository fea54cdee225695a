package sqlbatch

import "time"

// The statements of producers, and those that settle. {live} and its kin are
// names; every packed list ?1 is walked by the same counter, o being the offset of a record.
// The counter stands to the left of a CROSS JOIN, which SQLite never reorders:
// the list outside, the unique index on id inside.

// Enqueue: record = id 16, priority+1 1, delay 13, time to live 13 (0: for ever),
// key offset 9 and length 3, headers offset 9 and length 6, body offset 9 and
// length 9; numbers are decimal digits, because SQLite casts digits, not bytes,
// to integers.
const sqliteRowSize = 16 + 1 + 13 + 13 + 9 + 3 + 9 + 6 + 9 + 9

const sqliteEnqueue = `INSERT INTO {live} (id, priority, visible_at, enqueued_at, expires_at, dedup_key, headers, body)
SELECT id, priority, t.now + delay, t.now, t.now + ttl, dedup_key, headers, body
FROM (SELECT {now} AS now) AS t CROSS JOIN (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 88 FROM n WHERE o + 88 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 1) AS INTEGER) - 1 AS priority,
         CAST(substr(?1, o + 17, 13) AS INTEGER) AS delay,
         CAST(nullif(substr(?1, o + 30, 13), x'30303030303030303030303030') AS INTEGER) AS ttl,
         CASE WHEN substr(?1, o + 52, 3) > x'303030' THEN CAST(substr(?2, CAST(substr(?1, o + 43, 9) AS INTEGER), CAST(substr(?1, o + 52, 3) AS INTEGER)) AS TEXT) END AS dedup_key,
         CASE WHEN substr(?1, o + 64, 6) > x'303030303030' THEN substr(?2, CAST(substr(?1, o + 55, 9) AS INTEGER), CAST(substr(?1, o + 64, 6) AS INTEGER)) END AS headers,
         substr(?2, CAST(substr(?1, o + 70, 9) AS INTEGER), CAST(substr(?1, o + 79, 9) AS INTEGER)) AS body
  FROM n) AS r`

// WHERE true keeps ON CONFLICT from being read as a join condition.
const sqliteEnqueueNew = sqliteEnqueue + `
WHERE true
ON CONFLICT DO NOTHING
RETURNING id`

const sqliteFind = `SELECT id, dedup_key, fence FROM {live} WHERE id IN ` + sqliteListed + `
UNION ALL
SELECT id, dedup_key, 0 FROM {live} WHERE dedup_key IN (SELECT value FROM json_each(?2))`

const sqliteLook = `SELECT id, fence FROM {live} WHERE id IN ` + sqliteListed

const sqliteListed = `(WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1)) SELECT substr(?1, o, 16) FROM n)`

// The rows that a list of id 16, fence 19 names.
const sqliteMatched = `SELECT q.rowid FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN {live} AS q ON q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 19) AS INTEGER)`

const sqliteItemSize = 16 + 19

const sqliteAck = `DELETE FROM {live} WHERE rowid IN (` + sqliteMatched + `)
RETURNING id, fence`

const sqliteArchiveInsert = `INSERT OR REPLACE INTO {done} (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT id, priority, enqueued_at, {now}, fence, attempts, dedup_key, last_error, headers, body
FROM {live} WHERE rowid IN (` + sqliteMatched + `)`

// An extension that comes late, after a later one, must not take back what that
// one has given: EndAfter alone makes a lease shorter.
const (
	sqliteExtend = `UPDATE {live} SET visible_at = max(visible_at, {now} + ?2) WHERE rowid IN (` + sqliteMatched + `)
RETURNING id, fence`
	sqliteEndAfter = `UPDATE {live} SET visible_at = {now} + ?2 WHERE rowid IN (` + sqliteMatched + `)
RETURNING id, fence`
)

// Nack and Bury: record = id 16, fence 19, amount 13 (the delay of a nack, the
// attempts that a bury gives back), error offset 9 and length 4.
const sqliteEndSize = 16 + 19 + 13 + 9 + 4

const sqliteEndList = `(
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 61 FROM n WHERE o + 61 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS amount,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 48, 9) AS INTEGER), CAST(substr(?1, o + 57, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p`

const sqliteNack = `UPDATE {live} AS q
SET visible_at = {now} + p.amount, fence = q.fence + 1, attempts = q.attempts - q.lapses, lapses = 0, leased_by = NULL, last_error = coalesce(p.error, q.last_error)
FROM ` + sqliteEndList + `
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1`

const sqliteBuryInsert = `INSERT OR REPLACE INTO {dead} (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body)
SELECT q.id, q.priority, q.enqueued_at, {now}, q.fence + 1, q.attempts - p.amount, q.dedup_key, coalesce(p.error, q.last_error), q.headers, q.body
FROM ` + sqliteEndList + ` CROSS JOIN {live} AS q ON q.id = p.id AND q.fence = p.fence`

const sqliteBuryDelete = `DELETE FROM {live} WHERE rowid IN (
  SELECT q.rowid FROM ` + sqliteEndList + ` CROSS JOIN {live} AS q ON q.id = p.id AND q.fence = p.fence)
RETURNING id, fence`

// Release: record = id 16, fence 19, due 13.
const sqliteReleaseSize = 16 + 19 + 13

const sqliteRelease = `UPDATE {live} AS q
SET visible_at = p.due, fence = q.fence + 1, attempts = q.attempts - 1, leased_by = NULL
FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 48 FROM n WHERE o + 48 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 13) AS INTEGER) AS due
  FROM n) AS p
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence - 1`

type sqliteQueue struct {
	enqueue, enqueueNew, find, look, nextDue string
	claim, claimUnsuspected                  sqliteClaims
	ack, archiveInsert, extend, endAfter     string
	nack, buryInsert, buryDelete, release    string
	version, record, problems, clock         string
	stats, get, cancel                       string
	redriveOldest, redriveListed             string
	redriveInsert, redriveDelete             string
	setPaused, trim                          string
	joinSweep, join, leave, members          string
	peek, purge                              map[State]string
}

type sqliteClaims struct{ seeing, blind string }

func (sqlite) Queue(n Names) Queue {
	text := sqliteNames(n).Replace
	return &sqliteQueue{
		enqueue: text(sqliteEnqueue), enqueueNew: text(sqliteEnqueueNew), find: text(sqliteFind), look: text(sqliteLook),
		claim: sqliteClaims{
			seeing: text(sqliteClaimOf(sqliteWithBody, sqliteRanOut, sqliteDue)),
			blind:  text(sqliteClaimOf(sqliteBlind, sqliteRanOut, sqliteDue)),
		},
		claimUnsuspected: sqliteClaims{
			seeing: text(sqliteClaimOf(sqliteWithBody, sqliteUnsuspectedRanOut, sqliteUnsuspectedDue)),
			blind:  text(sqliteClaimOf(sqliteBlind, sqliteUnsuspectedRanOut, sqliteUnsuspectedDue)),
		},
		nextDue: text(sqliteLanes(sqliteNextDue, sqliteNextDueLane, sqliteClaimed, sqliteUnleased)),
		ack:     text(sqliteAck), archiveInsert: text(sqliteArchiveInsert), extend: text(sqliteExtend), endAfter: text(sqliteEndAfter),
		nack: text(sqliteNack), buryInsert: text(sqliteBuryInsert), buryDelete: text(sqliteBuryDelete),
		release: text(sqliteRelease),
		version: text(sqliteVersion), record: text(sqliteRecord), problems: text(sqliteProblems), clock: text(sqliteClock),
		stats: text(sqliteStats), get: text(sqliteGet),
		cancel:        text(sqliteCancel),
		redriveOldest: text(sqliteRedriveMark + sqliteOldestDead), redriveListed: text(sqliteRedriveMark + sqliteListedDead),
		redriveInsert: text(sqliteRedriveInsert), redriveDelete: text(sqliteRedriveDelete),
		setPaused: text(sqliteSetPaused), trim: text(sqliteTrim),
		joinSweep: text(sqliteJoinSweep), join: text(sqliteJoin), leave: text(sqliteLeave), members: text(sqliteMembers),
		peek: map[State]string{
			Ready:     text(sqliteLanes(sqlitePeekLive, sqlitePeekLane, sqliteRanOut, sqliteDue)),
			Scheduled: text(sqliteLanes(sqlitePeekLive, sqlitePeekLane, sqliteScheduled)),
			Leased:    text(sqliteLanes(sqlitePeekLive, sqlitePeekLane, sqliteLeased)),
			Dead:      text(sqlitePeekDead),
			Done:      text(sqlitePeekDone),
		},
		purge: map[State]string{
			Ready:     text(sqlitePurge(sqliteBecameDue, sqliteRanOut, sqliteDue)),
			Scheduled: text(sqlitePurge(sqliteWasSent, sqliteScheduled)),
			Leased:    text(sqlitePurge(sqliteWasLeased, sqliteLeased)),
			Dead:      text(sqlitePurgeDead),
			Done:      text(sqlitePurgeDone),
		},
	}
}

// InTx is the same queue: no text has transaction control of its own.
func (q *sqliteQueue) InTx() Queue { return q }

// InOwnTx is the same queue, likewise.
func (q *sqliteQueue) InOwnTx() Queue { return q }

// SkipLocked is the same queue: with one writer there are no locks on rows.
func (q *sqliteQueue) SkipLocked() Queue { return q }

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
		list = appendDigits(list, milliseconds(row.TTL), 13)
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

func (q *sqliteQueue) Look(ids [][16]byte) Statement {
	return Statement{Text: q.look, Args: []any{packSQLiteIDs(ids)}}
}

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

func (q *sqliteQueue) EndAfter(items []Item, lease time.Duration) Statement {
	return Statement{Text: q.endAfter, Args: []any{packSQLiteItems(items), milliseconds(lease)}}
}

func (q *sqliteQueue) Nack(items []NackItem) Statement {
	list := make([]byte, 0, len(items)*sqliteEndSize)
	var errs []byte
	for i := range items {
		list, errs = appendEnd(list, errs, items[i].Item, milliseconds(items[i].Delay), items[i].Error)
	}
	return Statement{Text: q.nack, Args: []any{list, errs}}
}

func (q *sqliteQueue) Bury(items []BuryItem) Statement {
	list := make([]byte, 0, len(items)*sqliteEndSize)
	var errs []byte
	for i := range items {
		refund := int64(0)
		if items[i].Uncounted {
			refund = 1
		}
		list, errs = appendEnd(list, errs, items[i].Item, refund, items[i].Error)
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

func appendEnd(list, errs []byte, item Item, amount int64, text string) (newList, newErrs []byte) {
	text = cut(text)
	list = appendItem(list, item)
	list = appendDigits(list, amount, 13)
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
	return appendDigits(append(list, item.ID[:]...), item.Fence, 19)
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
