package sqlserver

import (
	"database/sql"
	"math"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Groups of dead messages, by the index of causes: (cause, fingerprint, ended_at, id). In @groups the least number means a fingerprint
// that is NULL: NULLs are first in the index. Hints are those of statsText: no statement here waits, and rows that are locked at the
// moment are left out.

const (
	theDead = `{dead} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead cause}), FORCESEEK)`

	groupOrder = `d.cause, d.fingerprint, `
)

// causesText goes from each group to the next by a seek: to the next fingerprint of the cause, or else to the next cause. T-SQL allows no
// TOP in a recursive query, so this is a loop.
var causesText = session + `DECLARE @groups TABLE (cause smallint NOT NULL, fingerprint bigint NOT NULL, PRIMARY KEY CLUSTERED (cause, fingerprint));
DECLARE @next bigint;
WHILE @count > 0 AND @cause IS NOT NULL
BEGIN
    SET @next = (SELECT TOP (1) d.fingerprint FROM ` + theDead + ` WHERE d.cause = @cause AND d.fingerprint > @fingerprint ORDER BY d.fingerprint);
    IF @next IS NULL
    BEGIN
        SET @cause = (SELECT TOP (1) d.cause FROM ` + theDead + ` WHERE d.cause > @cause ORDER BY d.cause);
        SET @next = (SELECT TOP (1) CASE WHEN d.fingerprint IS NULL THEN {no fingerprint} ELSE d.fingerprint END FROM ` + theDead + ` WHERE d.cause = @cause ORDER BY d.fingerprint);
    END;
    IF @next IS NOT NULL
        INSERT INTO @groups (cause, fingerprint) VALUES (@cause, @next);
    SET @fingerprint = @next;
    SET @count = @count - 1;
END;
SELECT r.cause, r.fingerprint, r.messages, r.first, r.last, r.id, r.last_error
FROM (
` + groupsText("g.fingerprint", "g.fingerprint <> {no fingerprint} AND d.fingerprint = g.fingerprint") + `    UNION ALL
` + groupsText("CONVERT(bigint, NULL)", "g.fingerprint = {no fingerprint} AND d.fingerprint IS NULL") + `) AS r
ORDER BY r.cause, r.fingerprint
` + fromListOptions + `;
`

// groupsText counts the groups that have a fingerprint, or those that have none.
func groupsText(fingerprint, condition string) string {
	group := `d.cause = g.cause AND ` + condition
	return `    SELECT g.cause, ` + fingerprint + ` AS fingerprint, n.messages,
           DATEDIFF_BIG(millisecond, '19700101', f.ended_at) AS first, DATEDIFF_BIG(millisecond, '19700101', l.ended_at) AS last, l.id, l.last_error
    FROM @groups AS g
    CROSS APPLY (SELECT COUNT_BIG(*) AS messages FROM (
        SELECT TOP (@limit) d.id FROM ` + theDead + ` WHERE ` + group + `) AS c) AS n
    CROSS APPLY (SELECT TOP (1) d.ended_at FROM ` + theDead + ` WHERE ` + group + ` ORDER BY d.ended_at, d.id) AS f
    CROSS APPLY (SELECT TOP (1) d.id, d.ended_at, d.last_error FROM ` + theDead + ` WHERE ` + group + ` ORDER BY d.ended_at DESC, d.id DESC) AS l
`
}

func (q *queue) Causes(after sqlbatch.Group, groups, limit int) sqlbatch.Statement {
	cause, fingerprint := build.Group(after, math.MinInt64)
	return call(q.causes, "@cause smallint, @fingerprint bigint, @count int, @limit bigint",
		sql.Named("cause", int16(cause)), sql.Named("fingerprint", fingerprint), sql.Named("count", int32(groups)), sql.Named("limit", int64(limit)))
}

const deathsText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) d.cause, d.fingerprint, DATEDIFF_BIG(millisecond, d.ended_at, @now) / 60000 AS ago
FROM {dead} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead ended}), FORCESEEK)
WHERE d.ended_at > DATEADD(millisecond, -3600000, @now)
ORDER BY d.ended_at DESC;
`

func (q *queue) Deaths(n int) sqlbatch.Statement {
	return call(q.deaths, "@n bigint", sql.Named("n", int64(n)))
}

// walkText does two seeks, since T-SQL has no comparison of rows: the rest of the messages that ended at the same time as the last one of
// the previous step, and the messages that ended later.
func walkText(index, group, order string) string {
	part := func(place string) string {
		return `    SELECT u.id, u.ended_at, u.type{u walked order} FROM (
        SELECT TOP (@n) d.id, d.ended_at, d.type{walked order}
        FROM {dead} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX (` + index + `), FORCESEEK)
        WHERE ` + group + place + `
        ORDER BY ` + order + `d.ended_at, d.id) AS u
`
	}
	return session + window + `SELECT TOP (@n) q.id, DATEDIFF_BIG(millisecond, '19700101', q.ended_at) AS place, q.type{q walked order}
FROM (
` + part(`d.ended_at = @after AND d.id > @after_id AND d.ended_at < @before`) + `    UNION ALL
` + part(`d.ended_at > @after AND d.ended_at < @before`) + `) AS q
ORDER BY q.ended_at, q.id;
`
}

func (q *queue) Walk(g *sqlbatch.Group, n int, w sqlbatch.Window) sqlbatch.Statement {
	declaration, args := "@n bigint"+windowDeclaration, append([]any{sql.Named("n", int64(n))}, windowOf(w)...)
	if g == nil {
		return call(q.walk, declaration, args...)
	}
	declaration, args = declaration+", @cause smallint", append(args, sql.Named("cause", int16(g.Cause)))
	if g.Fingerprint == 0 {
		return call(q.walkBare, declaration, args...)
	}
	return call(q.walkGroup, declaration+", @fingerprint bigint", append(args, sql.Named("fingerprint", g.Fingerprint))...)
}
