package sqlbatch

import (
	"fmt"
	"strings"
	"time"
)

// postgresLanes are the names that the priorities have in the statements, in
// the order of claims.
var postgresLanes = []struct {
	name     string
	priority int
}{{"urgent", 2}, {"high", 1}, {"normal", 0}, {"low", -1}}

// postgresChosen is one CTE for each lane, named for it, that takes what the
// lanes before it have left of t.n; t has now and n. pick selects the rows of a
// lane.
//
// Each lane has two limits. The outer one decides: it counts the lanes before,
// which runs them to their end, and it stands above the locks, so no row is
// locked beyond those that are taken, and a lane with nothing left to take does
// not run. The planner takes it for a tenth of the rows, which in a large table
// it might rather sort; the inner one is a number that it knows.
func postgresChosen(pick string) string {
	var b strings.Builder
	taken := ""
	for _, lane := range postgresLanes {
		fmt.Fprintf(&b, `,
%s AS MATERIALIZED (
  SELECT * FROM (%s) AS l
  LIMIT (SELECT t.n%s FROM t)
)`, lane.name, strings.ReplaceAll(pick, "{priority}", fmt.Sprint(lane.priority)), taken)
		taken += fmt.Sprintf(" - (SELECT count(*) FROM %s)", lane.name)
	}
	return b.String()
}

const postgresAllChosen = `(
  SELECT * FROM urgent UNION ALL SELECT * FROM high UNION ALL SELECT * FROM normal UNION ALL SELECT * FROM low
)`

// postgresClaim walks the index of ready messages lane by lane. SKIP
// LOCKED passes over the rows that other claims, settles and transactions of
// users hold. A row that was claimed since this statement began is looked at
// once more when its lock is taken, and is no longer due.
//
// The lane returns visible_at as it was, which RETURNING no longer sees. Index
// entries of messages that are gone lie at the start of each lane until they are
// vacuumed; the first claim to meet one marks it, and later ones pass over it
// without visiting the row, unless a transaction is open that might still see
// it.
func postgresClaim() string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now,
         CASE WHEN EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused) THEN 0 ELSE $1::integer END AS n
)` + postgresChosen(`
    SELECT id, visible_at FROM {live}
    WHERE priority = {priority} AND visible_at <= (SELECT now FROM t)
    ORDER BY visible_at, uuid_send(id) LIMIT {rows} FOR UPDATE SKIP LOCKED`) + `
UPDATE {live} AS q
SET visible_at = (SELECT now FROM t) + $2::bigint, fence = q.fence + 1, attempts = q.attempts + 1, leased_by = $3::text
FROM ` + postgresAllChosen + ` AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.fence, q.attempts, q.enqueued_at, c.visible_at AS due_at, q.dedup_key, q.headers, q.body`
}

// Claim has one form: in the order of the index it reads no more than in any
// other.
func (q *postgresQueue) Claim(p ClaimParams) Statement {
	rows := min(p.Rows, postgresRows)
	return Statement{Text: q.claim, Args: []any{int64(rows), milliseconds(p.Lease), postgresID(p.Member)}}
}

// postgresNextDue reads the first entry of each lane. A row that a claim under
// way holds counts as due still.
const postgresNextDue = `SELECT min(f.visible_at) - {now} AS due_in
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
CROSS JOIN LATERAL (
  SELECT q.visible_at FROM {live} AS q
  WHERE q.priority = p.priority
  ORDER BY q.visible_at LIMIT 1
) AS f
WHERE NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)`

func (q *postgresQueue) NextDue() Statement { return Statement{Text: q.nextDue} }

// postgresExtend moves the end of the leases; fences stay. Path and locks are
// those of postgresAck.
const postgresExtend = `UPDATE {live} AS q
SET visible_at = {now} + $3::bigint
` + postgresFromItems + `
RETURNING uuid_send(q.id), q.fence`

func (q *postgresQueue) Extend(items []Item, lease time.Duration) Statement {
	ids, fences := postgresItems(items)
	return Statement{Text: q.extend, Args: []any{ids, fences, milliseconds(lease)}}
}
