package postgres

import (
	"math"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Browses have no condition on leases, so that none reads a backlog to find a few messages. They do not read bodies: a
// body's length is known without it.

// outlined leaves out headers, and returns only the length of the body.
func outlined(peek string) string {
	return strings.Replace(peek, `q.headers, q.body{shown order}`, `NULL::bytea AS headers, octet_length(q.body)::bigint AS body{shown order}`, 1)
}

// due is a condition on the rows of a lane.
const due = `{lane} AND due_at <= (SELECT now FROM t)`

func browseTexts(ordered bool) map[sqlbatch.State]string {
	peeks := peekTexts()
	texts := map[sqlbatch.State]string{
		sqlbatch.Ready:     browseLiveText(due, behind),
		sqlbatch.Scheduled: browseLiveText(`{lane}`, behindNow),
		sqlbatch.Leased:    browseLiveText(due, behind),
		sqlbatch.Dead:      peeks[sqlbatch.Dead],
		sqlbatch.Done:      peeks[sqlbatch.Done],
	}
	if ordered {
		for state, is := range seqStates {
			texts[state] = peekSeqText(is.condition)
		}
	}
	for state, text := range texts {
		texts[state] = outlined(text)
	}
	return texts
}

func (q *queue) Browse(s sqlbatch.State, n int, after *sqlbatch.Place) sqlbatch.Statement {
	return q.page(q.browse[s], s, n, after)
}

// page builds a statement with the parameters of Peek.
func (q *queue) page(text string, s sqlbatch.State, n int, after *sqlbatch.Place) sqlbatch.Statement {
	args := []any{int64(min(n, maxRows))}
	lane, at, id := build.Peek(s, after, math.MaxInt64)
	if s.Live() && q.ordered {
		return sqlbatch.Statement{Text: text, Args: append(args, at, build.UptoOf(after))}
	}
	if s.Live() {
		args = append(args, int64(lane))
	}
	return sqlbatch.Statement{Text: text, Args: append(args, at, hexID(id))}
}
