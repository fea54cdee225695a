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

// Large claims, whose bodies are decoded while the next one is under way.
var handing = []test{
	{"G10_AClaimDuringTheDecodingOfItsPredecessorIsDeliveredAfterIt", claimBesideDecoding},
	{"G06_StopReleasesWhatIsBeingDecoded", stopWhileDecoding},
}

const (
	largeClaim = 256 // the least of those that are delivered beside the next one
	beforeEnd  = 50  // so many bodies before its end the readers have nearly all of it
)

// slowReader is a codec that does something late in large claims, until that says that
// it was enough.
type slowReader struct {
	begun, asks, read atomic.Int32 // claims, what the last one asked for, and bodies decoded since
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

// sees has the codec know of the claims on a queue.
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
	// Readers that the machine holds up leave no room for another claim meanwhile.
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
	// Settled at the end: where settles wait for the machine, nothing is claimed.
	var taken []*chanq.Lease[note]
	for _, text := range numbers(count) {
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, text, l.Body.Text)
		taken = append(taken, l)
	}
	require.NoError(w, chanq.Ack(w.Soon(), taken...))
	require.True(w, codec.enough.Load(), "a claim begins while the one before is decoded")
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
	acked := 0
	for going := true; going; {
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
	w.Eventually("a claimer that did not wait would have ended", func() bool { return time.Since(stopped) > 20*time.Millisecond })
	close(gate)
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Equal(w, chanqadmin.Stats{Ready: count - acked}, testdb.Counted(w, q))
	for _, l := range testdb.Lease(w, q, min(count-acked, 1000), time.Minute) {
		require.Equal(w, 1, l.Attempt, "what no reader had is not counted")
	}
}
