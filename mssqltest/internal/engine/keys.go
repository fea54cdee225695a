package engine

import (
	"bytes"
	"encoding/binary"
	"strings"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Keys are encoded so that the order of their bytes is the order of SQL: one part per column, none of which is a prefix of another.
const (
	keyNull  = 0x01
	keyValue = 0x02
)

// appendKey encodes one column of a key.
func appendKey(b []byte, v sqltype.Value) []byte {
	if v == nil {
		return append(b, keyNull)
	}
	return appendKeyValue(append(b, keyValue), v)
}

func appendKeyValue(b []byte, v sqltype.Value) []byte {
	switch v := v.(type) {
	case int64:
		return appendInt(b, v)
	case string:
		return appendBytes(b, []byte(sortKey(v)))
	case []byte:
		return appendBytes(b, withoutZeros(v))
	case sqltype.GUID:
		g := guidOrder(v)
		return append(b, g[:]...)
	case time.Time:
		return appendInt(b, ticks(v))
	}
	panic("engine: no key for this type")
}

func appendInt(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(n)^1<<63)
}

// appendBytes escapes zeros, so that a string sorts before its extensions.
func appendBytes(b, v []byte) []byte {
	for _, c := range v {
		b = append(b, c)
		if c == 0 {
			b = append(b, 0xFF)
		}
	}
	return append(b, 0, 0)
}

// guidOrder puts the bytes of a uniqueidentifier in the order in which SQL Server compares them: the last group first.
func guidOrder(g sqltype.GUID) (o [16]byte) {
	for i, at := range [16]int{10, 11, 12, 13, 14, 15, 8, 9, 6, 7, 4, 5, 0, 1, 2, 3} {
		o[i] = g[at]
	}
	return o
}

// ticks counts 100 ns from the year 1.
func ticks(t time.Time) int64 {
	return (t.Unix()+62135596800)*10_000_000 + int64(t.Nanosecond()/100)
}

// successor returns the first key above every key that begins with prefix, and whether there is one.
func successor(prefix string) (string, bool) {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0xFF {
			b[i]++
			return string(b[:i+1]), true
		}
	}
	return "", false
}

// withoutZeros returns the part of a binary that is compared: zeros at the end do not count, so that 0x and 0x00 are equal ("Comparing
// binary 0x and 0x00 turns out to be equal on SQL Server", dba.stackexchange.com/questions/48660).
func withoutZeros(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

// sortKey returns the form of a string that is compared: in the only collation here, neither case nor blanks at the end count.
func sortKey(s string) string { return strings.ToLower(strings.TrimRight(s, " ")) }

func compareText(a, b string) int {
	if a == b {
		return 0
	}
	return strings.Compare(sortKey(a), sortKey(b))
}
