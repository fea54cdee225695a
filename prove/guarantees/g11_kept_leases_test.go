package guarantees

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// The memory that a kept lease retains.
var keptLeases = []test{
	{"G11_ALeaseOfAConsumerKeepsItsOwnBodyAlone", func(w *world) { keepsItsOwn(w, fromConsumer) }},
	{"G11_ALeaseKeepsLittleMoreThanABodyOfBytes", func(w *world) {
		keepsLittle(w, func(b []byte) []byte { return b }, func(b []byte) *byte { return &b[0] })
	}},
	{"G11_ALeaseKeepsLittleMoreThanABodyOfText", func(w *world) {
		keepsLittle(w, func(b []byte) string { return string(b) }, func(s string) *byte { return unsafe.StringData(s) })
	}},
}

// weighed is a body whose value is larger than its encoding.
type weighed struct {
	Number int
	weight []byte
}

// weighing is a codec that counts the decoded bodies that are still in memory.
type weighing struct {
	weight int
	alive  atomic.Int64
}

func (*weighing) Encode(body any) ([]byte, error) {
	return fmt.Append(nil, body.(weighed).Number), nil
}

func (c *weighing) Decode(data []byte, body any) error {
	b := body.(*weighed)
	if _, err := fmt.Sscan(string(data), &b.Number); err != nil {
		return err
	}
	b.weight = make([]byte, c.weight)
	c.alive.Add(1)
	runtime.AddCleanup(&b.weight[0], func(alive *atomic.Int64) { alive.Add(-1) }, &c.alive)
	return nil
}

// taking takes n leases, and acks and drops all except one.
type taking[T any] func(w *world, q *chanq.Queue[T], n int) *chanq.Lease[T]

func fromConsumer(w *world, q *chanq.Queue[weighed], n int) *chanq.Lease[weighed] {
	return keepOne(w, q, n)
}

// keepOne keeps one of the first n leases of a consumer, which keeps running.
func keepOne[T any](w *world, q *chanq.Queue[T], n int) (kept *chanq.Lease[T]) {
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for i := range n {
		l := testdb.Take(w, c, 1)[0]
		if i == n/2 {
			kept = l
		} else {
			require.NoError(w, l.Ack())
		}
	}
	require.NoError(w, c.Flush(w.Soon()))
	return kept
}

func keepsItsOwn(w *world, take taking[weighed]) {
	const count = 200
	codec := &weighing{weight: 1 << 10}
	q := testdb.QueueOf[weighed](w, "work", chanq.Config{Codec: codec})
	ms := make([]chanq.Message[weighed], count)
	for i := range ms {
		ms[i].Body.Number = i
	}
	testdb.Send(w, q, ms...)
	kept := take(w, q, count)
	collected := func() bool {
		runtime.GC()
		return codec.alive.Load() <= 1
	}
	w.Eventually("all bodies except that of the kept lease are collected", collected)
	require.EqualValues(w, 1, codec.alive.Load(), "the kept body is counted, so the test can count")
	require.NoError(w, kept.Ack())
	w.Eventually("an ack retains nothing more", collected)
	require.NotNil(w, kept.Body.weight)
	runtime.KeepAlive(kept)
}

// keepsLittle keeps some leases of one large claim with bodies of several sizes, and checks how
// much of the other bodies and leases stays in memory.
func keepsLittle[T any](w *world, of func([]byte) T, at func(T) *byte) {
	const (
		count  = 400
		beside = 64 << 10
	)
	sizes := []int{100, 1500, 3000, 40_000, 10, 8000, 500}
	q := testdb.QueueOf[T](w, "work", chanq.Config{})
	ms := make([]chanq.Message[T], count)
	for i := range ms {
		ms[i].Body = of(bytes.Repeat([]byte{'x'}, sizes[i%len(sizes)]))
	}
	testdb.Send(w, q, ms...)
	var noted, alive atomic.Int64 // bytes
	note := func(n int) int { noted.Add(int64(n)); alive.Add(int64(n)); return n }
	drop := func(n int) { alive.Add(int64(-n)) }
	var kept []*chanq.Lease[T]
	own := 0
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for i := range count {
		l := testdb.Take(w, c, 1)[0]
		size := sizes[i%len(sizes)]
		runtime.AddCleanup(l, drop, note(int(unsafe.Sizeof(*l))))
		runtime.AddCleanup(at(l.Body), drop, note(size))
		if i%57 == 3 {
			kept, own = append(kept, l), own+size
		}
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Flush(w.Soon()))
	most := int64(own + len(kept)*beside)
	require.Greater(w, noted.Load(), 2*most, "most of it must be collected")
	w.Eventually("little is retained in addition to the bodies of the kept leases", func() bool {
		runtime.GC()
		return alive.Load() <= most
	})
	require.GreaterOrEqual(w, alive.Load(), int64(own))
	runtime.KeepAlive(kept)
}
