package session

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/puddle/v2"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestIdleConnectionsAreClosedWithoutACall(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Enqueue, 3)
		end := w.hang("x")
		require.NoError(w, w.application().Close()) // the *sql.DB keeps it
		all := []<-chan error{start(p, "x"), start(p, "x"), start(p, "x")}
		require.Equal(w, 3, w.db.Stats().InUse)
		end()
		for _, done := range all {
			require.NoError(w, <-done)
		}
		for range 10 { // one of the sessions is in use now and then
			pass(maxIdle / 4)
			require.NoError(w, run(p, "y"))
		}
		require.Equal(w, 1, w.db.Stats().InUse, "sessions that are not needed are closed")
		require.Equal(w, 1+1, w.opened(), "their connections are closed as well; one is the application's")
		p.Close()
	})
}

// Extensions of leases are sent now and then, and must not wait for a connection over a slow network.
func TestTheLastSessionStaysForAMinute(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Extend, 1)
		require.NoError(w, run(p, "x"))
		require.NoError(w, w.application().Close())
		for range 3 {
			pass(maxIdle - 2*moment)
			require.Equal(w, 1, w.db.Stats().InUse)
			require.NoError(w, run(p, "x"))
		}
		require.Equal(w, 1+1, w.opened(), "it connected once, and the application once")
		pass(maxIdle + moment)
		require.Zero(w, w.db.Stats().InUse, "but not for longer")
		require.Equal(w, 1, w.opened(), "its connection is closed")
		p.Close()
	})
}

func TestNoStatementWaitsForThoseOfAnotherKindOrOfAnotherPart(t *testing.T) {
	world(t, 0, func(w *database) {
		end := w.hang("hangs")
		var hung []<-chan error
		stuck := w.join(Settle, 2)
		hung = append(hung, start(stuck, "hangs"), start(stuck, "hangs"))
		others := []*Part{w.join(Claim, 1), w.join(Extend, 2), w.join(Enqueue, 1), w.join(Pipe, 1), w.join(Note, 1),
			w.join(Settle, 2)}
		for _, p := range others {
			require.NoError(w, <-start(p, "x"), "%s", p.need.Kind)
		}
		third := start(stuck, "x")
		require.Len(w, third, 0, "no part uses more than its own sessions")
		end()
		for _, done := range append(hung, third) {
			require.NoError(w, <-done)
		}
		for _, p := range append(others, stuck) {
			p.Close()
		}
	})
}

func TestPatientStatementsShareOneSessionExceptWhileOneHangs(t *testing.T) {
	world(t, 0, func(w *database) {
		begun := 0
		w.texts["look"] = func(context.Context) error { begun++; time.Sleep(time.Millisecond); return nil }
		parts := make([]*Part, 20)
		done := make(chan error, len(parts))
		for i := range parts {
			parts[i] = w.join(Claim, 1)
			go func() {
				_, err := parts[i].RunPatient(context.Background(), sqlbatch.Statement{Text: "look"}, nil)
				done <- err
			}()
		}
		for range parts {
			require.NoError(w, <-done)
		}
		require.Equal(w, 20, begun)
		require.Equal(w, 1, w.made)

		end := w.hang("hangs")
		go func() {
			_, err := parts[0].RunPatient(context.Background(), sqlbatch.Statement{Text: "hangs"}, nil)
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, p := range parts[1:] {
			_, err := p.RunPatient(ctx, sqlbatch.Statement{Text: "look"}, nil)
			require.NoError(w, err)
		}
		require.Less(w, time.Since(began), 2*moment, "only the first statement waits")
		took, err := parts[1].RunPatient(ctx, sqlbatch.Statement{Text: "look"}, nil)
		require.NoError(w, err)
		require.Equal(w, time.Millisecond, took)
		require.Equal(w, 2, w.made)
		end()
		require.NoError(w, <-done)
		for _, p := range parts {
			p.Close()
		}
	})
}

// Otherwise the polls of many consumers, if each hangs for a while, would let memberships end.
func TestAHeartbeatDoesNotWaitForPollsThatHang(t *testing.T) {
	world(t, 0, func(w *database) {
		end := w.hang("hangs")
		polls := make([]*Part, 60)
		done := make(chan error, len(polls))
		for i := range polls {
			polls[i] = w.join(Claim, 1)
			go func() {
				_, err := polls[i].RunPatient(context.Background(), sqlbatch.Statement{Text: "hangs"}, nil)
				done <- err
			}()
		}
		note := w.join(Note, 1)
		synctest.Wait()
		began := time.Now()
		_, err := note.RunPatient(context.Background(), sqlbatch.Statement{Text: "join"}, nil)
		require.NoError(w, err)
		require.Less(w, time.Since(began), moment)
		end()
		for range polls {
			require.NoError(w, <-done)
		}
		for _, p := range append(polls, note) {
			p.Close()
		}
	})
}

func TestAnAttemptThatHearsNoAnswerDoesNotHoldUpTheNext(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Claim, 1)
		var attempts atomic.Int32
		w.connect = func(ctx context.Context) error {
			if attempts.Add(1) > 1 {
				return nil // the network is back, but the first attempt was sent before
			}
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		require.ErrorIs(w, p.Run(ctx, sqlbatch.Statement{Text: "x"}, nil), context.DeadlineExceeded)
		began := time.Now()
		require.NoError(w, run(p, "x"))
		require.Zero(w, time.Since(began))
		p.Close()
	})
}

func TestAFailureToConnectIsReturnedToAllCallsThatWaitForNothingElse(t *testing.T) {
	worldOf(t, sqlite.Dialect, 0, func(w *database) {
		refused, gate := errors.New("refused"), make(chan struct{})
		w.connect = func(context.Context) error { <-gate; return refused }
		p := w.join(Settle, 3)
		all := []<-chan error{start(p, "x"), start(p, "x"), start(p, "x")}
		began := time.Now()
		close(gate)
		for _, done := range all {
			err := <-done
			require.Zero(w, time.Since(began))
			require.ErrorIs(w, err, refused)
			var notRun *NotRunError
			require.ErrorAs(w, err, &notRun)
			require.True(w, notRun.Unconnected)
		}
		p.Close()
	})
}

func TestOneWriterHasOneSessionThatStays(t *testing.T) {
	worldOf(t, sqlite.Dialect, 0, func(w *database) {
		p, other := w.join(Claim, 1), w.join(Enqueue, 4)
		end := w.hang("hangs")
		all := []<-chan error{start(p, "hangs"), start(other, "x"), start(other, "x")}
		require.Equal(w, 1, w.db.Stats().InUse)
		require.Len(w, w.ran, 1, "the others wait")
		end()
		for _, done := range all {
			require.NoError(w, <-done)
		}
		pass(time.Hour)
		require.Equal(w, 1, w.db.Stats().InUse)
		require.Equal(w, 1, w.made)
		p.Close()
		other.Close()
	})
}

func TestReservedConnectionsStayWhereThereIsALimit(t *testing.T) {
	world(t, 8, func(w *database) {
		claims, sends := w.join(Claim, 1), w.join(Enqueue, 4)
		for _, p := range []*Part{claims, sends} {
			require.NoError(w, p.Connect(w.Context(), time.Minute))
		}
		require.Equal(w, 1+2, w.db.Stats().InUse, "before there is work")
		pass(time.Hour)
		require.Equal(w, 1+2, w.db.Stats().InUse)

		end := w.hang("hangs")
		var all []<-chan error
		for range 4 {
			all = append(all, start(sends, "hangs"))
		}
		require.Equal(w, 1+4, w.db.Stats().InUse, "more while there are connections to spare")
		end()
		for _, done := range all {
			require.NoError(w, <-done)
		}
		require.Equal(w, 1+2, w.db.Stats().InUse)

		// The application takes all that it can get. The reserved connections go on working.
		var app []*sql.Conn
		for range 8 - 3 {
			app = append(app, w.application())
		}
		end = w.hang("hangs")
		first := start(sends, "hangs")
		require.NoError(w, run(sends, "x"), "the second connection works while the first one hangs")
		require.NoError(w, run(claims, "x"))
		end()
		require.NoError(w, <-first)
		for _, conn := range app {
			require.NoError(w, conn.Close())
		}
		claims.Close()
		sends.Close()
	})
}

func TestNoKindWaitsForAnotherWhereTheApplicationHasUsedUpTheLimit(t *testing.T) {
	world(t, 6, func(w *database) {
		claims, settles, sends := w.join(Claim, 1), w.join(Settle, 2), w.join(Enqueue, 2)
		for _, p := range []*Part{claims, settles, sends} {
			require.NoError(w, p.Connect(w.Context(), time.Minute))
		}
		app := w.application()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, stuck := range []*Part{claims, settles, sends} {
			end := w.hang("hangs")
			var hung []<-chan error
			for range stuck.need.Sessions {
				hung = append(hung, start(stuck, "hangs"))
			}
			for _, p := range []*Part{claims, settles, sends} {
				if p != stuck {
					require.NoError(w, p.Run(ctx, sqlbatch.Statement{Text: "x"}, nil), "%s while %s hang", p.need.Kind,
						stuck.need.Kind)
				}
			}
			end()
			for _, done := range hung {
				require.NoError(w, <-done)
			}
		}
		require.NoError(w, app.Close())
		for _, p := range []*Part{claims, settles, sends} {
			p.Close()
		}
	})
}

func TestConnectionsAboveTheReservedOnesAreReturnedWhenTheApplicationHasUsedUpTheLimit(t *testing.T) {
	world(t, 5, func(w *database) {
		p := w.join(Enqueue, 6)
		end := w.hang("hangs")
		var all []<-chan error
		for range 6 {
			all = append(all, start(p, "hangs"))
		}
		require.Equal(w, 4, w.db.Stats().InUse, "one is left for the application")
		app := w.application()
		second := make(chan *sql.Conn)
		go func() { second <- w.application() }()
		synctest.Wait()
		began := time.Now()
		end()
		require.NoError(w, (<-second).Close())
		require.Zero(w, time.Since(began), "at once")
		for _, done := range all {
			require.NoError(w, <-done)
		}
		require.NoError(w, app.Close())
		p.Close()
	})
}

func TestJoinReportsThatTheLimitIsTooSmall(t *testing.T) {
	world(t, 4, func(w *database) {
		p := w.join(Settle, 2)
		_, err := w.open(Need{Kind: Claim, Sessions: 1}, Need{Kind: Extend, Sessions: 2})
		require.EqualError(w, err, "the *sql.DB allows 4 open connections: chanq keeps 5 of them for itself (1 for "+
			"claims, 2 for settles, 2 for extensions, shared by all queues on it), and the application needs one; "+
			"call SetMaxOpenConns(6) or more")
		q := w.join(Settle, 2)
		r := w.join(Note, 5)
		w.db.SetMaxOpenConns(5)
		_, err = w.open(Need{Kind: Claim, Sessions: 1}, Need{Kind: Extend, Sessions: 2})
		require.ErrorContains(w, err, "SetMaxOpenConns(6)", "the application needs one as well")
		w.db.SetMaxOpenConns(6)
		parts, err := w.open(Need{Kind: Claim, Sessions: 1}, Need{Kind: Extend, Sessions: 2})
		require.NoError(w, err)
		w.db.SetMaxOpenConns(4)
		require.NoError(w, run(parts[0], "x"), "open parts go on")
		_, err = w.open(Need{Kind: Claim, Sessions: 1})
		require.ErrorContains(w, err, "SetMaxOpenConns(7)")
		w.db.SetMaxOpenConns(0)
		require.NoError(w, run(parts[0], "x"))
		pass(2 * maxIdle)
		require.Zero(w, w.db.Stats().InUse, "without a limit no session is kept")
		w.db.SetMaxOpenConns(1)
		require.ErrorContains(w, Enough(context.Background(), w.db, postgres.Dialect), "SetMaxOpenConns(2)")
		for _, p := range append(parts, p, q, r) {
			p.Close()
		}
	})
}

func TestASessionThatWasIdleIsReplacedByOneThatAnswers(t *testing.T) {
	world(t, 9, func(w *database) {
		p := w.join(Claim, 1)
		require.NoError(w, run(p, "x"))
		require.NoError(w, run(p, "x"))
		require.Equal(w, 1, w.made, "a session in use stays")
		others := []*sql.Conn{w.application(), w.application()}
		for _, conn := range others {
			require.NoError(w, conn.Close()) // the *sql.DB keeps it for the next call
		}
		pass(maxIdle)
		w.forgotten = 3
		require.NoError(w, run(p, "x"))
		require.Equal(w, 4, w.lastRan())
		require.Equal(w, 1, w.opened(), "the session's connection is closed, and two that the *sql.DB had")
		p.Close()
	})
}

func TestAnOldSessionStaysWhileTheApplicationUsesAllConnections(t *testing.T) {
	world(t, 2, func(w *database) {
		p := w.join(Claim, 1)
		require.NoError(w, run(p, "x"))
		before := w.lastRan()
		app := w.application()
		pass(2 * time.Hour) // the maximum age is one hour
		require.NoError(w, run(p, "x"))
		require.Equal(w, before, w.lastRan())
		require.NoError(w, app.Close())
		require.NoError(w, run(p, "x"))
		require.NotEqual(w, before, w.lastRan(), "renewed when there is a connection to spare")
		p.Close()
	})
}

func TestASessionIsUsedAgainOnlyAfterAKnownOutcome(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Settle, 1)
		require.NoError(w, run(p, "x"))
		w.texts["broken"] = func(context.Context) error { return errNoAnswer }
		require.ErrorIs(w, run(p, "broken"), errNoAnswer)
		require.NoError(w, run(p, "x"))
		require.Equal(w, []int{1, 1, 2}, w.ran)
		p.Close()
	})
}

func TestAStatementThatFailsForGoodIsTriedOnNewConnections(t *testing.T) {
	world(t, 0, func(w *database) {
		w.db.SetMaxIdleConns(9)
		var all []*sql.Conn
		for range 8 {
			all = append(all, w.application())
		}
		for _, conn := range all[:7] {
			require.NoError(w, conn.Close())
		}
		p := w.join(Claim, 1)
		defer p.Close()
		old := 8 // connections
		fail := func(number int) error {
			if number <= old {
				return state("0A000")
			}
			return nil
		}
		w.texts["fails"] = func(context.Context) error { return fail(w.lastRan()) }
		require.NoError(w, run(p, "fails"))
		require.Equal(w, 9, w.lastRan(), "it was not tried on the other idle connections")
		require.Equal(w, 2, w.opened(), "which are closed")
		old = 20
		w.ran = nil
		require.ErrorIs(w, run(p, "fails"), state("0A000"))
		require.Equal(w, []int{9, 10, 11, 12}, w.ran, "three times")
		require.NoError(w, all[7].Close())
		w.ran = nil
		require.ErrorIs(w, run(p, "fails"), state("0A000"))
		require.Equal(w, 1, len(w.ran), "new connections were no help the last time")
		require.NoError(w, run(p, "x"))
		w.ran = nil
		require.ErrorIs(w, run(p, "fails"), state("0A000"))
		require.Equal(w, 4, len(w.ran), "they might help again")
	})
}

// Housekeeping is repeated later. Its refusals, for example of a role that may not write a table, close no idle
// connections.
func TestAnOldConnectionThatComesBackMeanwhileIsNotTheLastTry(t *testing.T) {
	world(t, 0, func(w *database) {
		w.db.SetMaxIdleConns(5)
		old := []*sql.Conn{w.application(), w.application()} // in use when the idle ones are closed
		p := w.join(Claim, 1)
		defer p.Close()
		require.NoError(w, run(p, "x"))
		require.Equal(w, 3, w.lastRan())
		w.texts["fails"] = func(context.Context) error {
			if w.lastRan() <= 3 {
				return state("0A000")
			}
			return nil
		}
		w.left = func() { // the failed one is closed: now another user returns an old one
			if len(old) > 0 {
				conn := old[0]
				old = old[1:]
				w.mu.Unlock()
				defer w.mu.Lock()
				require.NoError(w, conn.Close())
			}
		}
		require.NoError(w, run(p, "fails"))
		require.Equal(w, []int{3, 3, 1, 2, 4}, w.ran)
	})
}

func TestAStatementThatCanWaitIsNotTriedOnANewConnection(t *testing.T) {
	world(t, 0, func(w *database) {
		w.db.SetMaxIdleConns(5)
		all := []*sql.Conn{w.application(), w.application(), w.application()}
		for _, conn := range all {
			require.NoError(w, conn.Close())
		}
		p := w.join(Note, 1)
		defer p.Close()
		w.texts["refused"] = func(context.Context) error { return state("42501") }
		for range 3 {
			require.ErrorIs(w, run(p, "refused"), state("42501"))
		}
		require.Equal(w, 3, len(w.ran))
		require.NoError(w, run(p, "x"))
	})
}

func TestAClosedPoolOfConnectionsIsPermanent(t *testing.T) {
	pool, err := puddle.NewPool(&puddle.Config[int]{MaxSize: 1})
	require.NoError(t, err)
	pool.Close()
	_, err = pool.Acquire(t.Context()) // as a pgxpool.Pool does
	db := sql.OpenDB(nil)
	require.False(t, closed(db))
	require.NoError(t, db.Close())
	require.True(t, closed(db))
	for _, err := range []error{err, db.Ping()} {
		require.Equal(t, sqlbatch.Permanent, Classify(postgres.Dialect, unconnected(err)), "%v", err)
	}
}

// state is an error of PostgreSQL.
type state string

func (s state) Error() string    { return string(s) }
func (s state) SQLState() string { return string(s) }

func TestAnAnswerAfterTheEndOfItsContextIsNoSuccess(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Enqueue, 1)
		w.texts["late"] = func(ctx context.Context) error { <-ctx.Done(); return nil }
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err := p.Run(ctx, sqlbatch.Statement{Text: "late"}, nil)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.Equal(w, sqlbatch.Unknown, Classify(postgres.Dialect, err))
		w.texts["commit"] = func(context.Context) error { time.Sleep(time.Minute); return nil }
		ctx, cancel = context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err = p.InTx(ctx, func(*sql.Tx) error { return nil })
		require.ErrorIs(w, err, context.Canceled)
		require.Equal(w, sqlbatch.Unknown, Classify(postgres.Dialect, err))
		p.Close()
	})
}

func TestAStatementThatTheDriverKeepsIsLeftBehind(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Settle, 2)
		end := w.hang("hangs")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		_, left, err := p.Items(ctx, sqlbatch.Statement{Text: "hangs"}, nil)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.True(w, left)
		require.Equal(w, time.Second+driverGrace, time.Since(began))
		require.Equal(w, sqlbatch.Unknown, Classify(postgres.Dialect, err))
		require.NoError(w, run(p, "x"), "on the other session")
		closed := make(chan struct{})
		go func() { p.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			require.Fail(w, "Close must wait for the statement that was left behind")
		default:
		}
		end()
		<-closed
		_, _, err = p.Items(context.Background(), sqlbatch.Statement{Text: "x"}, nil)
		require.ErrorIs(w, err, ErrClosed)
	})
}

func TestATransactionThatDidNotReachItsCommitHasNoUnknownOutcome(t *testing.T) {
	world(t, 0, func(w *database) {
		p := w.join(Pipe, 1)
		ctx, cancel := context.WithCancel(context.Background())
		for _, f := range []func(*sql.Tx) error{
			func(*sql.Tx) error { return errNoAnswer },
			func(*sql.Tx) error { cancel(); synctest.Wait(); return nil },
		} {
			err := p.InTx(ctx, f)
			require.Error(w, err)
			require.Equal(w, sqlbatch.Refused, Classify(postgres.Dialect, err))
		}
		require.Equal(w, []error{nil, nil}, w.undone, "a driver might not wait for the answer if the context has ended")
		require.NoError(w, p.InTx(context.Background(), func(*sql.Tx) error { return nil }))
		p.Close()
	})
}

func TestTheEndOfAPoolEndsAttemptsToConnect(t *testing.T) {
	world(t, 0, func(w *database) {
		gate := make(chan struct{})
		// Like a driver that waits for a greeting
		w.connect = func(context.Context) error { <-gate; return errNoAnswer }
		p := w.join(Claim, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := p.Run(ctx, sqlbatch.Statement{Text: "x"}, nil)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		began := time.Now()
		p.Close()
		require.Zero(w, time.Since(began))
		close(gate)
	})
}
