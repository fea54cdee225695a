package sqlserver

import (
	"database/sql"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// The indexes of an ordered queue, and the statements of operators for it. They use the order of seq.

// Reads of several slots walk seqIndexText, in place of dueIndexText, and reads of one slot walk slotIndexText. They have no column that
// settles or marks change, neither the end of a lease nor the time of a retry. The clustered key is still the ID, which settles use. Both
// indexes grow at their ends, and ghosts are before the entries that reads look for.
const (
	seqIndexText = `IF INDEXPROPERTY(OBJECT_ID({'live'}, N'U'), {'by seq'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {by seq} ON {live} (seq, slot)
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
`
	slotIndexText = `IF INDEXPROPERTY(OBJECT_ID({'live'}, N'U'), {'due'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {due} ON {live} (slot, seq)
        WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF);
`
)

// deadLineIndexText finds the keys that dead messages hold.
const deadLineIndexText = `SET QUOTED_IDENTIFIER ON;
IF INDEXPROPERTY(OBJECT_ID({'dead'}, N'U'), {'dead line'}, 'IndexID') IS NULL
    CREATE NONCLUSTERED INDEX {dead line} ON {dead} (slot, order_key) WHERE order_key IS NOT NULL;
`

// lookedBySeq is looked with the index of numbers.
const lookedBySeq = `{live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({by seq}), FORCESEEK)`

// seqStates has the condition of each state, and the time that Window.Before bounds.
var seqStates = map[sqlbatch.State]struct{ rows, before string }{
	sqlbatch.Ready:     {"{r}due_at <= @now AND {r}lease_until <= @now", "{r}due_at < @before"},
	sqlbatch.Scheduled: {"{r}due_at > @now AND {r}lease_until <= @now", "{r}enqueued_at < @before"},
	sqlbatch.Leased:    {"{r}due_at <= @now AND {r}lease_until > @now", "{r}fence <= @mark"},
}

// reachText counts entries of IX, and looks up no row. Hints are those of statsText.
const reachText = session + `SELECT CASE WHEN f.n >= @rows THEN f.seq ELSE ` + atEnd + ` END AS seq
FROM (
    SELECT COUNT_BIG(*) AS n, MAX(e.seq) AS seq
    FROM (
        SELECT TOP (@rows) q.seq
        FROM ` + lookedBySeq + `
        WHERE q.seq > @after
        ORDER BY q.seq) AS e) AS f
OPTION (KEEPFIXED PLAN);
`

func (q *queue) Reach(after int64, rows int) sqlbatch.Statement {
	return q.orderedCall(q.reach, "@rows bigint, @after bigint", sql.Named("rows", int64(rows)), sql.Named("after", after))
}

// of puts the name of a row into a condition.
func of(row, condition string) string { return strings.ReplaceAll(condition, "{r}", row) }

func peekSeqText(condition string) string {
	return session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT TOP (@n) ` + stateColumn + peekColumns + `FROM {live} AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ({by seq}), FORCESEEK)
WHERE q.seq > @after AND q.seq <= @upto AND ` + of("q.", condition) + `
      AND (DATALENGTH(@type) = 0 OR q.type = @type) AND (DATALENGTH(@order_key) = 0 OR q.order_key = @order_key)
ORDER BY q.seq
` + fromListOptions + `;
`
}

// purgeSeqText checks each row again when it has its lock, and skips locked rows. TOP counts above the lock, as in claimLane.
func purgeSeqText(condition, before string) string {
	condition += " AND " + before
	bound := `DECLARE @epoch datetime2(3) = '19700101';
DECLARE @before datetime2(3) = DATEADD(millisecond, @before_ms, DATEADD(day, @before_days, @epoch));
`
	if !strings.Contains(before, "@before") {
		bound = ""
	}
	return settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
` + bound + `DELETE q
OUTPUT deleted.id, deleted.seq AS place
FROM (
    SELECT TOP (@n) u.id
    FROM {live} AS r WITH (READPAST, READCOMMITTEDLOCK, INDEX ({by seq}), FORCESEEK)
    INNER JOIN {live} AS u WITH (XLOCK, READPAST, ROWLOCK, INDEX ({pk}), FORCESEEK) ON u.id = r.id
    WHERE r.seq > @after AND r.seq <= @upto AND ` + of("r.", condition) + ` AND ` + of("u.", condition) + `
    ORDER BY r.seq
) AS a
INNER JOIN {live} AS q WITH (UPDLOCK, ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id
` + fromListOptions + `;
`
}

func (q *queue) purgeSeq(s sqlbatch.State, n int, w sqlbatch.Window) sqlbatch.Statement {
	declaration, args := "@n bigint, @after bigint, @upto bigint", []any{sql.Named("n", int64(n)), sql.Named("after", w.After), sql.Named("upto", build.Upto(w.Upto))}
	if s == sqlbatch.Leased {
		return call(q.purge[s], declaration+", @mark bigint", append(args, sql.Named("mark", lastFence(w.Before)))...)
	}
	if w.Before <= 0 {
		w.Before = noEnd
	}
	days, ms := span(min(w.Before, noEnd))
	return call(q.purge[s], declaration+", @before_days int, @before_ms int", append(args, sql.Named("before_days", days), sql.Named("before_ms", ms))...)
}

// orderedStatsText counts among the first 2 * @limit messages by seq. Hints are those of statsText.
const orderedStatsText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT CASE WHEN f.ready < @limit THEN f.ready ELSE @limit END AS ready,
       CASE WHEN f.scheduled < @limit THEN f.scheduled ELSE @limit END AS scheduled,
       CASE WHEN f.leased < @limit THEN f.leased ELSE @limit END AS leased,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM {dead} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead ended}))) AS d) AS dead,
       (SELECT COUNT_BIG(*) FROM (
            SELECT TOP (@limit) d.id
            FROM {done} AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ({done id}))) AS d) AS done,
       DATEDIFF_BIG(millisecond, f.oldest, @now) AS oldest_ms,
       CASE WHEN EXISTS (` + pausedRow + `) THEN 1 ELSE 0 END AS paused
FROM (
    SELECT COUNT_BIG(CASE WHEN e.due_at <= @now AND e.lease_until <= @now THEN 1 END) AS ready,
           COUNT_BIG(CASE WHEN e.due_at > @now AND e.lease_until <= @now THEN 1 END) AS scheduled,
           COUNT_BIG(CASE WHEN e.lease_until > @now THEN 1 END) AS leased,
           MIN(CASE WHEN e.due_at <= @now AND e.lease_until <= @now THEN e.due_at END) AS oldest
    FROM (
        SELECT TOP (2 * @limit) q.due_at, q.lease_until
        FROM ` + lookedBySeq + `
        WHERE q.seq > 0
        ORDER BY q.seq) AS e
) AS f
OPTION (KEEPFIXED PLAN);
`
