package suite

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
	"github.com/stretchr/testify/require"
)

// These targets pack their input and read it back as the statements do, with readers that share no
// code with the packers.

// FuzzRows packs messages and has the engine's reader read them back.
func FuzzRows(f *testing.F, d sqlbatch.Dialect, read func(*testing.T, sqlbatch.Statement) []sqlbatch.Row) {
	seeds(f)
	q := d.Queue(sqlbatch.Names{Queue: "orders"})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := source{data}
		var rows, want []sqlbatch.Row
		for n := 1 + s.byte()%8; n > 0; n-- {
			rows = append(rows, s.row())
			want = append(want, rounded(rows[len(rows)-1]))
		}
		for _, st := range []sqlbatch.Statement{q.Enqueue(rows), q.EnqueueNew(rows)} {
			require.ElementsMatch(t, want, read(t, st))
		}
	})
}

// End is what a settle of any kind stores for a lease.
type End struct {
	sqlbatch.Item
	Delay     int64
	Took      int64 // ms
	Text      string
	Uncounted bool
	Cause     sqlbatch.Cause
	Print     int64 // fingerprint
}

// FuzzSettles packs settles and has the engine's reader read them back: "items", "nacks" or
// "dead-letters". text is an error as the database stores it.
func FuzzSettles(f *testing.F, d sqlbatch.Dialect, read func(t *testing.T, what string, st sqlbatch.Statement) []End, text func(string) string) {
	seeds(f)
	q := d.Queue(sqlbatch.Names{Queue: "orders"})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := source{data}
		var items []sqlbatch.Item
		var nacks []sqlbatch.NackItem
		var deadLetters []sqlbatch.DeadLetterItem
		var plain, nacked, deadLettered []End
		for n := 1 + s.byte()%12; n > 0; n-- {
			item, delay, uncounted, cause := s.item(), s.span(), s.byte()%2 == 0, s.text()
			why, print, took := sqlbatch.Cause(1+s.byte()%7), s.number()>>(s.byte()%2*63), time.Duration(s.byte())*time.Hour
			items = append(items, item)
			nacks = append(nacks, sqlbatch.NackItem{Item: item, Delay: delay, Took: took, Error: cause})
			deadLetters = append(deadLetters, sqlbatch.DeadLetterItem{Item: item, Took: took, Error: cause, Cause: why, Fingerprint: print, Uncounted: uncounted})

			kept := build.Cut(text(cause))
			plain = append(plain, End{Item: item})
			nacked = append(nacked, End{Item: item, Delay: build.Milliseconds(delay), Took: took.Milliseconds(), Text: kept})
			deadLettered = append(deadLettered, End{Item: item, Took: took.Milliseconds(), Text: kept, Cause: why, Print: print, Uncounted: uncounted})
		}
		for _, st := range []sqlbatch.Statement{q.Ack(items), q.Archive(items), q.Release(Releases(items)), q.Extend(Consumer, items, time.Minute)} {
			require.ElementsMatch(t, plain, read(t, "items", st))
		}
		require.ElementsMatch(t, nacked, read(t, "nacks", q.Nack(nacks)))
		require.ElementsMatch(t, deadLettered, read(t, "dead-letters", q.DeadLetter(deadLetters)))
	})
}

// source makes values from the bytes of a fuzz input.
type source struct{ data []byte }

func (s *source) next(n int) []byte {
	out := make([]byte, n)
	s.data = s.data[copy(out, s.data):]
	return out
}

func (s *source) byte() int     { return int(s.next(1)[0]) }
func (s *source) number() int64 { return int64(binary.BigEndian.Uint64(s.next(8)) >> 1) }
func (s *source) id() [16]byte  { return [16]byte(s.next(16)) }
func (s *source) span() (d time.Duration) {
	return time.Duration(s.number() % int64(sqlbatch.MaxDelay+1))
}

func (s *source) item() sqlbatch.Item {
	return sqlbatch.Item{ID: s.id(), Fence: s.number()}
}

// text returns any bytes, seldom longer than the limit of an error.
func (s *source) text() string {
	n := s.byte()
	if n == 255 {
		return strings.Repeat(string(s.next(3)), sqlbatch.MaxError)
	}
	return string(s.next(min(n, len(s.data))))
}

func (s *source) row() sqlbatch.Row {
	r := sqlbatch.Row{ID: s.id(), Priority: int8(s.byte()%4 - 1), Delay: s.span(), TTL: s.span()}
	if n := s.byte() % (sqlbatch.MaxKey + 1); n > 0 {
		r.Key = strings.ToValidUTF8(strings.ReplaceAll(string(s.next(min(n, len(s.data)))), "\x00", ""), "")
	}
	for _, c := range s.next(s.byte() % (sqlbatch.MaxType + 1)) {
		r.Type += string(rune(' ' + c%95))
	}
	if n := s.byte(); n > 0 {
		r.Headers = s.next(n)
	}
	r.Body = s.next(s.byte() * (1 + s.byte()%3))
	return r
}

// rounded returns a row as a database stores it.
func rounded(r sqlbatch.Row) sqlbatch.Row {
	r.Delay = time.Duration(build.Milliseconds(r.Delay)) * time.Millisecond
	r.TTL = time.Duration(build.Milliseconds(r.TTL)) * time.Millisecond
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
	return r
}

// seeds adds inputs of all kinds: without fuzzing, the targets run with these.
func seeds(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\xff", 500)))
	f.Add([]byte(strings.Repeat("ab'\"\\{},$\x00é😀", 60)))
	long := make([]byte, 3000)
	for i := range long {
		long[i] = byte(i * 7)
	}
	f.Add(long)
	random := rand.NewChaCha8([32]byte{})
	for n := range 100 {
		data := make([]byte, 30*n)
		_, _ = random.Read(data)
		f.Add(data)
	}
}

// Part returns substring(b FROM at FOR length).
func Part(b []byte, at, length int64) []byte {
	if length == 0 {
		return []byte{}
	}
	return b[at-1 : at-1+length]
}
