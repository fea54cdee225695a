package guarantees

import (
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Large claims, whose bodies are decoded while the next claim runs.
var largeClaims = []test{
	{"G10_AClaimDuringTheDecodingOfItsPredecessorIsDeliveredAfterIt", claimBesideDecoding},
	{"G06_StopReleasesWhatIsBeingDecoded", stopWhileDecoding},
}

const (
	largeClaim = 256 // the smallest claim that is delivered during the next one
	beforeEnd  = 50  // when this many bodies are left, readers have nearly the whole claim
)

// slowReader is a codec that calls do near the end of large claims until do returns true.
type slowReader struct {
	begun, asks, read atomic.Int32 // the number of claims, the size of the last one, and the bodies decoded since then
	enough            atomic.Bool
	do                func() (enough bool)
}

func (c *slowReader) Encode(body any) ([]byte, error) { return []byte(body.(note).Text), nil }

func (c *slowReader) Decode(data []byte, body any) error {
	if asks := c.asks.Load(); c.read.Add(1) == asks-beforeEnd && asks >= largeClaim && !c.enough.Load() {
		c.enough.Store(c.do())
	}
	body.(*note).Text = string(data)
	return nil
}

// sees makes the codec track the claims of a queue.
func (c *slowReader) sees(w *world, queue string) {
	st := w.Statements(queue)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claims(op, st) {
			c.asks.Store(int32(asked(op)))
			c.read.Store(0)
			c.begun.Add(1)
		}
		return faultdb.Fault{}
	})
}

func claimBesideDecoding(w *world) {
	const count = 3000
	codec := &slowReader{}
	// If a busy machine delays the readers, there is no room for another claim.
	codec.do = func() (beside bool) {
		before, patience := codec.begun.Load(), time.Now().Add(time.Second)
		for codec.begun.Load() == before && time.Now().Before(patience) {
			<-time.After(time.Millisecond)
		}
		return codec.begun.Load() > before
	}
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
	testdb.Send(w, q, notes(numbers(count)...)...)
	codec.sees(w, "work")
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	// The messages are settled at the end: slow settles would pause claims.
	var taken []*chanq.Lease[note]
	w.Eventually("a claim begins while the one before is decoded", func() bool {
		for _, text := range numbers(count) {
			l := testdb.Take(w, c, 1)[0]
			require.Equal(w, text, l.Body.Text)
			taken = append(taken, l)
		}
		require.NoError(w, chanq.Ack(w.Soon(), taken...))
		taken = nil
		if codec.enough.Load() {
			return true
		}
		testdb.Send(w, q, notes(numbers(count)...)...) // a busy machine makes claims small
		return false
	})
}

func stopWhileDecoding(w *world) {
	const count = 3000
	codec, gate := &slowReader{}, make(chan struct{})
	met := make(chan struct{})
	codec.do = func() bool {
		close(met)
		<-gate
		return true
	}
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
	testdb.Send(w, q, notes(numbers(count)...)...)
	codec.sees(w, "work")
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	acked, sent := 0, count
	for going := true; going; {
		if acked == sent { // a busy machine makes claims small
			testdb.Send(w, q, notes(numbers(count)...)...)
			sent += count
		}
		select {
		case l := <-c.C():
			require.NoError(w, l.Ack())
			acked++
		case <-met:
			going = false
		}
	}
	c.Stop()
	stopped := time.Now()
	w.Eventually("a claim loop that did not wait would have ended", func() bool { return time.Since(stopped) > 20*time.Millisecond })
	close(gate)
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Equal(w, chanqadmin.Stats{Ready: sent - acked}, testdb.Counted(w, q))
	for _, l := range testdb.Lease(w, q, min(sent-acked, 1000), time.Minute) {
		require.Equal(w, 1, l.Attempt, "an undelivered message has no counted attempt")
	}
}
