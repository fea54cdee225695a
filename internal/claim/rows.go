package claim

import (
	"database/sql"
	"strings"
	"time"

	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// Row is the contents of a message, its bytes copied.
type Row struct {
	Priority           int8
	Attempts, Lapses   int // those of the delivery that follows, Attempts included
	Enqueued, Due      int64
	Expires            sql.NullInt64
	Key, Headers, Body []byte
	OrderKey           string // "": the message has none
	Unread             error  // why Key, Headers and Body could not be read
}

// Chunk is how many bytes of short values share an allocation of an Arena. Values longer than Alone have their own. So a message that
// a caller keeps for long keeps little of its neighbours in memory.
const (
	Chunk = 8 << 10
	Alone = Chunk / 4
)

// Arena keeps copies of bytes that a driver will overwrite.
type Arena []byte

// Keep returns a copy of b; nil for nil.
func (a *Arena) Keep(b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) > Alone:
		return append(make([]byte, 0, len(b)), b...)
	case *a == nil, len(b) > cap(*a)-len(*a):
		*a = make([]byte, 0, Chunk)
	}
	n := len(*a)
	*a = append(*a, b...)
	return (*a)[n:len(*a):len(*a)]
}

// answer collects the rows of a read, a look or a fetch. Nothing of it may be used before the statement has succeeded.
type answer struct {
	order.Answer
	bytes int // of bodies
	last  Row // the last row, without what is read of it
	arena Arena

	columns                                            []any
	id, key, headers, body, orderKey                   sql.RawBytes
	priority, fence, attempts, lapses, crashes         int64
	expired, enqueued, due                             int64
	size, slot, seq, wait, holder, held, given, locked int64
	expires, lives                                     sql.NullInt64
}

// scan reads one row. The last one has no ID: see sqlbatch's Read.
func (a *answer) scan(rows *sql.Rows) error {
	if a.columns == nil {
		a.columns = []any{
			&a.id, &a.priority, &a.fence, &a.attempts, &a.lapses, &a.expired, &a.enqueued, &a.due, &a.expires, &a.key, &a.headers, &a.body,
			&a.size, &a.slot, &a.seq, &a.orderKey, &a.wait, &a.lives, &a.holder, &a.held, &a.crashes, &a.given, &a.locked,
		}
	}
	if err := rows.Scan(a.columns...); err != nil {
		return err
	}
	if a.id == nil {
		a.Walked, a.Redriven, a.Drawn, a.Upto = a.priority != 0, a.enqueued, a.fence, a.due
		for _, sender := range strings.Fields(string(a.body)) {
			if sender == sqlbatch.UnknownSender {
				a.Renamed = true
			} else {
				a.Senders = append(a.Senders, sender)
			}
		}
		return nil
	}
	row := order.Row{
		Seq: a.seq, Slot: int(a.slot), Fence: a.fence, Wait: time.Duration(a.wait) * time.Millisecond, Lives: time.Duration(a.lives.Int64) * time.Millisecond,
		Held: a.held != 0, Holder: order.Holder(a.holder), Lapses: int(a.lapses), Crashes: int(a.crashes), Lock: order.Lock(a.locked),
	}
	if a.expired != 0 {
		row.Lives = -1
	}
	copy(row.ID[:], a.id)
	if row.Keyed = a.orderKey != nil; row.Keyed {
		row.Key = string(a.orderKey)
	} else {
		row.Key = string(a.id)
	}
	in := Row{
		Priority: int8(a.priority), Attempts: int(a.attempts), Lapses: int(a.lapses), Enqueued: a.enqueued, Due: a.due, Expires: a.expires,
	}
	if row.Keyed {
		in.OrderKey = row.Key
	}
	if a.last = in; a.given != 0 {
		in.Key, in.Headers, in.Body = a.arena.Keep(a.key), a.arena.Keep(a.headers), a.arena.Keep(a.body)
		row.Contents, row.Bytes = &in, len(in.Body)+len(in.Headers)
		a.bytes += len(in.Body)
	}
	a.Rows = append(a.Rows, row)
	return nil
}
