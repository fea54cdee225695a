package table

import "database/sql"

// Row is the contents of a message, its bytes copied.
type Row struct {
	Priority         int8
	Attempts, Lapses int // including the delivery that follows
	Enqueued, Due    int64
	Expires          sql.NullInt64
	Key, Type        []byte
	Headers, Body    []byte
	OrderKey         string // "": the message has none
	Unread           error  // why Key, Type, Headers and Body could not be read
}

// Bytes returns the size of the contents in memory.
func (r *Row) Bytes() int { return len(r.Body) + len(r.Headers) }

// Chunk is how many bytes of short values share an allocation of an Arena. Values longer than Alone have their own. A
// message that a caller keeps for long therefore keeps few of its neighbours in memory.
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
