package sqlserver

import (
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// SQL Server receives a list of items as one varbinary(8000) of records of fixed size, integers big-endian as CONVERT reads them.
// One parameter means one plan for every count, no table function whose row count the optimizer guesses, and only the cost of an
// empty call on the client.
const (
	itemBytes       = 16 + 8                 // id, fence
	nackBytes       = 16 + 8 + 8 + 6 + 4     // id, fence, delay, place of the error text, time of the handler
	deadLetterBytes = 16 + 8 + 6 + 1 + 8 + 4 // id, fence, place of the error text, twice the cause and the attempts to refund, fingerprint, time of the handler
	idBytes         = 16
	keyBytes        = 4 + 1   // place of a key among the keys
	listBytes       = 7999    // the longest list, below where varbinary(8000) ends
	listRecords     = 20 * 20 // as many as the statements count up to
	dayMillis       = 24 * 60 * 60 * 1000
	nameUnits       = 200 // of nvarchar(200), for a consumer's name or host
)

func packItem(b []byte, i sqlbatch.Item) []byte {
	b = append(b, i.ID[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(i.Fence))
}

// packSpan writes milliseconds as whole days and the rest: DATEADD accepts an int, which 25 days of milliseconds overflow.
func packSpan(b []byte, ms int64) []byte {
	days, rest := span(ms)
	b = binary.BigEndian.AppendUint32(b, uint32(days))
	return binary.BigEndian.AppendUint32(b, uint32(rest))
}

func span(ms int64) (days, rest int32) {
	ms = max(ms, 0)
	return int32(ms / dayMillis), int32(ms % dayMillis)
}

// packHeads writes the heads as spans since 1970 and IDs, from the lowest priority up.
func packHeads(f sqlbatch.Heads) []byte {
	b := make([]byte, 0, headBytes*len(f))
	for _, h := range f {
		b = append(packSpan(b, min(h.Due, noEnd)), h.ID[:]...)
	}
	return b
}

func packItems(items []sqlbatch.Item) []byte {
	b := make([]byte, 0, itemBytes*len(items))
	for _, i := range build.InOrder(items, func(a, b sqlbatch.Item) int { return build.CompareIDs(a.ID, b.ID) }) {
		b = packItem(b, i)
	}
	return b
}

func packNacks(items []sqlbatch.NackItem) (list, errors []byte) {
	t := texts{}
	list = make([]byte, 0, nackBytes*len(items))
	for _, i := range build.InOrder(items, func(a, b sqlbatch.NackItem) int { return build.CompareIDs(a.ID, b.ID) }) {
		list = packItem(list, i.Item)
		list = packSpan(list, build.Milliseconds(i.Delay))
		list = packTook(t.add(list, i.Error), i.Took)
	}
	return list, t
}

// packTook writes milliseconds.
func packTook(b []byte, took time.Duration) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(min(build.Milliseconds(took), math.MaxInt32)))
}

func packDeadLetters(items []sqlbatch.DeadLetterItem) (list, errors []byte) {
	t := texts{}
	list = make([]byte, 0, deadLetterBytes*len(items))
	for _, i := range build.InOrder(items, func(a, b sqlbatch.DeadLetterItem) int { return build.CompareIDs(a.ID, b.ID) }) {
		list = packItem(list, i.Item)
		list = t.add(list, i.Error)
		list = append(list, byte(i.Cause)<<1|flag(i.Uncounted))
		list = packTook(binary.BigEndian.AppendUint64(list, uint64(i.Fingerprint)), i.Took)
	}
	return list, t
}

func packIDs(ids [][16]byte) []byte {
	b := make([]byte, 0, idBytes*len(ids))
	for _, id := range build.InOrder(ids, build.CompareIDs) {
		b = append(b, id[:]...)
	}
	return b
}

// packKeys concatenates the keys and lists where each begins and how long it is.
func packKeys(keys []string) (list, all []byte) {
	list = make([]byte, 0, keyBytes*len(keys))
	all = []byte{}
	for _, k := range build.InOrder(keys, strings.Compare) {
		list = binary.BigEndian.AppendUint32(list, uint32(len(all)))
		list = append(list, byte(len(k)))
		all = append(all, k...)
	}
	return list, all
}

// texts joins error texts, as UTF-16LE, the encoding of nvarchar. They are sent as bytes because SUBSTRING of an nvarchar counts
// characters or UTF-16 units, depending on the database's collation.
type texts []byte

// add appends the place of s to list: offset and length in bytes, 0 for none.
func (t *texts) add(list []byte, s string) []byte {
	start := len(*t)
	// A run of invalid bytes becomes one character before the text is cut, since the cut would find no beginning of a character in it.
	for _, r := range build.Cut(strings.ToValidUTF8(s, "\uFFFD")) {
		if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
			*t = binary.LittleEndian.AppendUint16(*t, uint16(a))
			r = b
		}
		*t = binary.LittleEndian.AppendUint16(*t, uint16(r))
	}
	list = binary.BigEndian.AppendUint32(list, uint32(start))
	return binary.BigEndian.AppendUint16(list, uint16(len(*t)-start))
}

// cutUnits shortens s to n UTF-16 units without splitting a character.
func cutUnits(s string, n int) string {
	for i, r := range s {
		n--
		if r > 0xFFFF {
			n--
		}
		if n < 0 {
			return s[:i]
		}
	}
	return s
}
