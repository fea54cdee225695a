package sqlite

import (
	"fmt"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// The ranges of the two indexes that hold the messages of each state, per
// priority {p}. INDEXED BY pins them: a walk that lost its index to statistics of
// an emptier table would read all of it.
const (
	unleased  = `{live} INDEXED BY {ready_ix_unqualified} WHERE leased_by IS NULL AND priority = {p}`
	claimed   = `{live} INDEXED BY {leased_ix_unqualified} WHERE leased_by IS NOT NULL AND priority = {p}`
	due       = unleased + ` AND visible_at <= {now}`
	scheduled = unleased + ` AND visible_at > {now}`
	ranOut    = claimed + ` AND visible_at <= {now}`
	leased    = claimed + ` AND visible_at > {now}`
)

// lanes puts one SELECT per priority, highest first, and range in the place
// of {lanes}: the lane, with the range in the place of {range}.
func lanes(template, lane string, ranges ...string) string {
	var lanes []string
	for p := sqlbatch.PriorityUrgent; p >= sqlbatch.PriorityLow; p-- {
		for _, r := range ranges {
			text := strings.Replace(lane, "{range}", r, 1)
			lanes = append(lanes, strings.ReplaceAll(text, "{p}", fmt.Sprint(p)))
		}
	}
	return strings.ReplaceAll(template, "{lanes}", strings.Join(lanes, "\n    UNION ALL\n"))
}

// Claim: two seeks a priority, highest first, and what ran out before what was
// never claimed. The outer LIMIT ends the walk as soon as enough rows were found,
// and is 0 when the queue is paused. One writer: no row can be locked by another.
const claimText = `UPDATE {live} SET due_at = visible_at, visible_at = {now} + ?2, fence = CASE WHEN fence > {now} << 20 THEN fence ELSE {now} << 20 END + ?4,
  attempts = attempts + 1, lapses = lapses + (leased_by IS NOT NULL), leased_by = ?3
WHERE rowid IN (SELECT rowid FROM (
{lanes}
  ) LIMIT coalesce((SELECT iif(paused, 0, ?1) FROM {queues} WHERE name = {name}), 0))
RETURNING id, priority, fence, attempts, lapses, coalesce(expires_at <= {now}, 0), enqueued_at, due_at, expires_at, `

const (
	withBody = `dedup_key, headers, body`
	blind    = `NULL, NULL, NULL`
)

// + 0: SQLite parses and plans a statement anew each time that a value is bound
// to a bare parameter of a LIMIT.
const claimLane = `    SELECT * FROM (SELECT rowid FROM {range} ORDER BY visible_at, id LIMIT ?1 + 0)`

// The index does not know of lapses, so a claim that leaves suspects out, and
// only that, looks at each row that it passes: it has a text of its own.
const (
	unsuspectedRanOut = ranOut + ` AND lapses + 1 < ?5`
	unsuspectedDue    = due + ` AND lapses < ?5`
)

const nextDueText = `SELECT min(due) FROM (
{lanes}
) WHERE (SELECT NOT paused FROM {queues} WHERE name = {name})`

const nextDueLane = `    SELECT * FROM (SELECT visible_at - {now} AS due FROM {range} ORDER BY visible_at, id LIMIT 1)`

func claimOf(columns string, ranges ...string) string {
	return lanes(claimText+columns, claimLane, ranges...)
}

func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	args := []any{int64(p.Rows), build.Milliseconds(p.Lease), p.Member[:], p.Salt}
	texts := &q.claim
	if !p.Suspects {
		texts = &q.claimUnsuspected
		args = append(args, int64(p.Lapses))
	}
	if p.Blind {
		return sqlbatch.Statement{Text: texts.blind, Args: args}
	}
	return sqlbatch.Statement{Text: texts.seeing, Args: args}
}

func (q *queue) NextDue() sqlbatch.Statement { return sqlbatch.Statement{Text: q.nextDue} }
