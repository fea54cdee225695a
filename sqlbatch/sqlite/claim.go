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

	// innocent: the message is no suspect, or has expired, so that a consumer only has to dead-letter it.
	innocent = `(lapses + (leased_by IS NOT NULL) < {suspect lapses} OR coalesce(expires_at <= {now}, 0))`
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
const fromHead = lane + ` AND (due_at, id) >= (min({head}, {now} - {margin}), iif({head} <= {now} - {margin}, {head id}, x'')) AND lease_until <= {now} AND ` + innocent

// Claim does one seek per priority, highest first. The outer LIMIT ends the walk when enough rows were found, and is 0
// when the queue is paused. With one writer, no row can be locked by another. The changed columns are in no index.
const claimText = `UPDATE {live} SET lease_until = {now} + ?10, fence = CASE WHEN fence > {now} << 20 AND fence <= {high fence} THEN fence ELSE {now} << 20 END + ?12,
  ` + counted + `, leased_by = ?11
WHERE rowid IN (SELECT rowid FROM (
{lanes}
  ) LIMIT coalesce((SELECT iif(paused, 0, ?9) FROM {queues} WHERE name = {name}), 0))
RETURNING ` + leaseColumns + `iif(?13 < 0, NULL, dedup_key), iif(?13 < 0, NULL, type), iif(?13 < 0, NULL, headers), iif({bytes of body} <= ?13, body, NULL), {bytes of body}`

const leaseColumns = `id, priority, fence, attempts, lapses, coalesce(expires_at <= {now}, 0), enqueued_at, due_at, expires_at, `

// counted stops at the limits of the tables.
const counted = `attempts = min(attempts + 1, {last attempt}), lapses = min(lapses + (leased_by IS NOT NULL), {last lapse})`

// + 0: SQLite parses and plans a statement again each time that a value is bound to a bare parameter of a LIMIT.
const (
	claimLane  = `    SELECT * FROM (SELECT rowid FROM {range} ORDER BY due_at, id LIMIT ?9 + 0)`
	claimRange = fromHead + ` AND due_at <= {now}`
)

func (q *queue) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.claim, Args: append(heads(p.Heads), int64(p.Rows), build.Milliseconds(p.Lease), p.Consumer[:], p.Salt, int64(p.Inline))}
}

// Mark: ?1 is the id and ?2 the fence, ?3 to ?5 lease, consumer and salt, ?6 the new value of alone, and ?7 is 1 if
// the consumer marks again.
const (
	again    = `?7 AND leased_by IS ?4`
	markText = `UPDATE {live} SET lease_until = {now} + ?3, fence = CASE WHEN fence > {now} << 20 AND fence <= {high fence} THEN fence ELSE {now} << 20 END + ?5,
  attempts = iif(` + again + `, attempts, min(attempts + 1, {last attempt})),
  lapses = iif(leased_by IS NULL OR ` + again + `, lapses, min(lapses + 1, {last lapse})),
  crashes = iif(leased_by IS NULL OR alone = 0 OR ` + again + `, crashes, min(crashes + 1, {last lapse})),
  leased_by = ?4, alone = ?6
WHERE id = ?1 AND fence = ?2 AND due_at <= {now} AND (lease_until <= {now} OR ` + again + `)
  AND coalesce((SELECT NOT paused FROM {queues} WHERE name = {name}), 0)
RETURNING ` + leaseColumns + `NULL, NULL, NULL, NULL, {bytes of body}`
)

func (q *queue) Mark(m sqlbatch.MarkParams) sqlbatch.Statement {
	again := int64(0)
	if m.Again {
		again = 1
	}
	return sqlbatch.Statement{Text: q.mark, Args: []any{m.ID[:], m.Fence, build.Milliseconds(m.Lease), m.Consumer[:], m.Salt, int64(m.Alone), again}}
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

// Rescan walks each lane to its first message that is not leased, and on to the first that can be claimed if that one is a
// suspect. If there is none, all due messages are leased, and it walks the lane again, up to a hundred thousand messages,
// for the earliest end of a lease.
const (
	rescanText = `WITH first AS MATERIALIZED (
{lanes}
),
seen AS MATERIALIZED (
` + rescanEnds + `
)
SELECT priority, coalesce(ready, {now}), coalesce(ready, min(scheduled, ends), scheduled, ends) - {now},
  (SELECT count(*) FROM {consumers} AS m WHERE m.queue = {name} AND m.until > {now}),
  iif(suspect, id, NULL), iif(suspect, fence, NULL), iif(suspect, crashes, NULL), iif(suspect, alone, NULL), iif(suspect, NULL, id)
FROM seen WHERE (SELECT NOT paused FROM {queues} WHERE name = {name})`
	rescanLane = `  SELECT {p} AS priority, e.*, iif(e.suspect, (SELECT due_at FROM ` + ready + ` AND ` + innocent + ` ORDER BY due_at, id LIMIT 1), e.due_at) AS ready,
    (SELECT due_at FROM ` + later + ` ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, fence, alone, crashes + (leased_by IS NOT NULL AND alone > 0) AS crashes, NOT (` + innocent + `) AS suspect
    FROM ` + ready + ` ORDER BY due_at, id LIMIT 1) AS e`
	rescanEnds = `  SELECT f.*, CASE WHEN ready IS NULL THEN (SELECT min(lease_until) FROM (
    SELECT q.lease_until FROM {live} AS q INDEXED BY {due_ix_unqualified} WHERE q.priority = f.priority AND q.due_at <= {now} AND q.lease_until > {now} ORDER BY q.due_at, q.id LIMIT 100000)) END AS ends
  FROM first AS f`
)

func (q *queue) Rescan() sqlbatch.Statement { return sqlbatch.Statement{Text: q.rescan} }
