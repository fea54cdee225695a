package sqlite

import "github.com/chanq/chanq/sqlbatch"

// Statements of operators for an ordered queue use the order of seq, which is the rowid.
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

// purgeSeqEnds has the times that Window.Before bounds: see Purge.
var purgeSeqEnds = map[sqlbatch.State]string{
	sqlbatch.Ready:     ` AND due_at < ?3` + purgeSeqEnd,
	sqlbatch.Scheduled: ` AND enqueued_at < ?3` + purgeSeqEnd,
	sqlbatch.Leased:    ` AND (fence - 1) >> 20 < ?3` + purgeSeqEnd,
}

const reachText = `SELECT coalesce((SELECT seq FROM {live} WHERE seq > ?1 ORDER BY seq LIMIT 1 OFFSET ?2 - 1), 9223372036854775807)`

func (q *queue) Reach(after int64, rows int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reach, Args: []any{after, int64(rows)}}
}

// orderedStatsText reads by seq: messages that are leased or scheduled are before most ready ones.
const orderedStatsText = `WITH first AS MATERIALIZED (SELECT due_at, lease_until FROM {live} ORDER BY seq LIMIT ?1 * 2)
SELECT
  (SELECT min(count(*), ?1) FROM first WHERE ` + isReady + `),
  (SELECT min(count(*), ?1) FROM first WHERE ` + isScheduled + `),
  (SELECT min(count(*), ?1) FROM first WHERE lease_until > {now}),
  (SELECT count(*) FROM (SELECT 1 FROM {dead} LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM {done} LIMIT ?1)),
  (SELECT {now} - min(due_at) FROM first WHERE ` + isReady + `),
  ` + paused
