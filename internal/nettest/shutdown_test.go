package nettest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/netproxy"
)

// bound is how long a shutdown is given, and slack how much later it may come
// back on a loaded machine: far less than the statements' deadline of 30 s, and
// than for ever.
const (
	bound = time.Second
	slack = 15 * time.Second
)

// TestShutdownIsBoundedWhenTheServerIsSilent: statements are under way when the
// network goes silent.
func TestShutdownIsBoundedWhenTheServerIsSilent(t *testing.T) {
	onEach(t, oneByOne, func(r *rig) { shutdown(r, func() { r.proxy.Set(netproxy.Silence) }) })
}

// TestShutdownIsBoundedWhenTheServerDoesNotGreet: connections are cut, and new
// ones are accepted and never answered.
func TestShutdownIsBoundedWhenTheServerDoesNotGreet(t *testing.T) {
	onEach(t, oneByOne, func(r *rig) {
		shutdown(r, func() {
			r.proxy.Set(netproxy.Silence)
			r.proxy.Reset()
		})
	})
}

func shutdown(r *rig, die func()) {
	// What runs already, the proxy's and the server's, is not ours.
	near, truth := r.queues("work", chanq.Hooks{})
	before := goleak.IgnoreCurrent()
	c, err := near.Consume(context.Background(), chanq.ConsumerConfig{})
	require.NoError(r, err)
	p, err := near.Producer(chanq.ProducerConfig{})
	require.NoError(r, err)
	for _, body := range []string{"held", "acked"} {
		r.send(truth, body)
	}
	held, acked := r.take(c), r.take(c)
	_, err = p.Send(r.soon(), chanq.Message[string]{Body: "connects the producer"})
	require.NoError(r, err)

	die()
	open := r.proxy.Open()
	require.NoError(r, acked.Ack())
	bodies := []string{"a", "b", "c"}
	for _, body := range bodies {
		p.C() <- chanq.Message[string]{Body: body}
	}
	r.eventually("somebody tries to connect or waits for an answer", func() bool { return r.proxy.Open() >= open })

	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	began := time.Now()
	err = c.Shutdown(ctx)
	require.Less(r, time.Since(began), bound+slack)
	require.ErrorIs(r, err, context.DeadlineExceeded)
	require.ErrorContains(r, err, "not settled")
	r.Logf("Shutdown after %v: %v", time.Since(began).Round(time.Millisecond), err)

	ctx, cancel = context.WithTimeout(context.Background(), bound)
	defer cancel()
	began = time.Now()
	err = p.Close(ctx)
	require.Less(r, time.Since(began), bound+slack)
	r.Logf("Close after %v: %v", time.Since(began).Round(time.Millisecond), err)
	var unsent *chanq.UnsentError[string]
	require.ErrorAs(r, err, &unsent)
	var back []string
	for _, u := range unsent.Unsent {
		back = append(back, u.Message.Body)
		require.False(r, u.Message.ID.IsZero(), "it can be sent again")
		require.Error(r, u.Err)
	}
	require.ElementsMatch(r, bodies, back)

	var op *chanq.OpError
	require.ErrorAs(r, acked.Wait(r.soon()), &op)
	require.ErrorIs(r, held.Ack(), chanq.ErrClosed)

	closed := make(chan error, 1)
	go func() { closed <- r.near.Close() }()
	select {
	case err := <-closed:
		require.NoError(r, err)
	case <-time.After(patience):
		require.Fail(r, "the *sql.DB does not close")
	}
	// Nothing of chanq nor of its driver is left, though the network is still silent.
	var leak error
	for deadline := time.Now().Add(slack); time.Now().Before(deadline); {
		if leak = goleak.Find(before, goleak.IgnoreAnyFunction("github.com/chanq/chanq/internal/netproxy.(*link).run")); leak == nil {
			break
		}
	}
	require.NoError(r, leak)
}
