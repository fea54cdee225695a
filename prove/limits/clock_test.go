package limits_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
)

// skewedClock is the machine's clock plus off.
type skewedClock struct {
	mssqltest.RealClock
	off time.Duration
}

func (c skewedClock) Now() time.Time { return c.RealClock.Now().Add(c.off) }

// skewed creates a database whose clock differs from that of this process.
func skewed(t *testing.T, e testdb.Engine, off time.Duration) *world {
	switch e.Name {
	case testdb.Emulator.Name:
		return newWorld(t, testdb.EmulatorAt(skewedClock{off: off}))
	case testdb.EmulatorSocketVersions.Name:
		return newWorld(t, testdb.EmulatorSocketAt(skewedClock{off: off}))
	}
	w := newWorld(t, e)
	clock, moved := "julianday('now')", "julianday('now', '+86400 seconds')"
	if e.Dialect.Name() == "postgres" {
		clock, moved = "statement_timestamp()", "(statement_timestamp() + interval '+86400 seconds')"
	}
	if off < 0 {
		moved = strings.Replace(moved, "+86400", "-86400", 1)
	}
	w.Faults.Rewrite(func(text string) string { return strings.ReplaceAll(text, clock, moved) })
	return w
}

// A process whose clock is a day fast or slow gets the same results as others: due times, leases
// and retention use the database's clock.
func TestTheClockOfAClientHasNoEffect(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		for _, off := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
			t.Run(e.Name+off.String(), func(t *testing.T) {
				t.Parallel()
				e.Require(t)
				testdb.InBubble(t, e.Bubble, func(t *testing.T) { liveWith(skewed(t, e, off), off) })
			})
		}
	}
}

// madeAt returns an ID as made by a process whose clock shows t.
func madeAt(t time.Time) chanq.ID {
	id := chanq.NewID()
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli()))
	copy(id[:6], ms[2:])
	return id
}

func liveWith(w *world, off time.Duration) {
	const near = time.Hour
	lease := testdb.Of(3*time.Second, 9*time.Second) // on real clocks no lease may expire
	theirs := func() time.Time { return time.Now().Add(off) }
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})

	// An ID from a clock that is a day ahead does not come last.
	tomorrow, yesterday := madeAt(time.Now().Add(24*time.Hour)), madeAt(time.Now().Add(-24*time.Hour))
	_, err := p.Send(w.Soon(), chanq.Message[string]{ID: tomorrow, Body: "first"})
	require.NoError(w, err)
	first, err := testdb.Admin(q).Get(w.Soon(), tomorrow)
	require.NoError(w, err)
	require.WithinDuration(w, theirs(), first.EnqueuedAt, near)
	later := time.Now()
	w.Eventually("a millisecond has passed", func() bool { return time.Since(later) > 2*time.Millisecond })
	_, err = p.Send(w.Soon(), chanq.Message[string]{ID: yesterday, Body: "second"})
	require.NoError(w, err)
	_, err = p.Send(w.Soon(), chanq.Message[string]{Body: "scheduled", Delay: 12 * time.Hour})
	require.NoError(w, err)

	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lease})
	leases := testdb.Take(w, c, 2)
	require.Equal(w, "first", leases[0].Body)
	require.Equal(w, "second", leases[1].Body)
	require.WithinDuration(w, theirs(), leases[0].EnqueuedAt, near)
	require.WithinDuration(w, time.Now().Add(lease), leases[0].Deadline(), near, "the deadline uses the clock of this process")

	// The extender extends the lease; no other consumer gets the message meanwhile.
	ends := func() time.Time {
		e, err := testdb.Admin(q).Get(w.Soon(), leases[0].ID)
		require.NoError(w, err)
		require.Equal(w, chanqadmin.StateLeased, e.State)
		return e.LeaseUntil
	}
	from := ends()
	w.Eventually("the lease is extended", func() bool { return ends().Sub(from) > lease/2 })
	require.WithinDuration(w, theirs(), ends(), near)
	require.NoError(w, leases[0].Context().Err())
	require.NoError(w, leases[0].Ack())
	require.NoError(w, leases[0].Wait(w.Soon()))

	// A message is redelivered after a nack with a delay of some milliseconds, but not of an hour.
	require.NoError(w, leases[1].Nack(chanq.RetryAfter(5*time.Millisecond, nil)))
	again := testdb.Take(w, c, 1)[0]
	require.Equal(w, 2, again.Attempt)
	require.NoError(w, again.Nack(chanq.RetryAfter(time.Hour, nil)))
	require.NoError(w, again.Wait(w.Soon()))
	require.Equal(w, chanqadmin.Stats{Scheduled: 2, Done: 1}, testdb.Counted(w, q))
	require.NoError(w, c.Shutdown(w.Soon()))

	// A lease without extensions expires by the database's clock.
	_, err = p.Send(w.Soon(), chanq.Message[string]{Body: "left"})
	require.NoError(w, err)
	testdb.Lease(w, q, 1, 500*time.Millisecond)
	w.Eventually("it is ready again", func() bool { return testdb.Counted(w, q).Ready == 1 })
	s, err := testdb.Admin(q).Stats(w.Soon())
	require.NoError(w, err)
	require.Less(w, s.OldestReady, near)
	require.NoError(w, p.Close(w.Soon()))
}
