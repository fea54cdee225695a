package sqlite

import (
	"fmt"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// The ranges of the index that hold the messages of a priority {p}: due and later ones by their place, and each state by a
// check of the row. INDEXED BY pins them: with statistics of an emptier table SQLite might not use the index, and read the
// whole table.
const (
	lane      = `{live} INDEXED BY {due_ix_unqualified} WHERE priority = {p}`
	due       = lane + ` AND due_at <= {now}`
	later     = lane + ` AND due_at > {now}`
	ready     = due + ` AND lease_until <= {now}`
	leased    = due + ` AND lease_until > {now}`
	scheduled = later + ` AND lease_until <= {now}`
)

// lanes replaces {lanes} with one SELECT per priority, highest first: the text, with the range in the place of {range}.
func lanes(template, text, of string) string {
	text = strings.Replace(text, "{range}", of, 1)
	var lanes []string
	for p := sqlbatch.PriorityUrgent; p >= sqlbatch.PriorityLow; p-- {
		lanes = append(lanes, strings.NewReplacer(
			"{p}", fmt.Sprint(p), "{number}", fmt.Sprint(build.Lane(p)), "{head}", fmt.Sprintf("?%d", 1+p-sqlbatch.PriorityLow), "{head id}", fmt.Sprintf("?%d", 1+sqlbatch.Priorities+p-sqlbatch.PriorityLow),
		).Replace(text))
	}
	return strings.ReplaceAll(template, "{lanes}", strings.Join(lanes, "\n    UNION ALL\n"))
}

// fromHead: the heads are the first parameters, from the lowest priority up: the times, and then the IDs. A head that is less than a
// HeadMargin ago begins with all IDs of an earlier time.
const fromHead = lane + ` AND (due_at, id) >= (min({head}, {now} - {margin}), iif({head} <= {now} - {margin}, {head id}, x'')) AND leased_by IS NULL`

// Claim does one seek per priority, highest first. The outer LIMIT ends the walk when enough rows were found, and is 0
// when the queue is paused. With one writer, no row can be locked by another. The changed columns are in no index.
const claimText = `UPDATE {live} SET lease_until = {now} + ?10, fence = CASE WHEN fence > {now} << 20 AND fence <= {high fence} THEN fence ELSE {now} << 20 END + ?12,
  attempts = min(attempts + 1, {last attempt}), leased_by = ?11
WHERE rowid IN (SELECT rowid FROM (
{lanes}
  ) LIMIT coalesce((SELECT iif(paused, 0, ?9) FROM {queues} WHERE name = {name}), 0))
RETURNING ` + leaseColumns + `iif(?13 < 0, NULL, dedup_key), iif(?13 < 0, NULL, type), iif(?13 < 0, NULL, headers), iif({bytes of body} <= ?13, body, NULL), {bytes of body}`

const leaseColumns = `id, priority, fence, attempts, lapses, coalesce(expires_at <= {now}, 0), enqueued_at, due_at, expires_at, `

// + 0: SQLite parses and plans a statement again each time that a value is bound to a bare parameter of a LIMIT.
const (
	claimLane  = `    SELECT * FROM (SELECT rowid FROM {range} ORDER BY due_at, id LIMIT ?9 + 0)`
	claimRange = fromHead + ` AND due_at <= {now}`
)

func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.claim, Args: append(heads(p.Heads), int64(p.Rows), build.Milliseconds(p.Lease), p.Consumer[:], p.Salt, int64(p.Inline))}
}

const contentsText = `SELECT dedup_key, type, headers, body FROM {live} WHERE id = ?1 AND fence = ?2`

func (q *queue) Contents(item sqlbatch.Item) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.contents, Args: []any{item.ID[:], item.Fence}}
}

func heads(f sqlbatch.Heads) []any {
	return []any{f[0].Due, f[1].Due, f[2].Due, f[3].Due, f[0].ID[:], f[1].ID[:], f[2].ID[:], f[3].ID[:]}
}

const (
	nextDueText = `SELECT min(due) FROM (
{lanes}
) WHERE (SELECT NOT paused FROM {queues} WHERE name = {name})`
	nextDueLane = `    SELECT * FROM (SELECT due_at - {now} AS due FROM {range} ORDER BY due_at, id LIMIT 1)`
)

func (q *queue) NextDue(f sqlbatch.Heads) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.nextDue, Args: heads(f)}
}

// No reader sees uncommitted changes.
const dueOrLockedRange = lane + ` AND lease_until <= {now}`

func (q *queue) DueOrLocked() sqlbatch.Statement { return sqlbatch.Statement{Text: q.dueOrLocked} }

// Rescan walks each lane to its first free message. If there is none, all due messages are leased, and it walks the lane again, up to a
// hundred thousand messages, for the earliest end of a lease. Another walk ends at the first expired lease, and passes up to {passed} free
// messages before it, as on the engines with row locks.
const (
	rescanText = `WITH first AS MATERIALIZED (
{lanes}
),
seen AS MATERIALIZED (
` + rescanEnds + `
)
SELECT priority, coalesce(due, {now}), coalesce(due, min(scheduled, ends), scheduled, ends) - {now},
  (SELECT count(*) FROM {consumers} AS m WHERE m.queue = {name} AND m.until > {now}), id, lapses, lost_at, lost_id
FROM seen WHERE (SELECT NOT paused FROM {queues} WHERE name = {name})`
	rescanLane = `  SELECT {p} AS priority, r.due_at AS due, r.id AS id, r.lapses AS lapses, e.due_at AS lost_at, e.id AS lost_id,
    (SELECT due_at FROM ` + later + ` ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, lapses FROM ` + due + ` AND leased_by IS NULL ORDER BY due_at, id LIMIT 1) AS r
  LEFT JOIN (SELECT due_at, id FROM (SELECT due_at, id, leased_by FROM ` + ready + ` ORDER BY due_at, id LIMIT {passed} + 1) WHERE leased_by IS NOT NULL ORDER BY due_at, id LIMIT 1) AS e`
	rescanEnds = `  SELECT f.*, CASE WHEN due IS NULL THEN (SELECT min(lease_until) FROM (
    SELECT q.lease_until FROM {live} AS q INDEXED BY {due_ix_unqualified} WHERE q.priority = f.priority AND q.due_at <= {now} AND q.lease_until > {now} ORDER BY q.due_at, q.id LIMIT 100000)) END AS ends
  FROM first AS f`
)

func (q *queue) Rescan() sqlbatch.Statement { return sqlbatch.Statement{Text: q.rescan} }

// Rescue walks a lane from a place on: ?1 to ?3 are the priority, and time and ID of the place. ?4 is the number of expired leases with
// which a message is due at once. A random number of 53 bits has no sign.
func rescueText() string {
	return `UPDATE {live} AS q SET due_at = iif(lapses BETWEEN 1 AND ?4 - 2, {now} + (random() & 9007199254740991) % {scatter of lapses}, due_at),
  ` + lapsed() + `
WHERE rowid IN (SELECT rowid FROM (
  SELECT rowid, leased_by, lease_until FROM {live} INDEXED BY {due_ix_unqualified}
  WHERE priority = ?1 AND (due_at, id) >= (?2, ?3) AND due_at <= {now} ORDER BY due_at, id LIMIT {rescued})
  WHERE leased_by IS NOT NULL AND lease_until <= {now})
RETURNING id, priority, due_at`
}

// lapsed ends a lease that has expired, or whose consumer is not heard. The fence has the time of the claim.
func lapsed() string {
	return `lease_until = 0, fence = iif(fence > {high fence}, {now} << 20, fence + 1), lapses = min(lapses + 1, {last lapse}), leased_by = NULL,
  history = ` + expired(`min(q.lease_until, {now})`, `min(q.lease_until, {now}) - (q.fence >> 20)`, `q.leased_by`)
}

func (q *queue) Rescue(r sqlbatch.RescueParams) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.rescue, Args: []any{int64(r.Priority), r.From.Due, r.From.ID[:], int64(r.MaxCrashes)}}
}
