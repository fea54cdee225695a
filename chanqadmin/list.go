package chanqadmin

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// List selects the page that Queue.List returns.
type List struct {
	// After is the token of the previous page. Default: "", from the beginning.
	After PageToken
	// Limit is the most messages of a page. Default: 100. Range: 1 to 1,000 (MostListed).
	Limit int
	// Bodies includes the headers and bodies of the messages. Default: false.
	Bodies bool
}

// MostListed is the most messages of a page.
const MostListed = 1000

const defaultListed = 100

// Page is one page of the messages of a state.
type Page struct {
	Entries []Entry
	Next    PageToken // where the next page begins; "" for the last page
	Looked  int       // about how many messages were read to find the Entries
}

// PageToken encodes where a page begins, as text that is safe in a URL.
type PageToken string

// mostLooked is how many messages a List without bodies reads.
const mostLooked = 10_000

// List returns messages of a selection, one page per call, without claiming them: live messages in the order of claims, dead and done
// messages from the latest. Select.IDs must be nil: Get returns a message by its ID.
//
// It reads at most about 10,000 messages, whatever its Limit. Therefore it may return fewer leased messages than Limit, or none, if there
// are many ready ones, although there are more. The same holds with a Cause, a Type or a Key. Only an empty Page.Next means that there are no
// more. A change of a rare Cause reads less: see Purge.
//
// A page begins at a position in the order, even if the last message of the previous page no longer exists, so a later page costs the
// same as the first. Messages that are added, removed, or change their state or due time between two pages may be missed. Any other
// message is returned once, unless SQL Server has it locked at that moment.
//
// List costs one round trip, for live messages of an ordered queue two, and up to twelve if the messages are scattered among others.
// With Bodies there is one more per 400 messages of the page on SQL Server, per 1,000 elsewhere, unless only State and Before select
// dead or done messages.
func (q *Queue) List(ctx context.Context, s Select, l List) (Page, error) {
	if l.Limit == 0 {
		l.Limit = defaultListed
	}
	after, err := l.After.place(s.State)
	switch wrong := q.check(&s); {
	case wrong != nil:
		return Page{}, q.refuse("list", "%w", wrong)
	case s.IDs != nil:
		return Page{}, q.refuse("list", "Select.IDs has %d IDs: must be nil; Get returns a message by its ID", len(s.IDs))
	case s.State == StateDone && l.Bodies && s.walked():
		return Page{}, q.refuse("list", "List.Bodies is set with Select.Type or Key of done messages: must be false")
	case l.Limit < 1 || l.Limit > MostListed:
		return Page{}, q.refuse("list", "List.Limit is %d: must be from 1 to %d", l.Limit, MostListed)
	case err != nil:
		return Page{}, q.refuse("list", "%w", err)
	}
	if !s.Before.IsZero() {
		if bound := (sqlbatch.Place{At: max(0, s.Before.UnixMilli())}); after == nil || after.At > bound.At {
			after = &bound // after all messages that ended then or later: the latest are first, and no ID is smaller
		}
	}
	var found []Entry
	var end *sqlbatch.Place
	var looked int
	switch {
	case !s.State.live() && l.Bodies && !s.walked():
		found, err = q.entries(ctx, "list", q.sql.Peek(sqlbatch.State(s.State), l.Limit, after), withBodies)
		if len(found) == l.Limit {
			last := q.placeOf(&found[len(found)-1])
			end = &last
		}
		l.Bodies, looked = false, len(found) // the entries already contain them
	case s.State.live() && q.ordered():
		found, end, looked, err = q.lookBySeq(ctx, s, l, after)
	default:
		found, end, looked, err = q.look(ctx, s, l, after)
	}
	if err == nil && l.Bodies {
		found, err = q.fill(ctx, s.State, found)
	}
	switch {
	case err != nil:
		return Page{}, err
	case end == nil:
		return Page{Entries: found, Looked: looked}, nil
	}
	return Page{found, tokenOf(s.State, *end), looked}, nil
}

// fill reads headers and bodies. It omits messages that have ended meanwhile or are locked.
func (q *Queue) fill(ctx context.Context, s State, list []Entry) (filled []Entry, err error) {
	for chunk := range slices.Chunk(list, q.dialect.Traits().FindIDs) {
		ids := make([]chanq.ID, len(chunk))
		for i := range chunk {
			ids[i] = chunk[i].ID
		}
		found, err := collect(ctx, q, "list", q.sql.Bodies(sqlbatch.State(s), raw(ids)), func(rows *sql.Rows) (e Entry, err error) {
			var id, headers []byte
			err = rows.Scan(&id, &headers, &e.Body)
			copy(e.ID[:], id)
			e.Headers = headersOf(headers)
			return e, err
		})
		if err != nil {
			return nil, err
		}
		contents := make(map[chanq.ID]*Entry, len(found))
		for i := range found {
			contents[found[i].ID] = &found[i]
		}
		for _, e := range chunk {
			if c := contents[e.ID]; c != nil {
				e.Headers, e.Body, e.Size = c.Headers, c.Body, len(c.Body)
				filled = append(filled, e)
			}
		}
	}
	return filled, nil
}

// look returns the messages of a page, and the place of the last message read, or nil at the end of the queue. It first reads as many
// messages as the page has.
func (q *Queue) look(ctx context.Context, s Select, l List, after *sqlbatch.Place) (list []Entry, end *sqlbatch.Place, looked int, err error) {
	f := s.filter()
	step := mostLooked
	if s.State.live() { // its rows are found one by one
		step = MostListed
	}
	filtered := f != sqlbatch.Filter{} || s.State == StateLeased
	here := s.State.live() && s.Fingerprint != "" // it is compared here
	all := true                                   // the last message that was read is in the list, so that there might be no other
	for rows := l.Limit; looked < mostLooked || all && looked < 2*mostLooked; looked, rows = looked+rows, step {
		n := rows
		if f.Among = rows; filtered && !here {
			n = l.Limit - len(list)
		}
		page, err := q.outlines(ctx, s.State, n, after, f)
		if err != nil {
			return list, nil, looked, err
		}
		for i := range page {
			at := q.placeOf(&page[i])
			end, after = &at, &at
			if all = s.has(&page[i]); all {
				list = append(list, page[i])
			}
			if len(list) == l.Limit {
				return list, end, looked + rows, nil
			}
		}
		if len(page) == 0 || !filtered && len(page) < rows {
			return list, nil, looked + len(page), nil
		}
	}
	return list, end, looked, nil
}

// lookBySeq is look for the live messages of an ordered queue, in one step.
func (q *Queue) lookBySeq(ctx context.Context, s Select, l List, after *sqlbatch.Place) (list []Entry, end *sqlbatch.Place, looked int, err error) {
	var from sqlbatch.Place
	if after != nil {
		from = *after
	}
	if from.Upto, err = q.reach(ctx, "list", from.At, mostLooked); err != nil {
		return nil, nil, 0, err
	}
	if list, err = q.outlines(ctx, s.State, l.Limit, &from, s.filter()); err != nil {
		return list, nil, 0, err
	}
	looked = mostLooked
	switch {
	case len(list) == l.Limit:
		last := q.placeOf(&list[len(list)-1])
		end = &last
	case from.Upto < math.MaxInt64:
		end = &sqlbatch.Place{At: from.Upto}
	}
	return slices.DeleteFunc(list, func(e Entry) bool { return !s.has(&e) }), end, looked, nil
}

// outlines returns messages without headers and bodies.
func (q *Queue) outlines(ctx context.Context, s State, n int, after *sqlbatch.Place, f sqlbatch.Filter) ([]Entry, error) {
	return q.entries(ctx, "list", q.sql.Browse(sqlbatch.State(s), n, after, f), withSizes)
}

// reach returns the seq at which a step ends that begins after a given seq and reads a number of rows.
func (q *Queue) reach(ctx context.Context, op string, after int64, rows int) (upto int64, err error) {
	err = q.once(ctx, q.sql.Reach(after, rows), func(rows *sql.Rows) error { return rows.Scan(&upto) })
	return upto, q.fail(op, err)
}

// placeOf returns the place of a message in the order of its state.
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

// After returns the token of the page that begins after an entry of List or Get, in the order of its state.
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
