package postgres

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// Arguments are strings that PostgreSQL reads as arrays, integers and []byte, which every driver can send without
// support for arrays.

// array is an array literal under construction.
type array struct {
	b     strings.Builder // empty while all values are zero
	zeros int             // values that are not in b
	size  int             // of b, about
}

func newArray(elements, width int) array { return array{size: elements*(width+1) + 2} }

// next begins the next value.
func (a *array) next() {
	if a.b.Len() > 0 {
		a.b.WriteByte(',')
		return
	}
	a.b.Grow(a.size)
	a.b.WriteString("{" + strings.Repeat("0,", a.zeros))
}

func (a *array) id(id [16]byte) {
	a.next()
	var text [32]byte
	hex.Encode(text[:], id[:])
	a.b.Write(text[:])
}

func (a *array) number(n int64) {
	if n == 0 && a.b.Len() == 0 {
		a.zeros++
		return
	}
	a.next()
	var text [20]byte
	a.b.Write(strconv.AppendInt(text[:0], n, 10))
}

// numberOrNull appends NULL for 0.
func (a *array) numberOrNull(n int64) {
	if n != 0 {
		a.number(n)
		return
	}
	a.next()
	a.b.WriteString("NULL")
}

func (a *array) bytes(s string) {
	a.next()
	a.b.WriteString(`"\\x` + hex.EncodeToString([]byte(s)) + `"`)
}

func (a *array) literal() string {
	if a.b.Len() == 0 {
		return "{" + strings.TrimSuffix(strings.Repeat("0,", a.zeros), ",") + "}"
	}
	a.b.WriteByte('}')
	return a.b.String()
}

// orEmpty returns the literal, or {} if all values are zero: unnest fills a shorter array up with NULL, and most
// batches have no delay, key or headers.
func (a *array) orEmpty() string {
	if a.b.Len() == 0 {
		return "{}"
	}
	return a.literal()
}

// blob has values of any length, one after the other, with the start (from 1) and length of each. All are in one bytea,
// because a bytea in an array literal is written in hex and takes twice the bytes.
type blob struct {
	data            []byte
	starts, lengths array
}

func newBlob(elements, bytes int) blob {
	return blob{
		data:   make([]byte, 0, bytes),
		starts: newArray(elements, 7), lengths: newArray(elements, 5),
	}
}

// next begins the next value, of which n bytes are appended to data.
func (b *blob) next(n int) {
	b.starts.number(int64(len(b.data) + 1))
	b.lengths.number(int64(n))
}

// place returns starts and lengths, both {} if every value is empty.
func (b *blob) place() (starts, lengths string) {
	if b.lengths.b.Len() == 0 {
		return "{}", "{}"
	}
	return b.starts.literal(), b.lengths.literal()
}

func packIDs(ids [][16]byte) string {
	a := newArray(len(ids), 32)
	for _, id := range sortedBy(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }) {
		a.id(id)
	}
	return a.literal()
}

func packKeys(keys []string) string {
	a := newArray(len(keys), 32)
	for _, s := range keys {
		a.bytes(s)
	}
	return a.literal()
}

// validText returns a value that a text column accepts: valid UTF-8 without NUL. An error text can be any bytes, and
// must not keep a message from being released.
func validText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "�"), "�")
}

// consumerText returns a consumer's name or host in the form of the database.
func consumerText(s string) string {
	s = validText(s)
	if len(s) > sqlbatch.MaxConsumerText {
		s = strings.ToValidUTF8(s[:sqlbatch.MaxConsumerText], "")
	}
	return s
}

func compareLeases(a, b sqlbatch.Item) int {
	return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Fence, b.Fence))
}

// sortedBy returns the list if it is in order, or else a sorted copy.
func sortedBy[E any](list []E, order func(a, b E) int) []E {
	if slices.IsSortedFunc(list, order) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, order)
	return list
}

func hexID(id [16]byte) string { return hex.EncodeToString(id[:]) }
