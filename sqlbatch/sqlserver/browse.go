package sqlserver

import (
	"database/sql"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Browses have no condition on leases, so that none reads a backlog to find a few messages. They do not read bodies:
// DATALENGTH is in the row.

// outlined leaves out headers, and returns only the length of the body.
func outlined(peek string) string {
	return strings.Replace(peek, `q.headers, q.body{q order}`, `CONVERT(varbinary(max), NULL) AS headers, CONVERT(bigint, DATALENGTH(q.body)) AS body{q order}`, 1)
}

const stateColumn = `CASE WHEN q.lease_until > @now THEN 'leased' WHEN q.due_at <= @now THEN 'ready' ELSE 'scheduled' END AS state, `

var (
	browseDue   = browseBound{"@first", "@after", " AND @after <= @now", " AND l.due_at <= @now"}
	browseLater = browseBound{"@now", "CASE WHEN @after > @now THEN @after ELSE @now END", " AND @after > @now", ""}
)

func browseTexts(ordered bool) map[sqlbatch.State]string {
	live := func(b browseBound) string {
		return peekPlace + `SELECT TOP (@n) ` + stateColumn + peekColumns + peekLane(b) + peekOrder
	}
	texts := map[sqlbatch.State]string{
		sqlbatch.Ready:     live(browseDue),
		sqlbatch.Scheduled: live(browseLater),
		sqlbatch.Leased:    live(browseDue),
		sqlbatch.Dead:      peekTexts[sqlbatch.Dead],
		sqlbatch.Done:      peekTexts[sqlbatch.Done],
	}
	if ordered {
		for state, is := range seqStates {
			texts[state] = peekSeqText(is.rows)
		}
	}
	for state, text := range texts {
		texts[state] = outlined(text)
	}
	return texts
}

func (q *queue) Browse(s sqlbatch.State, n int, after *sqlbatch.Place, f sqlbatch.Filter) sqlbatch.Statement {
	if s.Live() && q.ordered {
		_, at, _ := build.Peek(s, after, noEnd)
		return q.orderedCall(q.browse[s], "@n bigint, @after bigint, @upto bigint, @type varbinary(max), @order_key varbinary(max)",
			sql.Named("n", int64(n)), sql.Named("after", at), sql.Named("upto", build.UptoOf(after)),
			sql.Named("type", []byte(f.Type)), sql.Named("order_key", []byte(f.Key)))
	}
	return q.page(q.browse[s], s, max(n, f.Among), after)
}

// page builds a statement with the parameters of Peek.
func (q *queue) page(text string, s sqlbatch.State, n int, after *sqlbatch.Place) sqlbatch.Statement {
	lane, at, id := build.Peek(s, after, noEnd)
	days, ms := span(min(at, noEnd))
	declaration, args := "@n bigint, @after_days int, @after_ms int, @id binary(16)", []any{
		sql.Named("n", int64(n)), sql.Named("after_days", days), sql.Named("after_ms", ms), sql.Named("id", id[:]),
	}
	if s.Live() {
		declaration, args = declaration+", @lane int", append(args, sql.Named("lane", int32(lane)))
	}
	return call(text, declaration, args...)
}
