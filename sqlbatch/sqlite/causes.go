package sqlite

import (
	"math"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Groups of dead messages, by the index of causes: (cause, fingerprint, ended_at, id). In g the least number means a fingerprint that
// is NULL: NULLs are first in the index.

const (
	// inGroup selects the messages of the group g.
	inGroup = `{dead} AS d INDEXED BY {dead_cause_ix_unqualified} WHERE d.cause = g.cause AND d.fingerprint IS nullif(g.fingerprint, {no fingerprint})`

	// causesText goes from each group to the next by a seek: to the next fingerprint of the cause, or else to the next cause.
	causesText = `WITH RECURSIVE g(no, cause, fingerprint) AS (
  SELECT 0, ?1 + 0, ?2 + 0
  UNION ALL
  SELECT g.no + 1, d.cause, ifnull(d.fingerprint, {no fingerprint})
  FROM g CROSS JOIN {dead} AS d ON d.rowid = ifnull(
    (SELECT f.rowid FROM {dead} AS f INDEXED BY {dead_cause_ix_unqualified} WHERE f.cause = g.cause AND f.fingerprint > g.fingerprint ORDER BY f.fingerprint LIMIT 1),
    (SELECT f.rowid FROM {dead} AS f INDEXED BY {dead_cause_ix_unqualified} WHERE f.cause > g.cause ORDER BY f.cause, f.fingerprint LIMIT 1))
  WHERE g.no < ?3
)
SELECT g.cause, nullif(g.fingerprint, {no fingerprint}) AS fingerprint,
  (SELECT count(*) FROM (SELECT 1 FROM ` + inGroup + ` LIMIT ?4 + 0)) AS messages,
  (SELECT d.ended_at FROM ` + inGroup + ` ORDER BY d.ended_at, d.id LIMIT 1) AS first,
  l.ended_at AS last, l.id, substr(l.last_error, 1, 2000) AS last_error
FROM g CROSS JOIN {dead} AS l ON l.rowid = (SELECT d.rowid FROM ` + inGroup + ` ORDER BY d.ended_at DESC, d.id DESC LIMIT 1)
WHERE g.no > 0
ORDER BY g.no`

	deathsText = `SELECT cause, fingerprint, ({now} - ended_at) / 60000 FROM {dead} WHERE ended_at > {now} - 3600000 ORDER BY ended_at DESC LIMIT ?1`

	walkColumns = `SELECT id, ended_at, type{walked order} FROM {dead} WHERE `
	walkEnd     = `(ended_at, id) > (?2, ?3) AND ended_at < ?4 ORDER BY ended_at, id LIMIT ?1`
	walkText    = walkColumns + walkEnd
	walkGroup   = walkColumns + `cause = ?5 AND fingerprint IS ?6 AND ` + walkEnd
)

func (q *queue) Causes(after sqlbatch.Group, groups, limit int) sqlbatch.Statement {
	cause, fingerprint := build.Group(after, math.MinInt64)
	return sqlbatch.Statement{Text: q.causes, Args: []any{cause, fingerprint, int64(groups), int64(limit)}}
}

func (q *queue) Deaths(n int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.deaths, Args: []any{int64(n)}}
}

func (q *queue) Walk(g *sqlbatch.Group, n int, w sqlbatch.Window) sqlbatch.Statement {
	args := append([]any{int64(n)}, window(w)...)
	if g == nil {
		return sqlbatch.Statement{Text: q.walk, Args: args}
	}
	var fingerprint any
	if g.Fingerprint != 0 {
		fingerprint = g.Fingerprint
	}
	return sqlbatch.Statement{Text: q.walkGroup, Args: append(args, int64(g.Cause), fingerprint)}
}
