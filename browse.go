package chanq

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// Place is where Browse goes on, as text that may travel in an address: "" is the
// beginning, and as the answer of Browse the end.
type Place string

// mostBrowsed is how many messages a Browse looks at.
const mostBrowsed = 10_000

// Browse returns up to n (at most 1000) messages of a state that stand behind a place,
// without their headers and bodies, and the place where the next Browse goes on: for
// programs that show a queue page by page. Their order is that of Peek, and what comes and
// goes between two pages may be missed as with PeekAfter.
//
// It looks at no more than about 10,000 messages, of an ordered queue at 50 of each slot or, where it
// has few, at 3,200 together. So among a great many ready ones it may find fewer leased
// ones than n, or none, though there are more behind the place that it returns: only "" says that
// there are none. One round trip, or up to eleven where those of the state lie among others; for
// live ones of an ordered queue two.
func (q *Queue[T]) Browse(ctx context.Context, s State, from Place, n int) (list []Entry, next Place, err error) {
	if err := q.core.checkPeek("browse", s, n); err != nil {
		return nil, "", err
	}
	after, err := from.parse()
	if err != nil {
		return nil, "", fmt.Errorf("chanq: browse %s: %w", q.core.label, err)
	}
	found, err := q.core.browse(ctx, s, n, after)
	if err != nil || found.end == nil {
		return found.list, "", err
	}
	return found.list, placeText(*found.end), nil
}

// browsed are messages behind a place, up to an end behind which there may be more; nil is that of the queue.
type browsed struct {
	list []Entry
	end  *sqlbatch.Place
}

func (q *queue) browse(ctx context.Context, s State, n int, after *sqlbatch.Place) (found browsed, err error) {
	if q.ordered() && sqlbatch.State(s).Live() {
		return q.browseBySeq(ctx, s, n, after)
	}
	for rows, looked := n, 0; looked < mostBrowsed; rows = maxPeek {
		page, err := q.outlines(ctx, s, rows, after)
		if err != nil {
			return found, err
		}
		looked += len(page)
		for i := range page {
			end := q.placeOf(&page[i])
			found.end, after = &end, &end
			if page[i].State == s {
				found.list = append(found.list, page[i])
			}
			if len(found.list) == n {
				return found, nil
			}
		}
		if len(page) < rows {
			found.end = nil
			return found, nil
		}
	}
	return found, nil
}

// outlines are messages of a state, as a Browse has them.
func (q *queue) outlines(ctx context.Context, s State, n int, after *sqlbatch.Place) ([]Entry, error) {
	return q.entriesOf(ctx, "browse", q.sql.Browse(sqlbatch.State(s), n, after), func(e *Entry) any { return &e.Size })
}

func placeText(p sqlbatch.Place) Place {
	return Place(fmt.Sprintf("%d.%d.%s", p.Priority, p.At, ID(p.ID)))
}

// parse returns nil for the beginning.
func (p Place) parse() (*sqlbatch.Place, error) {
	if p == "" {
		return nil, nil
	}
	wrong := fmt.Errorf("place %.100q: must be \"\" or what Browse returned", string(p))
	parts := strings.Split(string(p), ".")
	if len(parts) != 3 {
		return nil, wrong
	}
	priority, err1 := strconv.ParseInt(parts[0], 10, 8)
	at, err2 := strconv.ParseInt(parts[1], 10, 64)
	id, err3 := ParseID(parts[2])
	if err1 != nil || err2 != nil || err3 != nil || at < 0 || priority < sqlbatch.PriorityLow || priority > sqlbatch.PriorityUrgent {
		return nil, wrong
	}
	return &sqlbatch.Place{Priority: int8(priority), At: at, ID: id}, nil
}
