package postgres

import (
	"fmt"
	"math"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// lane is a range of one of the two claim indexes.
type lane struct {
	priority int
	leased   bool
}

// lanes are those of leased rows (true), of others (false) or of both, in
// the order of claims: by priority, and within one as they are named here.
func lanes(leased ...bool) []lane {
	var lanes []lane
	for priority := sqlbatch.PriorityUrgent; priority >= sqlbatch.PriorityLow; priority-- {
		for _, leased := range leased {
			lanes = append(lanes, lane{priority, leased})
		}
	}
	return lanes
}

// readyLanes: within a priority, what ran out before what waits.
var readyLanes = lanes(true, false)

// chosen is a query of up to t.n rows of the lanes, those of a lane before
// those of the next. pick selects the rows of a lane, which {lane} in it stands for;
// {lapses} is how many they would have if they were claimed.
//
// An Append runs its parts one after the other, and asks none of them for more
// than it has to give: a lane is not entered once there are n rows. The last limit
// stands above the locks, so no row is locked beyond those that are taken. The two
// of a lane are for the planner. It takes n for a tenth of the lane, which is not worth a
// sort of all of it, unless the table is large; so pick has one of its own, of a
// number that it knows.
func chosen(pick string, lanes []lane) string {
	parts := make([]string, len(lanes))
	for i, lane := range lanes {
		condition, lapses := "leased_by IS NULL", "lapses"
		if lane.leased {
			condition, lapses = "leased_by IS NOT NULL", "lapses + 1"
		}
		number := build.Lane(lane.priority, lane.leased)
		condition = fmt.Sprintf("priority = %d AND %s", lane.priority, condition)
		part := strings.NewReplacer("{lane}", condition, "{lapses}", lapses, "{number}", fmt.Sprint(number)).Replace(pick)
		parts[i] = fmt.Sprintf("    (SELECT * FROM (%s) AS l%d LIMIT (SELECT n FROM t))", part, i+1)
	}
	return "SELECT * FROM (\n" + strings.Join(parts, "\n    UNION ALL\n") + "\n  ) AS l\n  LIMIT (SELECT n FROM t)"
}

// What a claim returns of a message, or what it returns instead.
const (
	content   = `convert_to(q.dedup_key, {encoding}), q.headers, q.body`
	noContent = `NULL::bytea AS dedup_key, NULL::bytea AS headers, NULL::bytea AS body`
)

// claimText walks the claim indexes lane by lane. SKIP LOCKED passes over the
// rows that other claims, settles and transactions of users hold. A row that was
// claimed since this statement began is looked at once more when its lock is
// taken, and is no longer due.
//
// chosen has visible_at as it was, which RETURNING no longer sees. Index entries
// of messages that are gone lie at the start of each lane until they are
// vacuumed; the first claim to meet one marks it, and later ones pass over it
// without visiting the row, unless a transaction is open that might still see
// it.
//
// A row that still has a holder was never settled: its lease lapsed. The count
// stops where a smallint does.
func claimText(content string) string {
	return `WITH t AS MATERIALIZED (
  SELECT {now} AS now,
         CASE WHEN EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused) THEN 0 ELSE $1::integer END AS n
),
chosen AS MATERIALIZED (
  ` + chosen(`
      SELECT id, visible_at FROM {live}
      WHERE {lane} AND visible_at <= (SELECT now FROM t) AND {lapses} < (SELECT $5::integer)
      ORDER BY visible_at, uuid_send(id) LIMIT {rows} FOR UPDATE SKIP LOCKED`, readyLanes) + `
)
UPDATE {live} AS q
SET visible_at = (SELECT now FROM t) + $2::bigint, fence = greatest(q.fence, (SELECT now << {fence bits} FROM t)) + $4::bigint,
    attempts = q.attempts + 1, lapses = CASE WHEN q.leased_by IS NULL THEN q.lapses ELSE least(q.lapses + 1, 32767) END, leased_by = $3::uuid
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.fence, q.attempts, q.lapses, (coalesce(q.expires_at <= (SELECT now FROM t), false))::integer AS expired,
          q.enqueued_at, c.visible_at AS due_at, q.expires_at, ` + content
}

// Claim has one form for all orders: in the order of the index it reads no more
// than in any other.
func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	text, lapses := q.claim, p.Lapses
	if p.Blind {
		text = q.claimBlind
	}
	if p.Suspects {
		lapses = math.MaxInt32
	}
	return sqlbatch.Statement{Text: text, Args: []any{int64(min(p.Rows, maxRows)), build.Milliseconds(p.Lease), hexID(p.Member), p.Salt, int64(lapses)}}
}

const priorities = `(VALUES (2), (1), (0), (-1)) AS p (priority)`

// first is the due time of the first row of each lane that meets a
// condition.
func first(condition string) string {
	part := func(holder string) string {
		return `(
    SELECT q.visible_at FROM {live} AS q
    WHERE q.priority = p.priority AND q.leased_by IS ` + holder + condition + `
    ORDER BY q.visible_at LIMIT 1)`
	}
	return `FROM ` + priorities + `
  CROSS JOIN LATERAL (` + part("NOT NULL") + ` UNION ALL ` + part("NULL") + `) AS f`
}

// nextDueText reads the first entry of each lane. A row that a claim under
// way holds counts as due still.
var nextDueText = `SELECT min(f.visible_at) - {now} AS due_in
` + first("") + `
WHERE NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused)`

func (q *queue) NextDue() sqlbatch.Statement { return sqlbatch.Statement{Text: q.nextDue} }
