package sqlbatch

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// Arguments are strings that PostgreSQL reads as arrays, integers and []byte:
// what every driver can send without knowing of arrays.

// postgresArray is an array literal under construction.
type postgresArray struct {
	b       []byte
	nonzero bool
}

func newPostgresArray(elements, width int) postgresArray {
	return postgresArray{b: append(make([]byte, 0, elements*(width+1)+2), '{')}
}

func (a *postgresArray) comma() {
	if len(a.b) > 1 {
		a.b = append(a.b, ',')
	}
}

func (a *postgresArray) id(id [16]byte) {
	a.comma()
	a.b = hex.AppendEncode(a.b, id[:])
	a.nonzero = true
}

func (a *postgresArray) number(n int64) {
	a.comma()
	a.b = strconv.AppendInt(a.b, n, 10)
	a.nonzero = a.nonzero || n != 0
}

func (a *postgresArray) bytes(s string) {
	a.comma()
	a.b = append(a.b, `"\\x`...)
	a.b = hex.AppendEncode(a.b, []byte(s))
	a.b = append(a.b, '"')
	a.nonzero = true
}

func (a *postgresArray) literal() string { return string(append(a.b, '}')) }

// orEmpty is the literal, but {} for nothing but zeros: unnest fills a shorter
// array up with NULL, and most batches have no delay, key or headers.
func (a *postgresArray) orEmpty() string {
	if !a.nonzero {
		return "{}"
	}
	return a.literal()
}

// postgresBlob is values of any length, one after the other, and where each
// begins (from 1) and how long it is: all in one bytea, because a bytea in an
// array literal is written in hex and twice as long.
type postgresBlob struct {
	data            []byte
	starts, lengths postgresArray
}

func newPostgresBlob(elements, bytes int) postgresBlob {
	return postgresBlob{
		data:   make([]byte, 0, bytes),
		starts: newPostgresArray(elements, 7), lengths: newPostgresArray(elements, 5),
	}
}

// next begins the next value, of which n bytes are appended to data.
func (b *postgresBlob) next(n int) {
	b.starts.number(int64(len(b.data) + 1))
	b.lengths.number(int64(n))
}

// place is starts and lengths, both {} if every value is empty.
func (b *postgresBlob) place() (starts, lengths string) {
	if !b.lengths.nonzero {
		return "{}", "{}"
	}
	return b.starts.literal(), b.lengths.literal()
}

func postgresIDs(ids [][16]byte) string {
	a := newPostgresArray(len(ids), 32)
	for _, id := range sortedBy(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }) {
		a.id(id)
	}
	return a.literal()
}

func postgresKeys(keys []string) string {
	a := newPostgresArray(len(keys), 32)
	for _, s := range keys {
		a.bytes(s)
	}
	return a.literal()
}

// postgresText is what a text column takes: without NUL, valid UTF-8. An error
// text may be any bytes, and must not keep a message from being given back.
func postgresText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "�"), "�")
}

// postgresMemberText is a member's name or host as the database takes it.
func postgresMemberText(s string) string {
	s = postgresText(s)
	if len(s) > MaxMemberText {
		s = strings.ToValidUTF8(s[:MaxMemberText], "")
	}
	return s
}

func compareLeases(a, b Item) int {
	return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Fence, b.Fence))
}

// sortedBy is list in order: itself, if it is, or a sorted copy.
func sortedBy[E any](list []E, order func(a, b E) int) []E {
	if slices.IsSortedFunc(list, order) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, order)
	return list
}

func postgresID(id [16]byte) string { return hex.EncodeToString(id[:]) }
