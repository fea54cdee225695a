package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// hide limits the connections below the *sql.DB: as a pool of the driver does, which waits without an error, or as a
// server does, which refuses.
func (w *database) hide(limit int, refuses bool) {
	places := make(chan struct{}, limit)
	if !refuses {
		w.db.SetMaxIdleConns(0) // as for a pgxpool
	}
	w.left = func() { <-places }
	w.connect = func(ctx context.Context) error {
		select {
		case places <- struct{}{}:
			return nil
		default:
		}
		if refuses {
			return errRefused
		}
		select {
		case places <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errRefused = refusal{errors.New("too many connections for role")}

// refusal is an answer of the server. An attempt to connect that the server does not answer is no sign of a limit.
type refusal struct{ error }

func (refusal) SQLState() string { return "53300" }

// work runs statements of all kinds until stop is called, which returns how many each part has run.
func (w *database) work(parts []*Part) (stop func() []int) {
	w.mu.Lock()
	w.texts["x"] = func(context.Context) error { time.Sleep(time.Millisecond); return nil }
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make([]int, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() {
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if err := p.Run(within, sqlbatch.Statement{Text: "x"}, nil); err == nil {
					ran[i]++
				}
				cancel()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	return func() []int { cancel(); all.Wait(); return ran }
}

// count returns how many statements have begun.
func (w *database) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ran)
}

func (w *database) consumerAndProducer() []*Part {
	return []*Part{w.join(Claim, 1), w.join(Settle, 2), w.join(Extend, 2), w.join(Enqueue, 1)}
}

func TestAHiddenLimitStopsNeitherStatementsNorTheApplication(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 4, 5} {
		for _, refuses := range []bool{false, true} {
			world(t, 0, func(w *database) {
				w.hide(limit, refuses)
				parts := w.consumerAndProducer()
				stop := w.work(parts)
				var longest time.Duration
				for began := time.Now(); time.Since(began) < maxIdle+10*time.Second; {
					time.Sleep(100 * time.Millisecond)
					asked := time.Now()
					for {
						conn, err := w.db.Conn(context.Background())
						if err == nil {
							time.Sleep(time.Millisecond) // a query
							require.NoError(w, conn.Close())
							break
						}
						require.ErrorIs(w, err, errRefused)
						time.Sleep(time.Millisecond)
					}
					longest = max(longest, time.Since(asked))
				}
				for i, ran := range stop() {
					require.Greater(w, ran, 300, "%s with %d connections", parts[i].need.Kind, limit)
				}
				require.Less(w, longest, answerTimeout+2*moment, "the application with %d connections", limit)
				for _, p := range parts {
					p.Close()
				}
			})
		}
	}
}

func TestStatementsGoOnWhenTheApplicationReleasesTheConnections(t *testing.T) {
	world(t, 0, func(w *database) {
		w.hide(2, false)
		parts := w.consumerAndProducer()
		stop := w.work(parts)
		pass(2 * time.Second)
		first, second := w.application(), w.application()
		pass(time.Minute)
		require.NoError(w, first.Close())
		require.NoError(w, second.Close())
		pass(time.Second)
		before := w.count()
		pass(time.Second)
		require.Greater(w, w.count()-before, 100)
		stop()
		for _, p := range parts {
			p.Close()
		}
	})
}

func TestALimitThatIsLoweredLaterCountsFromTheNextStatementOn(t *testing.T) {
	world(t, 0, func(w *database) {
		parts := w.consumerAndProducer()
		stop := w.work(parts)
		pass(time.Second)
		w.db.SetMaxOpenConns(2)
		for range 100 {
			began := time.Now()
			conn := w.application()
			require.Less(w, time.Since(began), 50*time.Millisecond)
			time.Sleep(time.Millisecond)
			require.NoError(w, conn.Close())
		}
		require.LessOrEqual(w, w.opened(), 2)
		w.db.SetMaxOpenConns(20)
		pass(maxIdle + time.Second)
		for i, ran := range stop() {
			require.Greater(w, ran, 100, "%s", parts[i].need.Kind)
		}
		require.Positive(w, w.db.Stats().InUse, "sessions stay again")
		for _, p := range parts {
			p.Close()
		}
	})
}

func TestSessionsAreKeptAgainAfterAServerWasSlow(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Settle, 1)
		w.connect = func(context.Context) error { time.Sleep(answerTimeout + moment); return nil }
		require.NoError(w, run(p, "x"))
		synctest.Wait()
		require.Zero(w, w.db.Stats().InUse, "it is returned after its statement")
		require.NoError(w, run(p, "x"))
		require.Equal(w, 1, w.made, "the *sql.DB keeps it")
		pass(maxIdle)
		require.NoError(w, run(p, "x"))
		require.Equal(w, 1, w.db.Stats().InUse)
		p.Close()
	})
}

// While connections are scarce no session holds one, so that an attempt which takes long is no sign of a limit. If it
// were, each of many programs would connect for each statement, and a server that was slow for a moment would stay so.
func TestSlowAttemptsDoNotProlongScarcity(t *testing.T) {
	world(t, 0, func(w *database) {
		w.db.SetMaxIdleConns(-1) // it keeps none
		var slow atomic.Bool
		slow.Store(true)
		w.connect = func(context.Context) error {
			if slow.Load() {
				time.Sleep(answerTimeout + moment)
			}
			return nil
		}
		p := w.join(Settle, 1)
		for began := time.Now(); time.Since(began) < scarceFor+2*time.Second; { // the last attempt outlives it
			require.NoError(w, run(p, "x"))
		}
		slow.Store(false)
		pass(moment)
		require.NoError(w, run(p, "x"))
		require.Equal(w, 1, w.db.Stats().InUse, "sessions stay again")
		p.Close()
	})
}

// Connecting over a slow network takes long, which is no limit: sessions stay.
func TestASlowNetworkIsNoLimit(t *testing.T) {
	world(t, 0, func(w *database) {
		const trip = 300 * time.Millisecond
		w.trip = trip
		w.connect = func(context.Context) error { time.Sleep(6 * trip); return nil }
		extend, claim := w.join(Extend, 2), w.join(Claim, 1)
		end := w.hang("hangs")
		hung := start(claim, "hangs")
		require.NoError(w, run(extend, "x"))
		end()
		require.NoError(w, <-hung)
		require.Equal(w, 2, w.db.Stats().InUse)
		began := time.Now()
		require.NoError(w, run(extend, "x"))
		require.Zero(w, time.Since(began), "it is used again")
		extend.Close()
		claim.Close()
	})
}

func TestAStatementWithoutAConnectionNamesTheReason(t *testing.T) {
	world(t, 0, func(w *database) {
		w.hide(1, false)
		parts := w.consumerAndProducer()
		app := w.application()
		ctx, cancel := context.WithTimeout(context.Background(), 2*answerTimeout)
		defer cancel()
		err := parts[0].Run(ctx, sqlbatch.Statement{Text: "x"}, nil)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.ErrorContains(w, err, "allows too few connections")
		require.NoError(w, app.Close())
		for _, p := range parts {
			p.Close()
		}
	})
}

func TestASecondConnectionMustBeAvailable(t *testing.T) {
	for _, limit := range []int{1, 2} {
		for _, refuses := range []bool{false, true} {
			world(t, 0, func(w *database) {
				w.hide(limit, refuses)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				err := Enough(ctx, w.db, postgres.Dialect)
				require.Equal(w, limit == 1, Unconnected(err), "%v", err)
				if limit == 1 {
					require.ErrorContains(w, err, "there is no second connection")
				}
			})
		}
	}
}

// A server refuses an attempt to connect above its limit, also one of the application.
func TestScarceConnectionsAreBorrowedOneAtATime(t *testing.T) {
	world(t, 0, func(w *database) {
		parts := w.consumerAndProducer()
		parts[0].pool.starve()
		stop := w.work(parts)
		for range 1000 {
			pass(time.Millisecond / 3)
			require.LessOrEqual(w, w.db.Stats().InUse, 1)
		}
		for i, ran := range stop() {
			require.Positive(w, ran, "%s", parts[i].need.Kind)
		}
		for _, p := range parts {
			p.Close()
		}
	})
}
