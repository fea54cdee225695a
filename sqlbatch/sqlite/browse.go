package sqlite

import (
	"fmt"
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

// A browse chooses rows by an index, the first ?1 of the state. It returns those of them that the filter looks for, and the last one. The
// parameters of the filter, {a} to {d}, follow those of the place.
const (
	browseText = `WITH c AS MATERIALIZED (
{choice}
)
SELECT {columns} WHERE rowid IN (SELECT r FROM c) AND (rowid = (SELECT r FROM c LIMIT 1 OFFSET ?1 - 1)
  OR (?{a} = '' OR type = ?{a}){of cause}{of key}{of state})
ORDER BY {in order} LIMIT ?{b}`

	browseLive = `SELECT rowid AS r FROM (
{lanes}
  ) ORDER BY priority DESC, due_at, id LIMIT ?1 + 0`
	browseEnded = `SELECT rowid AS r FROM {table} WHERE (ended_at, id) < (?2, ?3) ORDER BY ended_at DESC, id DESC LIMIT ?1 + 0`

	endedOrdered = `ended_at DESC, id DESC`
	liveOrdered  = `priority DESC, due_at, id`

	ofCause = ` AND (?{c} = 0 OR cause = ?{c}) AND (?{d} IS NULL OR coalesce(fingerprint, 0) = ?{d})`
	ofState = ` AND lease_until > {now}`
)

// ofKey is a condition on the rows of an ordered queue.
func ofKey(parameter int) string {
	return fmt.Sprintf(" AND (?%[1]d = '' OR order_key = ?%[1]d)", parameter)
}

// A scan of an index begins at only one bound: it is the later one, and the other is checked for each row.
const browseLater = lane + ` AND +due_at > {now} AND (due_at, id) > (max({now}, ` + from + `), ?4)`

func browseTexts(ordered bool) map[sqlbatch.State]string {
	text := func(choice, columns, order, cause, state string, parameters int) string {
		key, next := "", parameters+3
		if ordered {
			key, next = ofKey(next), next+1
		}
		text := strings.NewReplacer("{choice}", choice, "{columns}", outlined(columns), "{in order}", order, "{of cause}", cause, "{of key}", key, "{of state}", state).Replace(browseText)
		return strings.NewReplacer(
			"{a}", fmt.Sprint(parameters+1), "{b}", fmt.Sprint(parameters+2), "{c}", fmt.Sprint(next), "{d}", fmt.Sprint(next+1),
		).Replace(text)
	}
	ended := func(table string) string { return strings.Replace(browseEnded, "{table}", table, 1) }
	texts := map[sqlbatch.State]string{
		sqlbatch.Ready:     text(lanes(browseLive, peekLane, due+behind), liveColumns, liveOrdered, "", "", 4),
		sqlbatch.Scheduled: text(lanes(browseLive, peekLane, browseLater), liveColumns, liveOrdered, "", "", 4),
		sqlbatch.Leased:    text(lanes(browseLive, peekLane, due+behind), liveColumns, liveOrdered, "", ofState, 4),
		sqlbatch.Dead:      text(ended("{dead}"), deadColumns, endedOrdered, ofCause, "", 3),
		sqlbatch.Done:      text(ended("{done}"), doneColumns, endedOrdered, "", "", 3),
	}
	if ordered {
		for state, condition := range seqStates {
			texts[state] = outlined(peekSeq) + condition + ` AND (?4 = '' OR type = ?4)` + ofKey(5) + peekSeqEnd
		}
	}
	return texts
}

func (q *queue) Browse(s sqlbatch.State, n int, after *sqlbatch.Place, f sqlbatch.Filter) sqlbatch.Statement {
	if s.Live() && q.ordered {
		st := q.page(q.browse[s], s, n, after)
		st.Args = append(st.Args, f.Type, f.Key)
		return st
	}
	st := q.page(q.browse[s], s, max(n, f.Among), after)
	st.Args = append(st.Args, f.Type, int64(n))
	if q.ordered {
		st.Args = append(st.Args, f.Key)
	}
	if s == sqlbatch.Dead {
		st.Args = append(st.Args, int64(f.Cause), build.Fingerprint(f))
	}
	return st
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
