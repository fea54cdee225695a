package chanqadmin

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// List says which messages Queue.List returns.
type List struct {
	State State
	// After is the page token of the page before. Default "": from the beginning.
	After PageToken
	// Limit is how many messages a page has at most, up to MostListed. Default: 100.
	Limit int
	// Bodies has the messages come with their headers and bodies, and in full pages: the database looks until it has found Limit
	// of them.
	Bodies bool
}

// MostListed bounds List.Limit.
const MostListed = 1000

const defaultListed = 100

// Page is one page of the messages of a state.
type Page struct {
	Entries []Entry
	Next    PageToken // where the next page begins; "": this is the last one
}

// PageToken is where a page begins, as text that may travel in an address.
type PageToken string

const (
	// mostLooked is how many messages one List without bodies looks at.
	mostLooked = 10_000
	// In an ordered queue these are so many of all slots together, and of each at least leastLooked: each may be in another page
	// of the table.
	mostLookedBySeq = 3_200
	leastLooked     = 50
)

// List returns messages of a state, a page at a time, without claiming them: live ones in the order of claims, dead and done ones
// latest first.
//
// Without List.Bodies it looks at no more than about 10,000 messages, of an ordered queue at 50 of each slot or, where it has few, at
// 3,200 together. So among many ready ones it may find fewer leased ones than Limit, or none, though there are more: only an empty
// Page.Next says that there are none. With Bodies a page is shorter than Limit only if it is the last.
//
// The place in the order counts, and not whether the last message of the page before is still there: a later page costs what the
// first one costs. Of messages that come, go, or change their state or due time between two pages, some may be missed; one that stays
// where it is is returned once, unless SQL Server has it locked at the moment.
//
// One round trip. Live ones of an ordered queue cost two, with Bodies two more for each 1000 messages in one slot that are of another
// state; without Bodies a plain queue costs up to eleven, where the messages lie among others.
func (q *Queue) List(ctx context.Context, l List) (Page, error) {
	if l.Limit == 0 {
		l.Limit = defaultListed
	}
	if err := l.State.check(); err != nil {
		return Page{}, q.refuse("list", "%w", err)
	}
	if l.Limit < 1 || l.Limit > MostListed {
		return Page{}, q.refuse("list", "List.Limit is %d: must be from 1 to %d", l.Limit, MostListed)
	}
	after, err := l.After.place(l.State)
	if err != nil {
		return Page{}, q.refuse("list", "%w", err)
	}
	var found []Entry
	var end *sqlbatch.Place
	switch bySeq := q.ordered() && l.State.live(); {
	case l.Bodies:
		found, err = q.full(ctx, l, after, bySeq)
		if len(found) == l.Limit {
			last := q.placeOf(&found[len(found)-1])
			end = &last
		}
	case bySeq:
		found, end, err = q.lookBySeq(ctx, l, after)
	default:
		found, end, err = q.look(ctx, l, after)
	}
	switch {
	case err != nil:
		return Page{}, err
	case end == nil:
		return Page{Entries: found}, nil
	}
	return Page{found, tokenOf(l.State, *end)}, nil
}

// full looks until it has found as many messages as the page may have. It goes through an ordered queue in steps, each of which ends
// after a number of messages: a few that wait or are leased may lie among millions that are ready, and one statement through all of
// them would take too long.
func (q *Queue) full(ctx context.Context, l List, after *sqlbatch.Place, bySeq bool) (list []Entry, err error) {
	if !bySeq {
		return q.entries(ctx, "list", q.sql.Peek(sqlbatch.State(l.State), l.Limit, after), withBodies)
	}
	var place sqlbatch.Place
	if after != nil {
		place = *after
	}
	for len(list) < l.Limit && place.Upto < math.MaxInt64 {
		if place.Upto, err = q.reach(ctx, "list", place.At, stepRows); err != nil {
			return nil, err
		}
		found, err := q.entries(ctx, "list", q.sql.Peek(sqlbatch.State(l.State), l.Limit-len(list), &place), withBodies)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
		place.At = place.Upto
	}
	return list, nil
}

// look returns the messages of a page, and where it ended; nil: at the end of the queue.
func (q *Queue) look(ctx context.Context, l List, after *sqlbatch.Place) (list []Entry, end *sqlbatch.Place, err error) {
	for rows, looked := l.Limit, 0; looked < mostLooked; rows = MostListed {
		page, err := q.outlines(ctx, l.State, rows, after)
		if err != nil {
			return list, nil, err
		}
		looked += len(page)
		for i := range page {
			at := q.placeOf(&page[i])
			end, after = &at, &at
			if page[i].State == l.State {
				list = append(list, page[i])
			}
			if len(list) == l.Limit {
				return list, end, nil
			}
		}
		if len(page) < rows {
			return list, nil, nil
		}
	}
	return list, end, nil
}

// lookBySeq is look for the live messages of an ordered queue, in one step.
func (q *Queue) lookBySeq(ctx context.Context, l List, after *sqlbatch.Place) (list []Entry, end *sqlbatch.Place, err error) {
	var from sqlbatch.Place
	if after != nil {
		from = *after
	}
	if from.Upto, err = q.reach(ctx, "list", from.At, max(leastLooked, mostLookedBySeq/q.cfg.Slots)); err != nil {
		return nil, nil, err
	}
	if list, err = q.outlines(ctx, l.State, l.Limit, &from); err != nil {
		return list, nil, err
	}
	switch {
	case len(list) == l.Limit:
		last := q.placeOf(&list[len(list)-1])
		return list, &last, nil
	case from.Upto < math.MaxInt64:
		return list, &sqlbatch.Place{At: from.Upto}, nil
	}
	return list, nil, nil
}

// outlines are messages without their headers and bodies.
func (q *Queue) outlines(ctx context.Context, s State, n int, after *sqlbatch.Place) ([]Entry, error) {
	return q.entries(ctx, "list", q.sql.Browse(sqlbatch.State(s), n, after), withSizes)
}

// reach returns the seq at which a step ends that begins behind a seq and looks at some rows of each slot.
func (q *Queue) reach(ctx context.Context, op string, after int64, rows int) (upto int64, err error) {
	err = q.once(ctx, q.sql.Reach(after, rows), func(rows *sql.Rows) error { return rows.Scan(&upto) })
	return upto, q.fail(op, err)
}

// placeOf is where a message stands among those of its state.
func (q *Queue) placeOf(e *Entry) sqlbatch.Place {
	p := sqlbatch.Place{Priority: int8(e.Priority), At: e.DueAt.UnixMilli(), ID: e.ID}
	switch live := e.State.live(); {
	case !live:
		p.At = e.EndedAt.UnixMilli()
	case q.ordered():
		p.At = e.seq
	}
	return p
}

// After returns the token of the page that begins behind an entry, in the order of its state. The entry is one of List or Get.
func (q *Queue) After(e Entry) PageToken { return tokenOf(e.State, q.placeOf(&e)) }

func tokenOf(s State, p sqlbatch.Place) PageToken {
	return PageToken(fmt.Sprintf("%s.%d.%d.%s", s, p.Priority, p.At, chanq.ID(p.ID)))
}

// place returns nil for the beginning.
func (t PageToken) place(s State) (*sqlbatch.Place, error) {
	if t == "" {
		return nil, nil
	}
	wrong := fmt.Errorf("page token %.100q: must be \"\", or the Next of a Page of %s messages", string(t), s)
	parts := strings.Split(string(t), ".")
	if len(parts) != 4 || parts[0] != string(s) {
		return nil, wrong
	}
	priority, err1 := strconv.ParseInt(parts[1], 10, 8)
	at, err2 := strconv.ParseInt(parts[2], 10, 64)
	id, err3 := chanq.ParseID(parts[3])
	if err1 != nil || err2 != nil || err3 != nil || at < 0 || priority < sqlbatch.PriorityLow || priority > sqlbatch.PriorityUrgent {
		return nil, wrong
	}
	return &sqlbatch.Place{Priority: int8(priority), At: at, ID: id}, nil
}
