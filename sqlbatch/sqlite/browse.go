package sqlite

import (
	"math"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Browses have no condition on leases, so that none reads a backlog to find a few messages. They do not read bodies: SQLite
// knows type and length of a body without its pages. Only a body of type TEXT, which another program might have stored, is read:
// its length is in characters, and ends at a NUL.

// outlined leaves out headers, and returns only the length of the body.
func outlined(peek string) string {
	return strings.Replace(peek, ` headers, body{order}`, ` NULL AS headers, `+viewBytes+` AS body{order}`, 1)
}

// A scan of an index begins at only one bound: it is the later one, and the other is checked for each row.
const browseLater = lane + ` AND +due_at > {now} AND (due_at, id) > (max({now}, ` + from + `), ?4)`

func browseTexts(ordered bool) map[sqlbatch.State]string {
	texts := map[sqlbatch.State]string{
		sqlbatch.Ready:     lanes(peekLive, peekLane, due+behind),
		sqlbatch.Scheduled: lanes(peekLive, peekLane, browseLater),
		sqlbatch.Dead:      peekDead,
		sqlbatch.Done:      peekDone,
	}
	texts[sqlbatch.Leased] = texts[sqlbatch.Ready]
	if ordered {
		for state, condition := range seqStates {
			texts[state] = peekSeq + condition + peekSeqEnd
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
	args := []any{int64(n)}
	lane, at, id := build.Peek(s, after, math.MaxInt64)
	if s.Live() && q.ordered {
		return sqlbatch.Statement{Text: text, Args: append(args, at, build.UptoOf(after))}
	}
	if s.Live() {
		args = append(args, int64(lane))
	}
	return sqlbatch.Statement{Text: text, Args: append(args, at, id[:])}
}
