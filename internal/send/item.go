package send

import (
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// Item is a message to be stored. Size of its Place is the size that it takes in the buffer.
type Item struct {
	batch.Place

	Row    sqlbatch.Row
	Given  bool  // the caller chose the ID, so it might exist already
	Call   *Call // the call that waits for it; nil: it is kept if it cannot be stored
	Index  int   // in Call
	Origin any   // of an item without a Call: the producer's message

	duplicate *Receipt // of the message that it duplicates, or nil. To be read when its outcome is no error
}

// Receipt reports how a row was stored.
type Receipt struct {
	ID        [16]byte // of the message in the queue if Duplicate
	Duplicate bool     // a message with its dedup key was in the queue
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
// one), and no dedup key or chosen ID twice. It ends before an item that follows a message with a
// dedup key and the same order key: that message might be stored by a second INSERT, because it
// duplicated a message that left the queue at this moment.
func Cut[I any](items []I, rows, bytes int, of func(*I) (row *sqlbatch.Row, given bool)) int {
	var keys, closed map[string]bool // closed: by order key
	var ids map[[16]byte]bool
	size := 0
	for i := range items {
		row, given := of(&items[i])
		size += len(row.Body) + len(row.Headers)
		if i == rows || i > 0 && size > bytes || row.Key != "" && keys[row.Key] || given && ids[row.ID] ||
			closed[row.OrderKey] {
			return i
		}
		if row.Key != "" && row.OrderKey != "" {
			closed = with(closed, row.OrderKey)
		}
		if row.Key != "" {
			keys = with(keys, row.Key)
		}
		if given {
			ids = with(ids, row.ID)
		}
	}
	return len(items)
}

// with adds a key to a set. It makes the set for the first key.
func with[K comparable](set map[K]bool, key K) map[K]bool {
	if set == nil {
		set = map[K]bool{}
	}
	set[key] = true
	return set
}
