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

// unleased is the condition on a row q. that no consumer leases. A row whose lease has expired is not free before its rescue.
func unleased(q string) string { return not(q + "leased_by IS NOT NULL") }

// not is a condition on a row with the meaning of NOT. The planner estimates that almost all rows meet it. For a comparison with an
// unknown value it estimates that two in three do not, and then it sorts the few rows that it expects.
func not(condition string) string { return "(" + condition + ")::integer <> 1" }

// The columns that a claim returns. The length of a body outside of the row is known without reading it.
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
var claimText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now,
         CASE WHEN EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused) THEN 0 ELSE $1::integer END AS n
),
chosen AS MATERIALIZED (
  ` + chosen(`
      SELECT id FROM {live} AS q
      WHERE {lane} AND `+behindHead("", "{head}", "{head id}", "(SELECT now FROM t)")+` AND due_at <= (SELECT now FROM t)
        AND `+unleased("")+`
      ORDER BY due_at, uuid_send(id) LIMIT {rows} FOR UPDATE SKIP LOCKED`) + `
)
UPDATE {live} AS q
SET lease_until = (SELECT now FROM t) + $2::bigint, fence = ` + higherFence("(SELECT now << {fence bits} FROM t)") + ` + $4::bigint,
    attempts = least(q.attempts + 1, {last attempt}), leased_by = $3::uuid
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING ` + leaseColumns + inlined

var contentsText = `SELECT ` + textBytes("q.dedup_key") + ` AS dedup_key, q.type, q.headers, q.body
FROM {live} AS q
WHERE q.id = ANY (ARRAY[$1::uuid]) AND q.fence = $2::bigint`

func (q *queue) Contents(item sqlbatch.Item) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.contents, Args: []any{hexID(item.ID), item.Fence}}
}

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

// nextDueText reads the first free entry behind each head. A row that a claim in progress has locked still counts as due.
var nextDueText = nextDueOf(unleased("q."))

func nextDueOf(condition string) string {
	return `SELECT min(f.due_at) - {now} AS due_in
FROM ` + headList + `
CROSS JOIN LATERAL (
  SELECT q.due_at FROM {live} AS q
  WHERE q.priority = p.priority AND ` + behindHead("q.", "p.head", "p.head_id", "{now}") + ` AND ` + condition + `
  ORDER BY q.due_at LIMIT 1) AS f
WHERE NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)`
}

const headList = `(VALUES (2, $4::bigint, $8::bytea), (1, $3::bigint, $7::bytea), (0, $2::bigint, $6::bytea), (-1, $1::bigint, $5::bytea)) AS p (priority, head, head_id)`

func (q *queue) NextDue(f sqlbatch.Heads) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.nextDue, Args: heads(f)}
}

// DueOrLocked counts a locked row by its last committed version, as NextDue does.
func (q *queue) DueOrLocked() sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.dueOrLocked, Args: heads(sqlbatch.Heads{})}
}

// rescanText walks each lane to its first free message. If there is none, all due messages are leased, and it walks the lane again, up to ten
// thousand messages, for the earliest end of a lease. A third walk ends at the first expired lease, and passes up to {passed} free messages
// before it, which might be locked. The constant bounds what the planner expects of a deep lane: above jit_above_cost the server would compile
// the plan. The LIMIT that the planner does not know keeps it from sorting a shallow lane.
var rescanText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, 10000 AS n
)
SELECT p.priority, coalesce(r.due_at, t.now) AS head, coalesce(r.due_at, least(s.due_at, l.lease_until)) - t.now AS due_in,
       (SELECT count(*) FROM {consumers} AS m WHERE m.queue = {name} AND m.until > (SELECT now FROM t)) AS consumers,
       uuid_send(r.id) AS head_id, r.lapses, e.due_at AS lost_at, uuid_send(e.id) AS lost_id
FROM t
CROSS JOIN (VALUES (2), (1), (0), (-1)) AS p (priority)
LEFT JOIN LATERAL (
  SELECT q.due_at, q.id, q.lapses FROM {live} AS q
  WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND ` + unleased("q.") + `
  ORDER BY q.due_at, uuid_send(q.id) LIMIT 1) AS r ON true
LEFT JOIN LATERAL (
  SELECT f.due_at, f.id FROM (
    SELECT q.due_at, q.id, q.leased_by IS NOT NULL AS lost FROM {live} AS q
    WHERE q.priority = p.priority AND q.due_at <= (SELECT now FROM t) AND ` + not("q.lease_until > (SELECT now FROM t)") + `
    ORDER BY q.due_at, uuid_send(q.id) LIMIT {passed} + 1) AS f
  WHERE f.lost LIMIT 1) AS e ON true
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

// rescueText walks a lane from a place on, without a lock, and locks the rows whose leases had ended. The lease might have been extended, or
// another consumer might have the message by now, so the end is checked again when the lock is taken. SKIP LOCKED: a settle or an extension
// of the row is about to commit.
//
// $1 to $3 are the priority, and time and ID of the place; $4 is the number of expired leases with which a message is due at once. The fence has the time of the claim. For the
// two limits see chosen.
var rescueText = `WITH t AS MATERIALIZED (
  SELECT {now} AS now, {rescued} AS n
),
walked AS MATERIALIZED (
  SELECT * FROM (
    SELECT q.id, q.leased_by IS NOT NULL AND q.lease_until <= (SELECT now FROM t) AS lost
    FROM {live} AS q
    WHERE q.priority = $1::smallint AND (q.due_at, uuid_send(q.id)) >= ($2::bigint, $3::bytea) AND q.due_at <= (SELECT now FROM t)
    ORDER BY q.due_at, uuid_send(q.id) LIMIT {rescued}) AS w LIMIT (SELECT n FROM t)
),
chosen AS MATERIALIZED (
  SELECT q.id FROM walked AS w JOIN {live} AS q ON q.id = ANY (ARRAY[w.id])
  WHERE w.lost AND q.leased_by IS NOT NULL AND q.lease_until <= (SELECT now FROM t)
  FOR UPDATE OF q SKIP LOCKED
)
UPDATE {live} AS q
SET due_at = CASE WHEN q.lapses BETWEEN 1 AND $4::integer - 2 THEN (SELECT now FROM t) + floor(random() * {scatter of q.lapses})::bigint ELSE q.due_at END,
    ` + lapsed + `
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.due_at`

// lapsed ends a lease that has expired, or whose consumer is not heard. The fence has the time of the claim.
var lapsed = `lease_until = 0, fence = CASE WHEN q.fence > {high fence} THEN {now} << {fence bits} ELSE q.fence + 1 END, lapses = least(q.lapses + 1, {last lapse}), leased_by = NULL,
    history = ` + expired(`least(q.lease_until, {now})`, `least(q.lease_until, {now}) - (q.fence >> {fence bits})`, `q.leased_by`)

func (q *queue) Rescue(r sqlbatch.RescueParams) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.rescue, Args: []any{int64(r.Priority), r.From.Due, r.From.ID[:], int64(r.MaxCrashes)}}
}
