package networks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

const (
	disturbedFor = 15 * time.Second // well within the minute that the black holes take
	workLease    = 3 * time.Second
	workers      = 4 // number of readers, and of senders
	sendEvery    = 100 * time.Millisecond
	emptied      = 4 * time.Minute // for a queue to become empty on a loaded machine
	bodyBytes    = 1 << 10
)

// TestResetsInTheMiddleOfStatements resets connections at randomly chosen pieces of data: requests that did not arrive, and responses that
// did not.
func TestResetsInTheMiddleOfStatements(t *testing.T) {
	onEach(t, func(r *rig) {
		work(r, time.Second, func(over context.Context, outage func() func()) {
			var mu sync.Mutex
			chance := r.chance()
			r.proxy.ResetAt(func(p netproxy.Piece) bool {
				mu.Lock()
				defer mu.Unlock()
				if chance.IntN(20) > 0 {
					return false
				}
				outage()()
				return true
			})
			<-over.Done()
			r.proxy.ResetAt(nil)
		})
	})
}

func TestASlowNetwork(t *testing.T) {
	onEach(t, func(r *rig) {
		work(r, 30*time.Second, func(over context.Context, outage func() func()) {
			defer outage()()
			r.proxy.Set(netproxy.Conditions{Latency: 50 * time.Millisecond})
			<-over.Done()
		})
	})
}

func TestANarrowNetwork(t *testing.T) {
	onEach(t, func(r *rig) {
		work(r, 30*time.Second, func(over context.Context, outage func() func()) {
			defer outage()()
			r.proxy.Set(netproxy.Conditions{BytesPerSecond: 64 << 10})
			<-over.Done()
		})
	})
}

// TestHalfOpenConnections stops one direction for a while, shorter than a statement timeout or longer than a lease, and sometimes
// permanently for the existing connections.
func TestHalfOpenConnections(t *testing.T) {
	onEach(t, func(r *rig) {
		if r.Engine.Name == testdb.EmulatorSocket.Name {
			// Twice, on another machine, the test did not end, for an unknown reason; 500 later runs did. In memory, where only the sockets
			// differ, it ends within 36 s of the bubble's clock.
			testdb.Soak(r)
		}
		chance := r.chance()
		work(r, time.Second, func(over context.Context, outage func() func()) {
			for n := 0; over.Err() == nil; n++ {
				var c netproxy.Conditions
				c.Hold[n%2] = true
				recovered := outage()
				r.proxy.Set(c)
				select {
				case <-over.Done():
				case <-time.After(200*time.Millisecond + time.Duration(chance.Int64N(int64(workLease*3/2)))):
				}
				if chance.IntN(3) == 0 {
					r.proxy.Forget()
				}
				r.proxy.Set(netproxy.Conditions{})
				recovered()
				select {
				case <-over.Done():
				case <-time.After(300 * time.Millisecond):
				}
			}
		})
	})
}

func (r *rig) chance() *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	r.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// work consumes one queue and fills another over a disturbed network, and then checks both over the direct network. Consumed messages were
// sent over the direct network, and sent messages are consumed over it, so neither explains the faults of the other: a message must leave
// the second queue exactly once. statement is the statement timeout: short if statements are lost, long if they are slow.
func work(r *rig, statement time.Duration, disturb func(over context.Context, outage func() func())) {
	inNear, inTruth := r.queues("inbox", chanq.Config{StatementTimeout: statement})
	outNear, outTruth := r.queues("outbox", chanq.Config{StatementTimeout: statement})
	feeder, err := inTruth.Producer(context.Background(), chanq.ProducerConfig{})
	require.NoError(r, err)
	sender, err := outNear.Producer(context.Background(), chanq.ProducerConfig{})
	require.NoError(r, err)
	c, err := inNear.Consume(context.Background(), chanq.ConsumerConfig{LeaseFor: workLease, PollEvery: 50 * time.Millisecond})
	require.NoError(r, err)

	h, sent := record.NewHistory(workLease), record.NewHistory(workLease)
	over, stop := context.WithTimeout(context.Background(), disturbedFor)
	defer stop()
	var work errgroup.Group
	padding := strings.Repeat(".", bodyBytes)
	for w := range workers {
		work.Go(func() error { return consume(c, w, h) })
	}
	var feeding sync.WaitGroup // the senders to the consumed queue
	feeding.Add(workers)
	for w := range 2 * workers {
		p, to := feeder, h
		if w >= workers {
			p, to = sender, sent
		}
		work.Go(func() error {
			if p == feeder {
				defer feeding.Done()
			}
			tick := time.NewTicker(sendEvery)
			defer tick.Stop()
			for n := 0; over.Err() == nil; n++ {
				name := fmt.Sprint(w, "/", n)
				to.Add(workers+w, record.Event{At: record.Now(), Kind: record.Intended, Name: name})
				receipt, err := p.Send(context.Background(), chanq.Message[string]{Body: name + " " + padding})
				if err != nil {
					return err
				}
				to.Add(workers+w, record.Event{At: record.Now(), Kind: record.Stored, Name: name, ID: receipt.ID})
				<-tick.C
			}
			return nil
		})
	}
	work.Go(func() error {
		<-over.Done()
		feeding.Wait() // then an empty queue stays empty
		// The consumer empties its queue over the repaired network.
		ctx, cancel := context.WithTimeout(context.Background(), emptied)
		defer cancel()
		defer c.Stop() // so that the readers end if this fails
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			empty, err := inTruth.Empty(ctx)
			if err != nil {
				return err
			}
			if empty {
				return c.Shutdown(ctx)
			}
			<-tick.C
		}
	})
	disturb(over, h.Outage)
	r.proxy.Set(netproxy.Conditions{})
	require.NoError(r, work.Wait())
	require.NoError(r, errors.Join(feeder.Close(r.Soon()), sender.Close(r.Soon()), c.Err()))

	v := h.Judge()
	r.Logf("%d outages; consumed: %s", len(h.Outages), v)
	require.Empty(r, v.Faults)
	require.Zero(r, v.Duplicates.Again, "the send of this message was not disturbed")
	require.Equal(r, v.Stored, v.Delivered)
	require.Positive(r, v.Stored)
	require.NotEmpty(r, h.Outages)
	s, err := testdb.Admin(inTruth).Stats(r.Soon())
	require.NoError(r, err)
	require.Zero(r, s.Dead)

	drain := testdb.Start(r, outTruth, chanq.ConsumerConfig{StopWhenIdle: true})
	require.NoError(r, consume(drain, 0, sent))
	require.NoError(r, drain.Shutdown(r.Soon()))
	v = sent.Judge()
	r.Logf("sent: %s", v)
	require.Empty(r, v.Faults)
	require.Positive(r, v.Stored)
	require.Equal(r, v.Stored, v.Deliveries, "each message once")
	require.Equal(r, 1, v.MostAttempt)
}

// consume acks the messages that it receives and records the outcomes.
func consume(c *chanq.Consumer[string], worker int, h *record.History) error {
	for l := range c.C() {
		name, _, _ := strings.Cut(l.Body, " ")
		note := func(k record.Kind) {
			h.Add(worker, record.Event{At: record.Now(), Kind: k, Name: name, ID: l.ID, Attempt: l.Attempt, How: record.Ack, Deadline: l.Deadline().UnixNano()})
		}
		note(record.Got)
		note(record.Settling)
		_ = l.Ack() // Wait returns the error
		ctx, cancel := context.WithTimeout(context.Background(), testdb.Patience)
		err := l.Wait(ctx)
		cancel()
		outcome := record.OutcomeOf(err)
		if outcome == record.Failed {
			return err
		}
		note(outcome)
	}
	return nil
}
