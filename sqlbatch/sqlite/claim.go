package sqlite

import (
	"fmt"
	"math"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// The ranges of the index that hold the messages of a priority {p}: due and later by
// their place, and each state by a look at the row. INDEXED BY pins them: a walk
// that lost its index to statistics of an emptier table would read all of it.
const (
	lane      = `{live} INDEXED BY {due_ix_unqualified} WHERE priority = {p}`
	due       = lane + ` AND due_at <= {now}`
	later     = lane + ` AND due_at > {now}`
	ready     = due + ` AND lease_until <= {now}`
	leased    = due + ` AND lease_until > {now}`
	scheduled = later + ` AND lease_until <= {now}`
)

// lanes puts one SELECT per priority, highest first, in the place of {lanes}: the
// text, with the range in the place of {range}.
func lanes(template, text, of string) string {
	text = strings.Replace(text, "{range}", of, 1)
	var lanes []string
	for p := sqlbatch.PriorityUrgent; p >= sqlbatch.PriorityLow; p-- {
		lanes = append(lanes, strings.NewReplacer(
			"{p}", fmt.Sprint(p), "{number}", fmt.Sprint(build.Lane(p)), "{floor}", fmt.Sprintf("?%d", 1+p-sqlbatch.PriorityLow),
		).Replace(text))
	}
	return strings.ReplaceAll(template, "{lanes}", strings.Join(lanes, "\n    UNION ALL\n"))
}

// fromFloor: floors are the first parameters, from the lowest priority up.
const fromFloor = lane + ` AND due_at >= min({floor}, {now} - {margin}) AND lease_until <= {now}`

// Claim: one seek a priority, highest first. The outer LIMIT ends the walk as soon
// as enough rows were found, and is 0 when the queue is paused. One writer: no row can
// be locked by another. What a claim changes is in no index.
const claimText = `UPDATE {live} SET lease_until = {now} + ?6, fence = CASE WHEN fence > {now} << 20 AND fence <= {high fence} THEN fence ELSE {now} << 20 END + ?8,
  ` + counted + `, leased_by = ?7
WHERE rowid IN (SELECT rowid FROM (
{lanes}
  ) LIMIT coalesce((SELECT iif(paused, 0, ?5) FROM {queues} WHERE name = {name}), 0))
RETURNING id, priority, fence, attempts, lapses, coalesce(expires_at <= {now}, 0), enqueued_at, due_at, expires_at, `

// counted: a claim counts no further than the tables do.
const counted = `attempts = min(attempts + 1, {last attempt}), lapses = min(lapses + (leased_by IS NOT NULL), {last lapse})`

const (
	withBody = `dedup_key, headers, body`
	blind    = `NULL, NULL, NULL`
)

// + 0: SQLite parses and plans a statement anew each time that a value is bound
// to a bare parameter of a LIMIT.
const (
	claimLane  = `    SELECT * FROM (SELECT rowid FROM {range} ORDER BY due_at, id LIMIT ?5 + 0)`
	claimRange = fromFloor + ` AND due_at <= {now} AND lapses + (leased_by IS NOT NULL) < ?9`
)

func claimOf(columns string) string { return lanes(claimText+columns, claimLane, claimRange) }

func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	text, lapses := q.claim, int64(p.Lapses)
	if p.Blind {
		text = q.claimBlind
	}
	if p.Suspects {
		lapses = math.MaxInt64
	}
	return sqlbatch.Statement{Text: text, Args: append(floors(p.Floors), int64(p.Rows), build.Milliseconds(p.Lease), p.Member[:], p.Salt, lapses)}
}

func floors(f sqlbatch.Floors) []any { return []any{f[0], f[1], f[2], f[3]} }

const (
	nextDueText = `SELECT min(due) FROM (
{lanes}
) WHERE (SELECT NOT paused FROM {queues} WHERE name = {name})`
	nextDueLane = `    SELECT * FROM (SELECT due_at - {now} AS due FROM {range} ORDER BY due_at, id LIMIT 1)`
)

func (q *queue) NextDue(f sqlbatch.Floors) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.nextDue, Args: floors(f)}
}

// DueOrLocked is NextDue: no reader sees what an open transaction has written.
func (q *queue) DueOrLocked() sqlbatch.Statement { return q.NextDue(sqlbatch.Floors{}) }

// Survey walks each lane to its first message that may be claimed. Where there is
// none, and so all that is due is leased, it walks the lane once more for the end that comes
// first, among a hundred thousand.
const (
	surveyText = `WITH first AS MATERIALIZED (
{lanes}
),
seen AS MATERIALIZED (
` + surveyEnds + `
)
SELECT priority, coalesce(ready, {now}), coalesce(ready, min(scheduled, ends), scheduled, ends) - {now},
  (SELECT count(*) FROM {members} AS m WHERE m.queue = {name} AND m.until > {now})
FROM seen WHERE (SELECT NOT paused FROM {queues} WHERE name = {name})`
	surveyLane = `  SELECT {p} AS priority, (SELECT due_at FROM ` + ready + ` ORDER BY due_at, id LIMIT 1) AS ready,
    (SELECT due_at FROM ` + later + ` ORDER BY due_at, id LIMIT 1) AS scheduled`
	surveyEnds = `  SELECT f.*, CASE WHEN ready IS NULL THEN (SELECT min(lease_until) FROM (
    SELECT q.lease_until FROM {live} AS q INDEXED BY {due_ix_unqualified} WHERE q.priority = f.priority AND q.due_at <= {now} ORDER BY q.due_at, q.id LIMIT 100000)) END AS ends
  FROM first AS f`
)

func (q *queue) Survey() sqlbatch.Statement { return sqlbatch.Statement{Text: q.survey} }
