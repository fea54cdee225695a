package networks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

// hole is how long the network is silent.
const hole = 60 * time.Second

// TestABlackHoleThatThaws: data sent into the hole arrives afterwards, because TCP retransmits it.
func TestABlackHoleThatThaws(t *testing.T) {
	onEach(t, func(r *rig) { blackHole(r, 30*time.Second, false) })
}

// TestABlackHoleThatForgets: existing connections stay silent permanently, as behind a firewall
// that lost its state. Statements and connection attempts must end by their own deadlines.
func TestABlackHoleThatForgets(t *testing.T) {
	onEach(t, func(r *rig) { blackHole(r, 10*time.Second, true) })
}

func blackHole(r *rig, statement time.Duration, forget bool) {
	if !r.Engine.Bubble {
		testdb.Soak(r) // more than a minute on the real clock
	}
	const leaseFor = 15 * time.Second
	// Responses to extensions take this long. A deadline that counted from the response, not from
	// before the request, would be late by as much. Longer, and the connection of another session would time out: an outage
	// before the hole.
	const latency = 200 * time.Millisecond
	var health changes
	near, truth := r.queues("work", chanq.Config{StatementTimeout: statement, Hooks: chanq.Hooks{Availability: health.add}})
	c, err := near.Consume(context.Background(), chanq.ConsumerConfig{LeaseFor: leaseFor, Prefetch: 4})
	require.NoError(r, err)
	p, err := near.Producer(context.Background(), chanq.ProducerConfig{})
	require.NoError(r, err)
	receipt, err := p.Send(r.Soon(), chanq.Message[string]{Body: "held"})
	require.NoError(r, err)
	held := testdb.Take(r, c, 1)[0]
	lost := make(chan time.Time, 1)
	context.AfterFunc(held.Context(), func() { lost <- time.Now() })

	for _, c := range []netproxy.Conditions{{}, {Latency: latency}} { // first over a fast network, to connect
		r.proxy.Set(c)
		before := held.Deadline()
		r.Eventually("the lease is extended", func() bool { return held.Deadline().After(before.Add(leaseFor / 4)) })
	}
	r.proxy.Set(netproxy.Silence)
	began := time.Now()

	sent := make(chan error, 1)
	go func() { // joined below
		_, err := p.Send(context.Background(), chanq.Message[string]{Body: "during"})
		sent <- err
	}()

	// A rival outside the hole claims the message as soon as the database allows it.
	end := testdb.Get(r, truth, receipt.ID).LeaseUntil // no extension gets through
	rival := testdb.Lease(r, truth, 1, 10*time.Minute)
	require.ErrorIs(r, context.Cause(held.Context()), chanq.ErrLeaseLost, "its holder is informed before")
	reported := <-lost
	require.True(r, reported.Before(end), "the holder was informed of the loss at %s, the lease ended at %s", reported, end)
	r.Logf("the holder was informed of the loss %v before the database allowed another claim", end.Sub(reported).Round(time.Millisecond))
	require.NoError(r, held.Ack(), "the ack joins the waiting settles")

	<-time.After(hole - time.Since(began))
	select {
	case l, open := <-c.C():
		require.Fail(r, "a message is delivered, or the channel is closed", "%v %v", l, open)
	default:
	}
	require.NoError(r, c.Err())
	require.Empty(r, sent, "the send is still running")
	require.Equal(r, "down", health.of("consumer"))
	require.Equal(r, "down", health.of("producer"))

	if forget {
		r.proxy.Forget()
	}
	r.proxy.Set(netproxy.Conditions{})
	over := time.Now()
	testdb.Send(r, truth, testdb.Texts("after")...)
	for want := map[string]bool{"during": true, "after": true}; len(want) > 0; {
		l := testdb.Take(r, c, 1)[0]
		require.True(r, want[l.Body] || l.Body == "during", "%q is delivered", l.Body)
		delete(want, l.Body)
		r.Logf("%q is delivered %v after the hole", l.Body, time.Since(over).Round(time.Millisecond))
		require.NoError(r, l.Ack())
		require.NoError(r, l.Wait(r.Soon()))
	}
	require.NoError(r, <-sent)
	require.ErrorIs(r, held.Wait(r.Soon()), chanq.ErrLeaseLost)
	for _, part := range []string{"consumer", "producer"} {
		r.Eventually(part+" reports the end of the outage", func() bool { return health.of(part) != "down" })
	}
	require.NoError(r, rival[0].Ack())
	require.NoError(r, c.Shutdown(r.Soon()))
	require.NoError(r, p.Close(r.Soon()))
	for _, part := range []string{"consumer", "producer"} {
		if changes := health.of(part); forget { // a statement might still use a forgotten connection
			require.Regexp(r, "^down up( down up)*$", changes, part)
		} else {
			require.Equal(r, "down up", changes, part)
		}
	}
	s, err := testdb.Admin(truth).Stats(r.Soon())
	require.NoError(r, err)
	require.Zero(r, s.Scheduled+s.Leased+s.Dead)
	// The INSERT was repeated because its outcome was unknown. The frozen INSERT might have arrived
	// after the message was acked, and stored it again.
	again, err := testdb.Peek(r.Soon(), truth, chanqadmin.StateReady, 10)
	require.NoError(r, err)
	for _, e := range again {
		require.Contains(r, string(e.Body), "during")
	}
	r.Logf("%d messages are left, stored again", len(again))
}
