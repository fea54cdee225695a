package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// chosen is a query of up to t.n rows of the live table, ordered by priority. pick selects the rows of one priority. In it {lane} is
// replaced by the condition of the priority, {head} by its parameter of the heads, and {number} by its number.
//
// An Append runs its parts one after the other, and reads no more rows than needed: a lane is not read once there are n rows. The last
// limit is above the locks, so only rows that are taken are locked. The two limits of a lane are for the planner. It estimates n as a
// tenth of the lane, for which it does not sort the whole lane, unless the table is large. Therefore pick has a separate limit, with a
// known number.
func chosen(pick string) string {
	var parts []string
	for priority := sqlbatch.PriorityUrgent; priority >= sqlbatch.PriorityLow; priority-- {
		number := build.Lane(priority)
		part := strings.NewReplacer(
			"{lane}", fmt.Sprintf("priority = %d", priority),
			"{head}", fmt.Sprintf("$%d::bigint", firstHead+priority-sqlbatch.PriorityLow),
			"{head id}", fmt.Sprintf("$%d::bytea", firstHead+sqlbatch.Priorities+priority-sqlbatch.PriorityLow),
			"{number}", strconv.Itoa(number),
		).Replace(pick)
		parts = append(parts, fmt.Sprintf("    (SELECT * FROM (%s) AS l%d LIMIT (SELECT n FROM t))", part, number+1))
	}
	return "SELECT * FROM (\n" + strings.Join(parts, "\n    UNION ALL\n") + "\n  ) AS l\n  LIMIT (SELECT n FROM t)"
}

// The parameters of a claim from this number on are the heads, from the lowest priority up: the times, and then the IDs.
const firstHead = 6

// behindHead begins a range of the index. A head that is less than a HeadMargin ago begins with all IDs of an earlier time. It compares
// rows: for due_at between two unknown values the planner would estimate a small range, and sort it.
func behindHead(row, head, id, now string) string {
	late := now + " - {margin}"
	return "(" + row + "due_at, uuid_send(" + row + "id)) >= (least(" + head + ", " + late + "), CASE WHEN " + head + " <= " + late + " THEN " + id + " ELSE ''::bytea END)"
}

// not is a condition on a row with the meaning of NOT. The planner estimates that almost all rows meet it. For a comparison with an
// unknown value it estimates that two in three do not, and then it sorts the few rows that it expects.
func not(condition string) string { return "(" + condition + ")::integer <> 1" }

// suspected is the condition of a suspect, unless it has expired, so that a consumer only has to dead-letter it.
func suspected(now string) string {
	return "(CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE q.lapses + 1 END >= {suspect lapses} AND coalesce(q.expires_at > " + now + ", true))"
}

// The columns that a claim and a mark return. The length of a body outside of the row is known without reading it.
var (
	leaseColumns = `uuid_send(q.id), q.priority, q.fence, q.attempts, q.lapses, (coalesce(q.expires_at <= (SELECT now FROM t), false))::integer AS expired,
          q.enqueued_at, q.due_at, q.expires_at, `
	inlined = `CASE WHEN $5::integer >= 0 THEN ` + textBytes("q.dedup_key") + ` END AS dedup_key, CASE WHEN $5::integer >= 0 THEN q.type END AS type, CASE WHEN $5::integer >= 0 THEN q.headers END AS headers,
          CASE WHEN octet_length(q.body) <= $5::integer THEN q.body END AS body, octet_length(q.body) AS size`
)

// claimText walks the claim index lane by lane, each from its head. SKIP LOCKED skips the rows that other claims, settles and
// transactions of users have locked. If a row was claimed after this statement began, it is checked again when its lock is taken, and
// is leased.
//
// No index has the changed columns, so the new version of the row is on the page of the old one while there is room, and no index
// changes. Entries of deleted messages are before the head.
//
// A row that still has a holder was never settled: its lease expired.
var claimText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now,
         CASE WHEN EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused) THEN 0 ELSE $1::integer END AS n
),
chosen AS MATERIALIZED (
  ` + chosen(`
      SELECT id FROM {live} AS q
      WHERE {lane} AND `+behindHead("", "{head}", "{head id}", "(SELECT now FROM t)")+` AND due_at <= (SELECT now FROM t)
        AND `+not("lease_until > (SELECT now FROM t)")+`
        AND `+not(suspected("(SELECT now FROM t)"))+`
      ORDER BY due_at, uuid_send(id) LIMIT {rows} FOR UPDATE SKIP LOCKED`) + `
)
UPDATE {live} AS q
SET lease_until = (SELECT now FROM t) + $2::bigint, fence = ` + higherFence("(SELECT now << {fence bits} FROM t)") + ` + $4::bigint,
    ` + counted + `, leased_by = $3::uuid
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING ` + leaseColumns + inlined

// markText finds its row by the primary key, and skips it if another transaction has locked it. The conditions are checked again when
// the lock is taken.
//
// $1 to $3 are lease, consumer and salt, $4 and $5 id and fence, $6 is the new value of alone, and $7 is 1 if the consumer marks again.
var markText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now WHERE NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)
),
chosen AS MATERIALIZED (
  SELECT q.id FROM {live} AS q
  WHERE q.id = ANY (ARRAY[$4::uuid]) AND q.fence = $5::bigint AND q.due_at <= (SELECT now FROM t) AND (q.lease_until <= (SELECT now FROM t) OR ` + again + `)
  FOR UPDATE SKIP LOCKED
)
UPDATE {live} AS q
SET lease_until = (SELECT now FROM t) + $1::bigint, fence = ` + higherFence("(SELECT now << {fence bits} FROM t)") + ` + $3::bigint,
    attempts = CASE WHEN ` + again + ` THEN q.attempts ELSE least(q.attempts + 1, {last attempt}) END,
    lapses = CASE WHEN q.leased_by IS NULL OR ` + again + ` THEN q.lapses ELSE least(q.lapses + 1, {last lapse}) END,
    crashes = CASE WHEN q.leased_by IS NULL OR q.alone = 0 OR ` + again + ` THEN q.crashes ELSE least(q.crashes + 1, {last lapse}) END,
    leased_by = $2::uuid, alone = $6::smallint
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING ` + leaseColumns + `NULL::bytea AS dedup_key, NULL::text AS type, NULL::bytea AS headers, NULL::bytea AS body, octet_length(q.body) AS size`

const again = `($7::integer = 1 AND q.leased_by IS NOT DISTINCT FROM $2::uuid)`

func (q *queue) Mark(m sqlbatch.MarkParams) sqlbatch.Statement {
	again := int64(0)
	if m.Again {
		again = 1
	}
	return sqlbatch.Statement{Text: q.mark, Args: []any{build.Milliseconds(m.Lease), hexID(m.Consumer), m.Salt, hexID(m.ID), m.Fence, int64(m.Alone), again}}
}

var contentsText = `SELECT ` + textBytes("q.dedup_key") + ` AS dedup_key, q.type, q.headers, q.body
FROM {live} AS q
WHERE q.id = ANY (ARRAY[$1::uuid]) AND q.fence = $2::bigint`

func (q *queue) Contents(item sqlbatch.Item) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.contents, Args: []any{hexID(item.ID), item.Fence}}
}

// counted stops at the limits of the tables.
const counted = `attempts = least(q.attempts + 1, {last attempt}), lapses = CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE least(q.lapses + 1, {last lapse}) END`

// higherFence returns the value from which the fence of a claim grows: see HighFence.
func higherFence(mark string) string {
	return `CASE WHEN q.fence > {high fence} THEN ` + mark + ` ELSE greatest(q.fence, ` + mark + `) END`
}

// Claim has one form for all orders: in the order of the index it reads no more rows than in any other.
func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.claim, Args: append([]any{
		int64(min(p.Rows, maxRows)), build.Milliseconds(p.Lease), hexID(p.Consumer), p.Salt, int64(p.Inline),
	}, heads(p.Heads)...)}
}

func heads(f sqlbatch.Heads) []any {
	return []any{f[0].Due, f[1].Due, f[2].Due, f[3].Due, f[0].ID[:], f[1].ID[:], f[2].ID[:], f[3].ID[:]}
}

const priorities = `(VALUES (2), (1), (0), (-1)) AS p (priority)`

// nextDueText reads the first entry behind each head that is not leased. A row that a claim in progress has locked still counts as due.
var nextDueText = nextDueOf(` AND ` + not(suspected("{now}")))

func nextDueOf(condition string) string {
	return `SELECT min(f.due_at) - {now} AS due_in
FROM (VALUES (2, $4::bigint, $8::bytea), (1, $3::bigint, $7::bytea), (0, $2::bigint, $6::bytea), (-1, $1::bigint, $5::bytea)) AS p (priority, head, head_id)
CROSS JOIN LATERAL (
  SELECT q.due_at FROM {live} AS q
  WHERE q.priority = p.priority AND ` + behindHead("q.", "p.head", "p.head_id", "{now}") + ` AND ` + not("q.lease_until > {now}") + condition + `
  ORDER BY q.due_at LIMIT 1) AS f
WHERE NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)`
}

func (q *queue) NextDue(f sqlbatch.Heads) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.nextDue, Args: heads(f)}
}

// DueOrLocked counts a locked row by its last committed version, as NextDue does.
func (q *queue) DueOrLocked() sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.dueOrLocked, Args: heads(sqlbatch.Heads{})}
}

// rescanText walks each lane to its first message that is not leased, and on to the first that can be claimed if that one is a suspect.
// If there is none, all due messages are leased, and it walks the lane again, up to ten thousand messages, for the earliest end of a
// lease. The constant bounds what the planner expects of a deep lane: above jit_above_cost the server would compile the plan. The LIMIT
// that the planner does not know keeps it from sorting a shallow lane.
var rescanText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, 10000 AS n
)
SELECT p.priority, coalesce(r.due_at, t.now) AS head, coalesce(r.due_at, least(s.due_at, l.lease_until)) - t.now AS due_in,
       (SELECT count(*) FROM {consumers} AS m WHERE m.queue = {name} AND m.until > (SELECT now FROM t)) AS consumers,
       CASE WHEN e.suspect THEN uuid_send(e.id) END AS id, CASE WHEN e.suspect THEN e.fence END AS fence,
       CASE WHEN e.suspect THEN e.crashes END AS crashes, CASE WHEN e.suspect THEN e.alone END AS alone,
       CASE WHEN NOT e.suspect THEN uuid_send(e.id) END AS head_id
FROM t
CROSS JOIN ` + priorities + `
LEFT JOIN LATERAL (
  SELECT q.due_at, q.id, q.fence, ` + suspected("(SELECT now FROM t)") + ` AS suspect, q.alone,
         CASE WHEN q.leased_by IS NULL OR q.alone = 0 THEN q.crashes ELSE q.crashes + 1 END AS crashes
  FROM {live} AS q
  WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND ` + not("q.lease_until > (SELECT now FROM t)") + `
  ORDER BY q.due_at, uuid_send(q.id) LIMIT 1) AS e ON true
LEFT JOIN LATERAL (
  SELECT q.due_at FROM {live} AS q
  WHERE e.suspect AND q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND ` + not("q.lease_until > (SELECT now FROM t)") + ` AND ` + not(suspected("(SELECT now FROM t)")) + `
  ORDER BY q.due_at LIMIT 1) AS n ON true
CROSS JOIN LATERAL (SELECT CASE WHEN e.suspect THEN n.due_at ELSE e.due_at END AS due_at) AS r
LEFT JOIN LATERAL (
  SELECT q.due_at FROM {live} AS q
  WHERE q.priority = p.priority AND q.due_at > (SELECT now FROM t)
  ORDER BY q.due_at LIMIT 1) AS s ON true
LEFT JOIN LATERAL (
  SELECT min(e.lease_until) AS lease_until FROM (SELECT f.lease_until FROM (
    SELECT q.lease_until FROM {live} AS q
    WHERE r.due_at IS NULL AND q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND ` + not("q.lease_until <= (SELECT now FROM t)") + `
    ORDER BY q.due_at LIMIT 10000) AS f LIMIT (SELECT n FROM t)) AS e) AS l ON true
WHERE NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)`

func (q *queue) Rescan() sqlbatch.Statement { return sqlbatch.Statement{Text: q.rescan} }
