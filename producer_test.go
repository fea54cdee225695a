package chanq

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMessagesThatFitTheBufferOnlyOneByOneAreStored(t *testing.T) {
	q := openTestQueue[[]byte](t, Config{})
	p := testProducer(t, q, ProducerConfig{BufferBytes: 10_000})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := range 10 {
				p.C() <- Message[[]byte]{Body: make([]byte, []int{2000, 9000}[i%2])}
			}
		})
	}
	sent := make(chan struct{})
	go func() { senders.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-soon(t).Done():
		require.Fail(t, "the intake waits for room that is never free")
	}
	require.NoError(t, p.Close(soon(t)))
	require.Equal(t, 40, counts(t, q).Ready)
}

func TestCloseReturnsThoughTheBufferIsFullOfWhatCannotBeStored(t *testing.T) {
	q := openTestQueue[chan int](t, Config{}) // JSON has no channels
	p := testProducer(t, q, ProducerConfig{BufferBytes: 600})
	sent := 0
	for full := false; !full; {
		select {
		case p.C() <- Message[chan int]{Body: make(chan int)}:
			sent++
		case <-time.After(100 * time.Millisecond):
			full = true
		}
	}
	ctx := soon(t)
	err := p.Close(ctx)
	require.NoError(t, ctx.Err())
	var unsent *UnsentError[chan int]
	require.ErrorAs(t, err, &unsent)
	require.Len(t, unsent.Unsent, sent)
}

func TestWhatTheChannelAcceptedDuringCloseIsStoredOrReturned(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	for range 20 {
		p, err := q.Producer(t.Context(), ProducerConfig{})
		require.NoError(t, err)
		var senders sync.WaitGroup
		var mu sync.Mutex
		accepted := 0
		for range 4 {
			senders.Go(func() {
				for i := range 1000 {
					select {
					case p.C() <- Message[int]{Body: i}:
						mu.Lock()
						accepted++
						mu.Unlock()
					case <-p.Done():
						return
					}
				}
			})
		}
		require.NoError(t, p.Close(soon(t)))
		senders.Wait()
		stored, err := q.core.db.Exec("DELETE FROM chanq_orders")
		require.NoError(t, err)
		n, err := stored.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, accepted, n)
	}
}

func TestFlushWorksAfterTheSenderClosedTheChannel(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	p.C() <- Message[int]{Body: 1}
	close(p.C())
	require.NoError(t, p.Flush(soon(t)))
	require.Equal(t, 1, counts(t, q).Ready)
}
