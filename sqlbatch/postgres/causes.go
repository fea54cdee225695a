package postgres

import (
	"math"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Groups of dead messages, by the index of causes: (cause, fingerprint, ended_at, id).

// ofGroup selects columns in the group of g, in the order of the index, or from its end if of is " DESC". In g the greatest number
// means a fingerprint that is NULL: NULLs are last in the index. Each of the two parts seeks the index.
func ofGroup(columns, of, limit string) string {
	part := func(fingerprint string) string {
		return `(SELECT ` + columns + ` FROM {dead} AS d WHERE d.cause = g.cause AND ` + fingerprint + `
      ORDER BY ` + strings.ReplaceAll(`d.cause{of}, d.fingerprint{of}, d.ended_at{of}, d.id{of}`, "{of}", of) + ` LIMIT ` + limit + `)`
	}
	return part(`d.fingerprint = g.fingerprint`) + `
      UNION ALL ` + part(`d.fingerprint IS NULL AND g.fingerprint = {no fingerprint}`)
}

// causesText goes from each group to the next by one seek: to the next fingerprint of the cause, or else to the messages of the cause
// without one, or else to the next cause. A part after an "or else" reads nothing if an earlier part has found a group.
var causesText = `WITH RECURSIVE t AS MATERIALIZED (
  SELECT $3::integer AS groups, $4::integer AS n
),
g (no, cause, fingerprint) AS (
  SELECT 0, $1::smallint, $2::bigint
  UNION ALL
  SELECT g.no + 1, coalesce(a.cause, b.cause, c.cause), coalesce(a.fingerprint, c.fingerprint, {no fingerprint})
  FROM g
  LEFT JOIN LATERAL (
    SELECT d.cause, d.fingerprint FROM {dead} AS d WHERE d.cause = g.cause AND d.fingerprint > g.fingerprint
    ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1) AS a ON true
  LEFT JOIN LATERAL (
    SELECT d.cause FROM {dead} AS d WHERE a.cause IS NULL AND d.cause = g.cause AND d.fingerprint IS NULL AND g.fingerprint < {no fingerprint}
    ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1) AS b ON true
  LEFT JOIN LATERAL (
    SELECT d.cause, d.fingerprint FROM {dead} AS d WHERE a.cause IS NULL AND b.cause IS NULL AND d.cause > g.cause
    ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1) AS c ON true
  WHERE g.no < (SELECT groups FROM t) AND coalesce(a.cause, b.cause, c.cause) IS NOT NULL
)
SELECT g.cause, nullif(g.fingerprint, {no fingerprint}) AS fingerprint, c.messages, b.ended_at AS first, l.ended_at AS last, uuid_send(l.id) AS id,
  convert_to(left(l.last_error, 2000), {encoding}) AS last_error
FROM g
CROSS JOIN LATERAL (
  SELECT count(*) AS messages FROM (
      ` + ofGroup("1", "", "(SELECT n FROM t)") + `) AS e) AS c
CROSS JOIN LATERAL (
      ` + ofGroup("d.ended_at", "", "1") + `) AS b
CROSS JOIN LATERAL (
      ` + ofGroup("d.ended_at, d.id, d.last_error", " DESC", "1") + `) AS l
WHERE g.no > 0
ORDER BY g.no`

func (q *queue) Causes(after sqlbatch.Group, groups, limit int) sqlbatch.Statement {
	cause, fingerprint := build.Group(after, math.MaxInt64)
	return sqlbatch.Statement{Text: q.causes, Args: []any{cause, fingerprint, int64(groups), int64(limit)}}
}

const deathsText = `SELECT cause, fingerprint, ({now} - ended_at) / 60000 AS ago
FROM {dead} WHERE ended_at > {now} - 3600000 ORDER BY ended_at DESC LIMIT $1::integer`

func (q *queue) Deaths(n int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.deaths, Args: []any{int64(n)}}
}

// walkText walks one of the two indexes that have (ended_at, id) after columns that are equal: those of a group, or none.
func walkText(group, order string) string {
	return `SELECT uuid_send(q.id) AS id, q.ended_at, q.type{walked order}
FROM {dead} AS q
WHERE ` + group + `(q.ended_at, q.id) > ($2::bigint, $3::uuid) AND q.ended_at < $4::bigint
ORDER BY ` + order + `q.ended_at, q.id LIMIT $1::integer`
}

const groupOrder = `q.cause, q.fingerprint, `

func (q *queue) Walk(g *sqlbatch.Group, n int, w sqlbatch.Window) sqlbatch.Statement {
	args := append([]any{int64(min(n, maxRows))}, window(w)...)
	switch {
	case g == nil:
		return sqlbatch.Statement{Text: q.walk, Args: args}
	case g.Fingerprint == 0:
		return sqlbatch.Statement{Text: q.walkBare, Args: append(args, int64(g.Cause))}
	}
	return sqlbatch.Statement{Text: q.walkGroup, Args: append(args, int64(g.Cause), g.Fingerprint)}
}
