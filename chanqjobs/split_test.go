package chanqjobs_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
)

// While the channel of a kind is not read, the other kinds wait. When the consumer stops, the waiting job is released.
func TestAChannelThatIsNotReadDelaysAllKinds(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		ids := testdb.Send(w, q, note.New("first"), charge.New(1), note.New("second"))
		m := chanqjobs.NewMux()
		var got tally
		charges := chanqjobs.Chan(m, charge)
		defer func() { // after a failure
			for l := range charges {
				_ = l.Release()
			}
		}()
		chanqjobs.Handle(m, note, count[string](&got), chanqjobs.Options{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		ended := make(chan error, 1)
		go func() { ended <- m.Split(c.C(), 1) }()
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Equal(w, map[string]int{"note first": 1}, got.counts())
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "Split returns"))
		_, open := <-charges
		require.False(w, open)
		require.NoError(w, c.Shutdown(w.Soon()))
		e := testdb.Get(w, q, ids[1])
		require.Equal(w, chanqadmin.StateReady, e.State)
		require.Zero(w, e.Attempts, "it was released uncounted")
	})
}

func TestSplitSettlesWhatItsChannelsCannotTake(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		ids := testdb.Send(w, q, chanq.Message[chanqjobs.Job]{Type: "charge", Body: note.New(`"x"`).Body}, note.New("panics"), charge.New(1))
		m := chanqjobs.NewMux()
		m.Unknown = func(context.Context, *chanq.Lease[chanqjobs.Job]) error { panic("aargh") }
		charges := chanqjobs.Chan(m, charge)
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		ended := make(chan error, 1)
		go func() { ended <- m.Split(c.C(), 1) }()
		l := testdb.Receive(w, charges, "the third job")
		require.Equal(w, 1, l.Body)
		require.NoError(w, l.Ack())
		w.Eventually("all are settled", func() bool { s := c.Stats(); return s.Acked+s.Nacked+s.Dead == 3 })
		c.Stop()
		require.NoError(w, testdb.Receive(w, ended, "Split returns"))
		require.NoError(w, c.Shutdown(w.Soon()))
		require.Equal(w, chanq.CauseUndecodable, testdb.Get(w, q, ids[0]).Cause)
		require.Contains(w, testdb.Get(w, q, ids[1]).LastError, "panic: aargh")
	})
}

// A Split whose workers have left takes no more jobs.
func TestSplitEndsWithItsWorkers(t *testing.T) {
	for name, workers := range map[string]int{"no worker": 0, "a worker that leaves": 1} {
		testdb.Run(t, testdb.Memory, func(w *testdb.World) {
			q := jobsOf(w, "jobs", chanq.Config{})
			testdb.Send(w, q, note.New("a"), note.New("b"))
			m := chanqjobs.NewMux()
			charges := chanqjobs.Chan(m, charge)
			chanqjobs.Handle(m, note, func(context.Context, *chanq.Lease[string]) error {
				runtime.Goexit()
				return nil
			}, chanqjobs.Options{})
			c := testdb.Start(w, q, chanq.ConsumerConfig{})
			require.Error(w, m.Split(c.C(), workers), name)
			_, open := <-charges
			require.False(w, open)
		})
	}
}
