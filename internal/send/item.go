package send

import (
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// Item is a message to be stored. Size of its Place is the size that it takes in the buffer.
type Item struct {
	batch.Place

	ID     [16]byte
	Body   []byte
	More   *sqlbatch.Row // the row; nil: it has only an ID and a body, and Given is false
	Origin any           // the *Call that waits for it; or the producer's message, kept if it cannot be stored
	Index  int32         // in the Call
	Given  bool          // the caller chose the ID, so it might exist already

	duplicate *Receipt // of the message that it met, or nil. To be read when its outcome is no error
}

// Rows is memory for the rows of items that are added together.
type Rows []sqlbatch.Row

// NewItem returns an item of a row. most is how many items are added together, or a guess.
func (r *Rows) NewItem(row *sqlbatch.Row, given bool, most int) Item {
	item := Item{ID: row.ID, Body: row.Body, Given: given}
	if given || !row.Plain() {
		if len(*r) == cap(*r) {
			*r = make(Rows, 0, max(1, most))
		}
		*r = append(*r, *row)
		item.More = &(*r)[len(*r)-1]
		item.More.Body = nil // it would keep the bodies of all of them as long as one of them is there
	}
	return item
}

// plain is the row of items without More, except for its ID and body.
var plain sqlbatch.Row

// rest returns the row of an item. Its ID and body might be missing.
func (i *Item) rest() *sqlbatch.Row {
	if i.More == nil {
		return &plain
	}
	return i.More
}

// Row returns the row of an item.
func (i *Item) Row() sqlbatch.Row {
	row := *i.rest()
	row.ID, row.Body = i.ID, i.Body
	return row
}

// Key returns the key of the items whose order matters.
func (i *Item) Key() string {
	row := i.rest()
	if row.OnDuplicate > sqlbatch.KeepQueued {
		return row.Key // the later one of two messages must win
	}
	return row.OrderKey
}

// Receipt reports how a row was stored.
type Receipt struct {
	ID        [16]byte // of the message in the queue if Duplicate or Replaced
	Duplicate bool     // a message with its dedup key was in the queue, and is as it was
	Replaced  bool     // that message has its contents now
}

// Outcome is the outcome of an item.
type Outcome struct {
	Receipt
	Err     error
	Unknown bool // it might be stored despite Err
	known   bool
}

// Call is one send that waits for its items. The Sender's mu guards it after its items were added.
type Call struct {
	Outcomes []Outcome
	open     int // items without an outcome
	Done     chan struct{}
}

// NewCall returns a call of n items.
func NewCall(n int) *Call {
	return &Call{Outcomes: make([]Outcome, n), open: n, Done: make(chan struct{})}
}

// Resolve records the outcome of an item, unless it has one.
func (c *Call) Resolve(i int, o Outcome) {
	if c.Outcomes[i].known {
		return
	}
	o.known = true
	c.Outcomes[i] = o
	if c.open--; c.open == 0 {
		close(c.Done)
	}
}

// Cut returns how many of items fit one statement: no more than rows and bytes allow (at least
// one), no dedup key or chosen ID twice, and one OnDuplicate. It ends before an item that follows a
// message with a dedup key and the same order key: that message might be stored by a second INSERT, because it
// duplicated a message that left the queue at this moment. The body of a row is not used, but body, its size.
func Cut[I any](items []I, rows, bytes int, of func(*I) (row *sqlbatch.Row, body int, given bool)) int {
	var keys, closed map[string]bool // closed: by order key
	var ids map[[16]byte]bool
	var keyed *sqlbatch.Row
	size := 0
	for i := range items {
		row, body, given := of(&items[i])
		size += body + len(row.Headers)
		if i == rows || i > 0 && size > bytes || row.Key != "" && keys[row.Key] || given && ids[row.ID] ||
			closed[row.OrderKey] || row.Key != "" && keyed != nil &&
			(row.OnDuplicate != keyed.OnDuplicate || row.DebounceMax != keyed.DebounceMax) {
			return i
		}
		if row.Key != "" && row.OrderKey != "" {
			closed = with(closed, row.OrderKey, true)
		}
		if row.Key != "" {
			keyed, keys = row, with(keys, row.Key, true)
		}
		if given {
			ids = with(ids, row.ID, true)
		}
	}
	return len(items)
}

// with adds an entry to a map. It makes the map for the first one.
func with[K comparable, V any](m map[K]V, key K, v V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[key] = v
	return m
}
