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
var seqIndexText = indexText("{'due'}", newTableText, `CREATE INDEX {due} ON {live} (slot, seq)`)

// deadLineIndexText finds the keys that dead messages hold.
var deadLineIndexText = indexText("{'dead line'}", `CREATE INDEX {dead line} ON {dead} (slot, order_key) WHERE order_key IS NOT NULL`)

// behindSeq is a range of the index: of one slot what is behind a seq. It compares rows:
// of slot = $1 the planner would think that there are few, and sort them.
func behindSeq(slot, seq string) string {
	return "(q.slot, q.seq) > (" + slot + ", " + seq + ") AND q.slot <= " + slot
}

// claimSlotsText walks the parts one after the other until there are n rows, without what
// the member itself holds, and notes where those lie that may be claimed. These it locks in
// the order in which they lie, and passes over what others have locked, and leases them. A row that has
// changed since the statement began lies somewhere else by then, and counts for one that is locked.
// A lease ends with the membership at the latest.
//
// The two limits of a part are for the planner: see chosen. NOT IN looks into a hash of what
// was leased, whatever the planner thinks of how many there are.
func claimSlotsText(content string) string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::integer AS n, least({now} + $2::bigint, m.until) AS ends, {now} << {fence bits} AS fence
  FROM {members} AS m
  WHERE m.id = $3::uuid AND m.until > {now} AND NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)
),
parts AS MATERIALIZED (
  SELECT a.o, a.slot, a.seq, a.most
  FROM unnest($6::smallint[], $7::bigint[], $8::bigint[], $9::integer[]) WITH ORDINALITY AS a (slot, fence, seq, most, o)
  WHERE EXISTS (SELECT 1 FROM t)
    AND ((a.slot, a.fence) IN (SELECT s.slot, s.fence FROM {slots} AS s WHERE s.queue = {name} AND s.member = $3::uuid)) IS TRUE
  ORDER BY a.o
),
walked AS MATERIALIZED (
  SELECT p.o, w.*
  FROM parts AS p
  CROSS JOIN LATERAL (
    SELECT l.* FROM (
      SELECT q.id, q.seq, CASE WHEN ` + claimable + ` THEN q.ctid END AS at
      FROM {live} AS q
      WHERE ` + behindSeq("p.slot", "p.seq") + ` AND ` + not("(q.lease_until > (SELECT now FROM t) AND q.leased_by IS NOT DISTINCT FROM $3::uuid AND $10::integer = 0)") + `
      ORDER BY q.slot, q.seq LIMIT {rows}) AS l
    LIMIT p.most) AS w
  LIMIT (SELECT n FROM t)
),
seen AS MATERIALIZED (
  SELECT w.o, count(*) AS n, min(w.seq) AS first, max(w.seq) AS last FROM walked AS w GROUP BY w.o
),
total AS MATERIALIZED (
  SELECT coalesce(sum(s.n), 0) AS n, max(s.o) AS o, min(s.first) AS first, max(s.last) AS last FROM seen AS s
),
chosen AS MATERIALIZED (
  SELECT q.ctid AS at
  FROM {live} AS q
  WHERE ` + liesAt("SELECT w.at FROM walked AS w WHERE w.at IS NOT NULL") + ` AND ` + claimable + `
  FOR UPDATE SKIP LOCKED
),
leased AS MATERIALIZED (
  UPDATE {live} AS q
  SET lease_until = (SELECT ends FROM t), fence = ` + higherFence("(SELECT fence FROM t)") + ` + $4::bigint,
      ` + counted + `, leased_by = $3::uuid
  WHERE ` + liesAt("SELECT c.at FROM chosen AS c") + `
  RETURNING uuid_send(q.id) AS id, q.priority::integer AS priority, q.fence, q.attempts, q.lapses::integer AS lapses,
            coalesce(q.expires_at <= (SELECT now FROM t), false)::integer AS expired, q.enqueued_at, q.due_at, q.expires_at,
            ` + content + `, q.slot::integer AS slot, q.seq, ` + textBytes("q.order_key") + ` AS order_key, NULL::bigint AS wait
)
SELECT * FROM leased
UNION ALL
SELECT uuid_send(q.id), 0, 0::bigint, 0, 0, 0, 0::bigint, q.due_at, NULL, NULL, NULL, NULL, q.slot, q.seq, convert_to(q.order_key, (SELECT {encoding})),
       greatest(q.due_at - (SELECT now FROM t), q.lease_until - (SELECT now FROM t), 0)
FROM walked AS w
JOIN {live} AS q ON q.id = ANY (ARRAY[w.id])
WHERE (SELECT count(*) FROM leased) < (SELECT n FROM total) AND uuid_send(w.id) NOT IN (SELECT l.id FROM leased AS l)
UNION ALL
SELECT NULL, 0, 0::bigint, 0, 0, 0, 0::bigint, 0::bigint, NULL, NULL, NULL, NULL, p.slot,
       CASE WHEN p.o > a.o THEN p.seq WHEN s.n >= p.most OR p.o = a.o THEN s.last WHEN p.most <= 0 THEN p.seq ELSE 9223372036854775807 END, NULL, NULL
FROM (SELECT CASE WHEN s.n >= t.n THEN coalesce(s.o, 0) END AS o FROM total AS s CROSS JOIN t) AS a
CROSS JOIN parts AS p
LEFT JOIN seen AS s ON s.o = p.o`
}

// What a claim returns of a message, or what it returns instead.
var (
	content   = textBytes("q.dedup_key") + ` AS dedup_key, q.headers, q.body`
	noContent = `NULL::bytea AS dedup_key, NULL::bytea AS headers, NULL::bytea AS body`
)

// claimable: it is due, nobody leases it, and it is no suspect that was not asked for.
const claimable = `q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) AND q.lapses + CASE WHEN q.leased_by IS NULL THEN 0 ELSE 1 END < (SELECT $5::integer)`

// liesAt finds the rows of a list of places among those that were walked. It is the cheapest
// way to a row, without an index, but the planner takes a place for a page that has to be read, a list for
// ten, and would rather read all of a table that is small or that it does not know yet. What
// stands before ELSE is never done. It makes it dear to look at the list, which this way does
// once, and the other for each row. (Where the planner thinks that there is no row, in a small file,
// it reads all the same: then the range of seqs sorts out what is far from the list.)
func liesAt(list string) string {
	return `q.ctid = ANY (CASE WHEN (SELECT n FROM t) < 0 THEN ` + dear + ` ELSE ARRAY(` + list + `) END)
    AND q.seq + 0 >= (SELECT first FROM total) AND q.seq + 0 <= (SELECT last FROM total)`
}

var dear = `ARRAY[` + strings.Repeat(`to_tsvector('pg_catalog.simple'::regconfig, (SELECT n FROM t)::text)::text::tid, `, 4) + `NULL]`

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

// reachText reads the index alone, where a vacuum has come by. The two limits are for the planner:
// see chosen.
var reachText = `SELECT min(CASE WHEN f.n >= $2::bigint THEN f.seq ELSE 9223372036854775807 END) AS seq
FROM {slots} AS s
CROSS JOIN LATERAL (
  SELECT count(*) AS n, max(e.seq) AS seq FROM (
    SELECT l.seq FROM (
      SELECT q.seq FROM {live} AS q
      WHERE ` + behindSeq("s.slot", "$1::bigint") + `
      ORDER BY q.slot, q.seq LIMIT {rows}) AS l
    LIMIT (SELECT $2::bigint)) AS e) AS f
WHERE s.queue = {name}`

func (q *queue) Reach(after int64, rows int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reach, Args: []any{after, int64(min(rows, maxRows))}}
}

// seqs are the first ids of a state behind $2 and up to a seq, of all slots in one order.
func seqs(condition, upto string) string {
	return `SELECT f.id FROM {slots} AS s
  CROSS JOIN LATERAL (
    SELECT e.* FROM (
      SELECT q.id, q.seq FROM {live} AS q
      WHERE ` + behindSeq("s.slot", "$2::bigint") + ` AND (q.slot, q.seq) <= (s.slot, ` + upto + `::bigint) AND ` + condition + `
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
  ` + seqs(condition, "$3") + `
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
  ` + seqs(condition, "$4") + `)) AND ` + condition + ` FOR UPDATE SKIP LOCKED))
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
// where it lies; and of what is ready it finds the first $1 among twice as many rows, wherever
// they are. So it reads about three times $1 rows, and ten more a slot.
var orderedStatsText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, $1::bigint AS n
),
first AS MATERIALIZED (
  SELECT e.* FROM {slots} AS s
  CROSS JOIN LATERAL (
    SELECT q.due_at, q.lease_until FROM {live} AS q
    WHERE ` + behindSeq("s.slot", "(-1)") + `
    ORDER BY q.slot, q.seq LIMIT (SELECT n / {slot count} + 10 FROM t)) AS e
  WHERE s.queue = {name}
)
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM (SELECT due_at, lease_until FROM {live} LIMIT (SELECT 2 * n FROM t)) AS q
    WHERE q.due_at <= (SELECT now FROM t) AND q.lease_until <= (SELECT now FROM t) LIMIT (SELECT n FROM t)) AS r) AS ready,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE due_at > (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS scheduled,
  (SELECT least(count(*), (SELECT n FROM t)) FROM first WHERE lease_until > (SELECT now FROM t)) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT (SELECT n FROM t)) AS d) AS dead,
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT (SELECT n FROM t)) AS d) AS done,
  (SELECT (SELECT now FROM t) - min(due_at) FROM first WHERE due_at <= (SELECT now FROM t) AND lease_until <= (SELECT now FROM t)) AS oldest,
  (SELECT paused::integer FROM {queues} WHERE name = {name}) AS paused`
