package postgres

import (
	"fmt"
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

// mostEnded is the most rows that a browse of dead or done messages reads.
const mostEnded = 10_000

// lookedFor leaves out rows of a browse that the filter does not look for, but not the last one that it has read: place $1. The parameters of
// the filter follow those of the browse.
func lookedFor(browse, state string, parameters int, ordered bool) string {
	columns, key := entryColumns, ""
	if ordered {
		columns += ", slot, seq, order_key"
		key = ` AND ($%d::bytea IN (''::bytea, b.order_key)) IS TRUE`
	}
	text := `SELECT ` + columns + `
FROM (SELECT b.*, row_number() OVER () AS place FROM (
` + browse + `
) AS b) AS b
WHERE b.place = $1::integer OR ($%d::bytea IN (''::bytea, convert_to(b.type, {encoding}))) IS TRUE AND ($%d::integer IN (0, b.cause)) IS TRUE
  AND coalesce(coalesce(b.fingerprint, 0) = $%d::bigint, true)` + key + isState(state) + `
ORDER BY b.place LIMIT $%d::integer`
	numbers := []any{parameters + 1, parameters + 2, parameters + 3}
	if ordered {
		numbers = append(numbers, parameters+5)
	}
	return fmt.Sprintf(text, append(numbers, parameters+4)...)
}

// entryColumns are the columns of a browse.
const entryColumns = `state, id, priority, fence, attempts, enqueued_at, due_at, lease_until, ended_at, expires_at, leased_by, holder, dedup_key, type, last_error, history, cause, fingerprint, headers, body`

// isState is a condition on the leased messages, which a browse reads among ready ones.
func isState(state string) string {
	if state != string(sqlbatch.Leased) {
		return ""
	}
	return ` AND b.state = 'leased'`
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
	for state, text := range texts {
		parameters := 3
		if state.Live() {
			parameters = 4
		}
		texts[state] = lookedFor(text, string(state), parameters, ordered)
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

func (q *queue) Browse(s sqlbatch.State, n int, after *sqlbatch.Place, f sqlbatch.Filter) sqlbatch.Statement {
	if s.Live() && q.ordered {
		st := q.page(q.browse[s], s, n, after)
		first, last := int64(0), int64(q.slotCount-1)
		if f.Key != "" {
			first = int64(sqlbatch.SlotOf(f.Key, [16]byte{}, q.slotCount))
			last = first
		}
		st.Args = append(st.Args, []byte(f.Type), []byte(f.Key), first, last)
		return st
	}
	st := q.page(q.browse[s], s, max(n, f.Among), after)
	st.Args = append(st.Args, []byte(f.Type), int64(f.Cause), build.Fingerprint(f), int64(n))
	if q.ordered {
		st.Args = append(st.Args, []byte(f.Key))
	}
	return st
}

// page builds a statement with the parameters of Peek.
func (q *queue) page(text string, s sqlbatch.State, n int, after *sqlbatch.Place) sqlbatch.Statement {
	most := maxRows // see chosen
	if !s.Live() {
		most = mostEnded
	}
	args := []any{int64(min(n, most))}
	lane, at, id := build.Peek(s, after, math.MaxInt64)
	if s.Live() && q.ordered {
		return sqlbatch.Statement{Text: text, Args: append(args, at, build.UptoOf(after))}
	}
	if s.Live() {
		args = append(args, int64(lane))
	}
	return sqlbatch.Statement{Text: text, Args: append(args, at, hexID(id))}
}
