package sqlite

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// How an ordered queue is claimed from: an UPDATE that leases, and then a SELECT in the same
// transaction that walks the same rows and tells of all of them. What has been leased just now
// has this claim's salt in the lower bits of its fence.

// A LIMIT, and an OFFSET, cannot be another for each slot: a claim has this many, and rounds those of
// its parts down to one of them.
const (
	limits     = 8
	firstLimit = 6 // the number of the first parameter
)

// limited rounds the limits of parts down to few, which it returns, too: ascending, and the
// last one repeated where there are fewer. What is no less than rows bounds nothing, and is 0.
func limited(parts []sqlbatch.SlotPart, rows int) ([]sqlbatch.SlotPart, [limits]int) {
	var few [limits]int
	all := make([]int, 0, len(parts))
	for _, p := range parts {
		if p.Limit > 0 && p.Limit < rows {
			all = append(all, p.Limit)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return parts, few
	}
	for i := range few {
		few[i] = all[min(i, len(all)-1)]
		if len(all) > limits { // the least, the greatest, and those between at equal distances
			few[i] = all[i*(len(all)-1)/(limits-1)]
		}
	}
	parts = slices.Clone(parts)
	for i := range parts {
		if p := &parts[i]; p.Limit > 0 && p.Limit < rows {
			next, _ := slices.BinarySearch(few[:], p.Limit+1)
			p.Limit = few[next-1]
		}
	}
	return parts, few
}

// walkOf is a WITH that walks the parts ?1 one after the other until there are ?2 rows, without
// what ?3 holds, save what is taken (and all of it with ?4). A part ends at its row of the number of
// its limit, which is looked for first.
//
// What of ?3's has run out within late milliseconds counts as held: the SELECT must not meet
// more than the UPDATE did, or what that has leased may lie behind the limits.
func walkOf(taken, late, as string) string {
	mine := `(q.leased_by IS ?3 AND q.lease_until > {now} - ` + late + ` AND NOT ` + taken + ` AND NOT ?4)`
	var lasts strings.Builder
	for i := range limits {
		lasts.WriteString(strings.ReplaceAll(`
    WHEN {limit} THEN (SELECT q.seq FROM {live} AS q INDEXED BY {due_ix_unqualified} WHERE q.slot = p.slot AND q.seq > p.seq AND NOT `+mine+` ORDER BY q.seq LIMIT 1 OFFSET {limit} - 1)`,
			"{limit}", fmt.Sprintf("?%d", firstLimit+i)))
	}
	return `WITH parts AS MATERIALIZED (
  SELECT p.o, p.slot, p.seq, p.most FROM ` + partList + ` AS p
  CROSS JOIN {slots} AS s ON s.queue = {name} AND s.slot = p.slot AND s.fence = p.fence AND s.member = ?3
  WHERE EXISTS (SELECT 1 FROM {members} AS m WHERE m.id = ?3 AND ` + alive + `) AND NOT ` + paused + `
),
walked ` + as + ` (
  SELECT p.o, q.seq, q.due_at, q.lease_until, q.lapses, q.leased_by, ` + taken + ` AS taken
  FROM parts AS p
  CROSS JOIN {live} AS q INDEXED BY {due_ix_unqualified} ON p.most > 0 AND q.slot = p.slot AND q.seq > p.seq AND q.seq <= coalesce(CASE p.most` + lasts.String() + `
    END, 9223372036854775807)
  WHERE NOT ` + mine + `
  LIMIT ?2 + 0
)
`
}

// A claim makes ?5 of a fence, which its lower bits end in: a fence that is ahead of the clock is
// raised to the next millisecond, save one above HighFence.
const justTaken = `(q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0)`

var claimSlotsText = walkOf(`false`, `0`, `AS NOT MATERIALIZED`) + `UPDATE {live}
SET lease_until = min({now} + ?14, (SELECT m.until FROM {members} AS m WHERE m.id = ?3)),
  fence = (CASE WHEN fence > {now} << 20 AND fence <= {high fence} THEN (fence >> 20) + 1 ELSE {now} END << 20) + ?5,
  ` + counted + `, leased_by = ?3
WHERE seq IN (SELECT w.seq FROM walked AS w WHERE w.due_at <= {now} AND w.lease_until <= {now} AND w.lapses + (w.leased_by IS NOT NULL) < ?15)`

func claimedSlotsOf(content string) string {
	return walkOf(justTaken, `1000`, `AS MATERIALIZED`) + `SELECT q.id, q.priority, q.fence, q.attempts, q.lapses, coalesce(q.expires_at <= {now}, 0), q.enqueued_at, q.due_at, q.expires_at,
  ` + content + `, q.slot, q.seq, q.order_key, NULL AS wait
FROM walked AS w CROSS JOIN {live} AS q ON q.seq = w.seq
WHERE w.taken
UNION ALL
SELECT q.id, 0, 0, 0, 0, 0, 0, q.due_at, NULL, NULL, NULL, NULL, q.slot, q.seq, q.order_key, max(q.due_at - {now}, q.lease_until - {now}, 0)
FROM walked AS w CROSS JOIN {live} AS q ON q.seq = w.seq
WHERE NOT w.taken
UNION ALL
SELECT NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, p.slot,
  CASE WHEN p.o > a.o THEN p.seq WHEN coalesce(e.n, 0) >= p.most OR p.o = a.o THEN coalesce(e.seq, p.seq) ELSE 9223372036854775807 END, NULL, NULL
FROM parts AS p
LEFT JOIN (SELECT o, count(*) AS n, max(seq) AS seq FROM walked GROUP BY o) AS e ON e.o = p.o
CROSS JOIN (SELECT CASE WHEN count(*) >= ?2 THEN coalesce(max(o), 0) END AS o FROM walked) AS a`
}

const (
	withBody = `dedup_key, headers, body`
	blind    = `NULL, NULL, NULL`
)

func (q *queue) ClaimSlots(c sqlbatch.SlotClaim) sqlbatch.Statement {
	text, lapses, mine := q.claimedSlots, int64(c.Lapses), int64(0)
	if c.Blind {
		text = q.claimedSlotsBlind
	}
	if c.Suspects {
		lapses = math.MaxInt64
	}
	if c.Mine {
		mine = 1
	}
	parts, few := limited(c.Parts, c.Rows)
	walk := []any{packParts(parts), int64(c.Rows), c.Member[:], mine, c.Salt}
	for _, limit := range few {
		walk = append(walk, int64(limit))
	}
	lease := append(slices.Clip(walk), build.Milliseconds(c.Lease), lapses)
	return sqlbatch.Statement{Text: text, Args: walk, Prior: []sqlbatch.Statement{{Text: q.claimSlots, Args: lease}}}
}

// What one writer has stored can be seen by whoever comes later, and its numbers are those of the
// rows.
func (q *queue) Horizon() sqlbatch.Statement { return sqlbatch.Statement{} }
func (q *queue) Begun() sqlbatch.Statement   { return sqlbatch.Statement{} }

// What operators do with an ordered queue goes by seq, which is the rowid.
const (
	isReady     = `due_at <= {now} AND lease_until <= {now}`
	isScheduled = `due_at > {now} AND lease_until <= {now}`
	isLeased    = `due_at <= {now} AND lease_until > {now}`

	peekSeq    = `SELECT ` + liveColumns + ` WHERE seq > ?2 AND seq <= ?3 AND `
	peekSeqEnd = ` ORDER BY seq LIMIT ?1 + 0`

	// ?2, ?3 and ?4 are a Window.
	purgeSeq    = `DELETE FROM {live} WHERE seq IN (SELECT seq FROM {live} WHERE seq > ?2 AND seq <= ?4 AND `
	purgeSeqEnd = ` ORDER BY seq LIMIT ?1 + 0)
RETURNING id, seq`
)

// seqStates are the conditions of a state.
var seqStates = map[sqlbatch.State]string{sqlbatch.Ready: isReady, sqlbatch.Scheduled: isScheduled, sqlbatch.Leased: isLeased}

// purgeSeqEnds have what Window.Before bounds: see Purge.
var purgeSeqEnds = map[sqlbatch.State]string{
	sqlbatch.Ready:     ` AND due_at < ?3` + purgeSeqEnd,
	sqlbatch.Scheduled: ` AND enqueued_at < ?3` + purgeSeqEnd,
	sqlbatch.Leased:    ` AND (fence - 1) >> 20 < ?3` + purgeSeqEnd,
}

const reachText = `SELECT coalesce(min((
  SELECT q.seq FROM {live} AS q INDEXED BY {due_ix_unqualified} WHERE q.slot = s.slot AND q.seq > ?1 ORDER BY q.seq LIMIT 1 OFFSET ?2 - 1)), 9223372036854775807)
FROM {slots} AS s WHERE s.queue = {name}`

func (q *queue) Reach(after int64, rows int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reach, Args: []any{after, int64(rows)}}
}

// orderedStatsText reads by seq: what is leased, or waits for its time, lies before most of what is ready.
const orderedStatsText = `WITH first AS MATERIALIZED (SELECT due_at, lease_until FROM {live} ORDER BY seq LIMIT ?1 * 2)
SELECT
  (SELECT min(count(*), ?1) FROM first WHERE ` + isReady + `),
  (SELECT min(count(*), ?1) FROM first WHERE ` + isScheduled + `),
  (SELECT min(count(*), ?1) FROM first WHERE lease_until > {now}),
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT ?1)),
  (SELECT {now} - min(due_at) FROM first WHERE ` + isReady + `),
  ` + paused
