package postgres

import (
	"math"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// The tables of an ordered queue, and how it is claimed from.

// numbersText: a cache would give numbers to one session that others have passed.
const numbersText = `CREATE SEQUENCE IF NOT EXISTS {numbers} AS bigint MINVALUE 1 MAXVALUE 8796093022207 CACHE 1`

// seqIndexText is what claims walk, in the place of dueIndexText: nothing that they
// change is in it, neither the end of a lease nor the time of a retry.
var seqIndexText = indexText("{'due'}", `CREATE INDEX {due} ON {live} (slot, seq)`)

// deadLineIndexText finds the keys that dead messages hold.
var deadLineIndexText = indexText("{'dead line'}", `CREATE INDEX {dead line} ON {dead} (slot, order_key) WHERE order_key IS NOT NULL`)

// behindSeq is a range of the index: of one slot what is behind a seq. It compares rows:
// of slot = $1 the planner would think that there are few, and sort them.
func behindSeq(slot, seq string) string {
	return "(q.slot, q.seq) > (" + slot + ", " + seq + ") AND (q.slot, q.seq) <= (" + slot + ", 9223372036854775807)"
}

// claimSlotsText walks the parts one after the other until there are n rows, without what
// the member itself holds. It walks the same once more and locks what may be claimed, and
// passes over what others have locked: that costs less than to find each row by its id.
// Rows that were changed since it began are looked at once more when their lock is taken. A
// lease ends with the membership at the latest.
//
// The two limits of a part are for the planner: see chosen. NOT IN looks into a hash of what
// was leased, whatever the planner thinks of how many there are.
func claimSlotsText(content string) string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n, m.until
  FROM {members} AS m
  WHERE m.id = $3::uuid AND m.until > {now} AND NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)
),
parts AS MATERIALIZED (
  SELECT a.o, a.slot, a.seq, a.most
  FROM unnest($6::smallint[], $7::bigint[], $8::bigint[], $9::integer[]) WITH ORDINALITY AS a (slot, fence, seq, most, o)
  JOIN {slots} AS s ON s.queue = {name} AND s.slot = a.slot AND s.fence = a.fence AND s.member = $3::uuid
  WHERE EXISTS (SELECT 1 FROM t)
  ORDER BY a.o
),
walked AS MATERIALIZED (
  SELECT p.o, w.*
  FROM parts AS p
  CROSS JOIN LATERAL (
    SELECT l.* FROM (
      SELECT q.id, q.slot, q.seq
      FROM {live} AS q
      WHERE ` + behindSeq("p.slot", "p.seq") + ` AND ` + not("(q.lease_until > (SELECT now FROM t) AND q.leased_by = $3::uuid AND $10::integer = 0)") + `
      ORDER BY q.slot, q.seq LIMIT {rows}) AS l
    LIMIT p.most) AS w
  LIMIT (SELECT n FROM t)
),
seen AS MATERIALIZED (
  SELECT w.o, w.slot, count(*) AS n, min(w.seq) AS first, max(w.seq) AS last FROM walked AS w GROUP BY w.o, w.slot
),
total AS MATERIALIZED (
  SELECT coalesce(sum(s.n), 0) AS n, max(s.o) AS o FROM seen AS s
),
chosen AS MATERIALIZED (
  SELECT c.id
  FROM seen AS s
  CROSS JOIN LATERAL (
    SELECT l.id FROM (
      SELECT q.id FROM {live} AS q
      WHERE (q.slot, q.seq) >= (s.slot, s.first) AND (q.slot, q.seq) <= (s.slot, s.last) AND ` + claimable + `
      ORDER BY q.slot, q.seq LIMIT {rows} FOR UPDATE SKIP LOCKED) AS l
    LIMIT s.n) AS c
  LIMIT (SELECT n FROM t)
),
leased AS (
  UPDATE {live} AS q
  SET lease_until = least((SELECT now FROM t) + $2::bigint, (SELECT until FROM t)), fence = greatest(q.fence, (SELECT now << {fence bits} FROM t)) + $4::bigint,
      attempts = q.attempts + 1, lapses = CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE least(q.lapses + 1, 32767) END, leased_by = $3::uuid
  FROM chosen AS c
  WHERE q.id = ANY (ARRAY[c.id])
  RETURNING q.id, q.priority, q.fence, q.attempts, q.lapses, (coalesce(q.expires_at <= (SELECT now FROM t), false))::integer AS expired,
            q.enqueued_at, q.due_at, q.expires_at, ` + content + `, q.slot, q.seq, convert_to(q.order_key, {encoding}) AS order_key
)
SELECT uuid_send(l.id) AS id, ` + strings.ReplaceAll(claimedColumns, "*", "l.") + `, l.slot, l.seq, l.order_key, NULL::bigint AS wait
FROM leased AS l
UNION ALL
SELECT uuid_send(q.id), 0, 0, 0, 0, 0, 0, q.due_at, NULL, NULL, NULL, NULL, q.slot, q.seq, convert_to(q.order_key, {encoding}),
       greatest(q.due_at - (SELECT now FROM t), q.lease_until - (SELECT now FROM t), 0)
FROM walked AS w
JOIN {live} AS q ON q.id = ANY (ARRAY[w.id])
WHERE (SELECT count(*) FROM leased) < (SELECT n FROM total) AND w.id NOT IN (SELECT l.id FROM leased AS l)
UNION ALL
SELECT NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, p.slot,
       CASE WHEN p.o > a.o THEN p.seq WHEN s.n >= p.most OR p.o = a.o THEN s.last WHEN p.most <= 0 THEN p.seq ELSE 9223372036854775807 END, NULL, NULL
FROM (SELECT CASE WHEN s.n >= t.n THEN coalesce(s.o, 0) END AS o FROM total AS s CROSS JOIN t) AS a
CROSS JOIN parts AS p
LEFT JOIN seen AS s ON s.o = p.o`
}

// claimable: it is due, nobody leases it, and it is no suspect that was not asked for.
var claimable = not("q.due_at > (SELECT now FROM t)") + " AND " + not("q.lease_until > (SELECT now FROM t)") +
	" AND " + not("q.lapses + CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END >= (SELECT $5::integer)")

const claimedColumns = `*priority, *fence, *attempts, *lapses, *expired, *enqueued_at, *due_at, *expires_at, *dedup_key, *headers, *body`

func (q *queue) ClaimSlots(c sqlbatch.SlotClaim) sqlbatch.Statement {
	text, lapses, mine := q.claimSlots, int64(c.Lapses), int64(0)
	if c.Blind {
		text = q.claimSlotsBlind
	}
	if c.Suspects {
		lapses = math.MaxInt32
	}
	if c.Mine {
		mine = 1
	}
	p := packParts(c.Parts)
	return sqlbatch.Statement{Text: text, Args: []any{
		int64(min(c.Rows, maxRows)), build.Milliseconds(c.Lease), hexID(c.Member), c.Salt, lapses,
		p.slots.literal(), p.fences.literal(), p.from.literal(), p.most.literal(), mine,
	}}
}

// horizonText reads how far numbers were drawn, and then who holds the lock of senders. Whoever
// drew one of these numbers held it before, and still does until what it inserted can be seen. The
// locks are read for the row of numbers, so after it. Numbers are those of the whole of a
// statement: its last seq. A transaction that is prepared (for a commit in two phases) loses the
// name that it had.
const horizonText = `WITH n AS MATERIALIZED (
  SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END AS number FROM {numbers}
)
SELECT ((n.number + 1) << {seq bits}) - 1 AS drawn, coalesce(l.senders, '') AS senders
FROM n
CROSS JOIN LATERAL (
  SELECT string_agg(CASE WHEN l.virtualtransaction LIKE '-1/%' THEN '` + sqlbatch.UnknownSender + `' ELSE l.virtualtransaction END, ' ') AS senders
  FROM pg_catalog.pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.classid = {senders} AND l.objid = (hashtext({'live'})::bigint & 4294967295)::oid AND l.objsubid = 2
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND n.number IS NOT NULL) AS l`

func (q *queue) Horizon() sqlbatch.Statement { return sqlbatch.Statement{Text: q.horizon} }

// What operators do with an ordered queue goes by seq, through the first rows of every slot.

// seqs are the first ids of a state behind $2, of all slots in one order.
func seqs(condition string) string {
	return `SELECT f.id FROM {slots} AS s
  CROSS JOIN LATERAL (
    SELECT e.* FROM (
      SELECT q.id, q.seq FROM {live} AS q
      WHERE ` + behindSeq("s.slot", "$2::bigint") + ` AND ` + condition + `
      ORDER BY q.slot, q.seq LIMIT {rows}) AS e
    LIMIT (SELECT n FROM t)) AS f
  WHERE s.queue = {name}
  ORDER BY f.seq LIMIT (SELECT n FROM t)`
}

func peekSeqText(condition string) string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
),
chosen AS MATERIALIZED (
  ` + seqs(condition) + `
)
SELECT ` + liveColumns + `
FROM chosen AS c
JOIN {live} AS q ON q.id = ANY (ARRAY[c.id])
ORDER BY q.seq`
}

// purgeSeqText looks once more at each row when it has its lock.
func purgeSeqText(condition string) string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n
)
DELETE FROM {live}
WHERE id = ANY (ARRAY(
  SELECT q.id FROM {live} AS q
  WHERE q.id = ANY (ARRAY(
  ` + seqs(condition) + `)) AND ` + condition + ` FOR UPDATE SKIP LOCKED))
RETURNING uuid_send(id), seq`
}

// seqStates are the conditions of a state, and of what Window.Before bounds, which is $3. The
// planner takes each for one that all but a few rows meet.
var seqStates = map[sqlbatch.State]struct{ condition, before string }{
	sqlbatch.Ready:     {not("q.due_at > (SELECT now FROM t)") + ` AND ` + not("q.lease_until > (SELECT now FROM t)"), ` AND ` + not("q.due_at >= (SELECT $3::bigint)")},
	sqlbatch.Scheduled: {not("q.due_at <= (SELECT now FROM t)") + ` AND ` + not("q.lease_until > (SELECT now FROM t)"), ` AND ` + not("q.enqueued_at >= (SELECT $3::bigint)")},
	sqlbatch.Leased:    {not("q.due_at > (SELECT now FROM t)") + ` AND ` + not("q.lease_until <= (SELECT now FROM t)"), ` AND ` + not("(q.fence - 1) >> {fence bits} >= (SELECT $3::bigint)")},
}

// orderedStatsText counts what is leased, or waits for its time, among the first of each slot,
// where it lies; and of what is ready it finds the first $1 wherever it is.
var orderedStatsText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::bigint AS n
),
first AS MATERIALIZED (
  SELECT e.* FROM {slots} AS s
  CROSS JOIN LATERAL (
    SELECT q.due_at, q.lease_until FROM {live} AS q
    WHERE ` + behindSeq("s.slot", "(-1)") + `
    ORDER BY q.slot, q.seq LIMIT (SELECT 2 * n / {slot count} + {rows} FROM t)) AS e
  WHERE s.queue = {name}
)
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM (SELECT due_at, lease_until FROM {live} LIMIT (SELECT 10 * n FROM t)) AS q
    WHERE q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) LIMIT (SELECT n FROM t)) AS r) AS ready,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE due_at > (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS scheduled,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE lease_until > (SELECT now FROM t)) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(due_at) FROM first WHERE due_at <= (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS oldest,
  (SELECT paused::integer FROM {queues} WHERE name = {name}) AS paused`
