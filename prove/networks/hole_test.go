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

// TestABlackHoleThatThaws: what was sent into the hole arrives after it, as TCP
// retransmits.
func TestABlackHoleThatThaws(t *testing.T) {
	onEach(t, func(r *rig) { blackHole(r, 30*time.Second, false) })
}

// TestABlackHoleThatForgets: connections made before its end are silent for
// ever, as behind a firewall that lost its state. Statements and connection
// attempts have to end by their own deadlines.
func TestABlackHoleThatForgets(t *testing.T) {
	onEach(t, func(r *rig) { blackHole(r, 10*time.Second, true) })
}

func blackHole(r *rig, statement time.Duration, forget bool) {
	if !r.Engine.Bubble {
		testdb.Soak(r) // more than a minute of the real clock
	}
	const leaseFor = 15 * time.Second
	// The answers of extensions take this long to come back: a deadline that counted
	// from the answer, not from before the request, would be late by as much.
	const latency = 500 * time.Millisecond
	var health changes
	near, truth := r.queues("work", chanq.Config{StatementTimeout: statement, Hooks: chanq.Hooks{Availability: health.add}})
	c, err := near.Consume(context.Background(), chanq.ConsumerConfig{LeaseFor: leaseFor, Prefetch: 4})
	require.NoError(r, err)
	p, err := near.Producer(chanq.ProducerConfig{})
	require.NoError(r, err)
	receipt, err := p.Send(r.Soon(), chanq.Message[string]{Body: "held"})
	require.NoError(r, err)
	held := testdb.Take(r, c, 1)[0]
	lost := make(chan time.Time, 1)
	context.AfterFunc(held.Context(), func() { lost <- time.Now() })

	for _, c := range []netproxy.Conditions{{}, {Latency: latency}} { // over a fast network first, which connects
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

	// A rival that is not in the hole takes the message as soon as the database lets it.
	end := testdb.Get(r, truth, receipt.ID).LeaseUntil // no extension comes through
	rival := testdb.Lease(r, truth, 1, 10*time.Minute)
	require.ErrorIs(r, context.Cause(held.Context()), chanq.ErrLeaseLost, "its holder knows before")
	reported := <-lost
	require.True(r, reported.Before(end), "the holder got the loss at %s, the lease ended at %s", reported, end)
	r.Logf("the holder got the loss %v before the database allowed another claim", end.Sub(reported).Round(time.Millisecond))
	require.NoError(r, held.Ack(), "it joins the settles that wait")

	<-time.After(hole - time.Since(began))
	select {
	case l, open := <-c.C():
		require.Fail(r, "something is delivered, or the channel is closed", "%v %v", l, open)
	default:
	}
	require.NoError(r, c.Err())
	require.Empty(r, sent, "the send goes on")
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
		r.Eventually(part+" tells that it is over", func() bool { return health.of(part) != "down" })
	}
	require.NoError(r, rival[0].Ack())
	require.NoError(r, c.Shutdown(r.Soon()))
	require.NoError(r, p.Close(r.Soon()))
	for _, part := range []string{"consumer", "producer"} {
		if changes := health.of(part); forget { // a statement may yet meet a connection that was forgotten
			require.Regexp(r, "^down up( down up)*$", changes, part)
		} else {
			require.Equal(r, "down up", changes, part)
		}
	}
	s, err := testdb.Admin(truth).Stats(r.Soon())
	require.NoError(r, err)
	require.Zero(r, s.Scheduled+s.Leased+s.Dead)
	// The INSERT was repeated, for its outcome was unknown. The one that was frozen
	// may have come after the ack of the message, and stored it again.
	again, err := testdb.Peek(r.Soon(), truth, chanqadmin.StateReady, 10)
	require.NoError(r, err)
	for _, e := range again {
		require.Contains(r, string(e.Body), "during")
	}
	r.Logf("%d messages are left, stored again", len(again))
}
