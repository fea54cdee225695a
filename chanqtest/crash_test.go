package chanqtest_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
	"github.com/chanq/chanq/prove/testdb"
)

// handlers book an order. The wrong ones are the mistakes that users make.
var handlers = map[string]struct {
	idempotent bool
	handle     func(db *sql.DB) chanq.Handler[int]
}{
	"in the transaction that acks": {true, func(db *sql.DB) chanq.Handler[int] {
		return func(ctx context.Context, l *chanq.Lease[int]) error {
			return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, insert(l.Body)); err != nil {
					return err
				}
				return l.AckTx(ctx, tx)
			})
		}
	}},
	"if it is not booked": {true, func(db *sql.DB) chanq.Handler[int] {
		return func(ctx context.Context, l *chanq.Lease[int]) error {
			_, err := db.ExecContext(ctx, insert(l.Body)+fmt.Sprintf(" WHERE NOT EXISTS (SELECT 1 FROM booked WHERE id = %d)", l.Body))
			return err
		}
	}},
	"and acks later": {false, func(db *sql.DB) chanq.Handler[int] {
		return func(ctx context.Context, l *chanq.Lease[int]) error {
			_, err := db.ExecContext(ctx, insert(l.Body))
			return err
		}
	}},
	// The answer of the statement does not matter to this one: only the death of the process repeats it.
	"and ignores the error": {false, func(db *sql.DB) chanq.Handler[int] {
		return func(ctx context.Context, l *chanq.Lease[int]) error {
			_, _ = db.ExecContext(ctx, insert(l.Body))
			return nil
		}
	}},
	"in one transaction and acks in another": {false, func(db *sql.DB) chanq.Handler[int] {
		return func(ctx context.Context, l *chanq.Lease[int]) error {
			for _, do := range []func(context.Context, *sql.Tx) error{
				func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, insert(l.Body)); return err },
				func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, tx) },
			} {
				if err := chanq.InTx(ctx, db, do); err != nil {
					return err
				}
			}
			return nil
		}
	}},
}

func insert(id int) string { return fmt.Sprintf("INSERT INTO booked (id) SELECT %d", id) }

func TestCrashesTellIdempotentHandlersFromOthers(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		if !e.bubble {
			continue // each crash takes seconds there
		}
		for name, h := range handlers {
			t.Run(e.name+" "+name, func(t *testing.T) {
				t.Parallel()
				if e.name == "emulator" {
					testdb.Emulator.Require(t) // here: a skipped bubble calls no crash
				}
				crashes, wrong := 0, 0
				for crash := range chanqtest.Crashes(t) {
					testdb.InBubble(t, true, func(t *testing.T) {
						db := e.open(t)
						orders := queueOf[int](t, db, "orders", chanq.Spec{})
						_, err := db.ExecContext(t.Context(), "CREATE TABLE booked (id int NOT NULL)")
						require.NoError(t, err)
						send(t, orders, chanq.Msg(1), chanq.Msg(2))
						crash(t, db)
						chanqtest.Drain(t, worker(orders, h.handle(db)))
						require.Empty(t, chanqtest.Sent(t, orders))
						for id := range 2 {
							if number(t, db, fmt.Sprintf("SELECT COUNT(*) FROM booked WHERE id = %d", id+1)) != 1 {
								wrong++
							}
						}
					})
					crashes++
				}
				require.Equal(t, h.idempotent, wrong == 0, "%d of %d", wrong, crashes)
				require.Greater(t, crashes, 5)
				t.Logf("%d crashes, %d wrong", crashes, wrong)
			})
		}
	}
}

// The nth statement is applied. Outside of Drain and Work the program goes on.
func TestTheStatementOfACrashIsAppliedAndTheNextOneWorks(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		ctx := t.Context()
		exec := func(text string) error { _, err := db.ExecContext(ctx, text); return err }
		require.NoError(t, exec("CREATE TABLE booked (id int NOT NULL)"))
		chanqtest.Crash(t, db, 2)
		require.NoError(t, exec(insert(1)))
		require.ErrorIs(t, exec(insert(2)), chanqtest.ErrCrash)
		require.NoError(t, exec(insert(3)))
		chanqtest.Crash(t, db, 1)
		returning := insert(4) + " RETURNING id"
		if strings.HasSuffix(t.Name(), "emulator") {
			returning = "INSERT INTO booked (id) OUTPUT inserted.id SELECT 4"
		}
		var id int
		require.ErrorIs(t, db.QueryRowContext(ctx, returning).Scan(&id), chanqtest.ErrCrash)
		require.Equal(t, 4, number(t, db, "SELECT COUNT(*) FROM booked"))

		for nth, stored := range map[int]int{1: 0, 2: 0, 3: 1} { // BEGIN, INSERT, COMMIT
			require.NoError(t, exec("DELETE FROM booked"))
			chanqtest.Crash(t, db, nth)
			err := chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, insert(1))
				return err
			})
			require.ErrorIs(t, err, chanqtest.ErrCrash)
			require.Equal(t, stored, number(t, db, "SELECT COUNT(*) FROM booked"), "after statement %d", nth)
		}
	})
}

// A program that has died does nothing until Work returns.
func TestAProgramIsDeadUntilWorkReturns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		orders := queueOf[int](t, db, "orders", chanq.Spec{})
		_, err := db.ExecContext(t.Context(), "CREATE TABLE booked (id int NOT NULL)")
		require.NoError(t, err)
		send(t, orders, chanq.Msg(1))
		var after error
		handler := func(ctx context.Context, l *chanq.Lease[int]) error {
			chanqtest.Crash(t, db, 1)
			_, err := db.ExecContext(ctx, insert(1))
			_, after = db.ExecContext(ctx, insert(2))
			return err
		}
		outcomes := chanqtest.Work(t, orders, handler)
		require.Len(t, outcomes, 1)
		require.ErrorIs(t, outcomes[0].Err, chanqtest.ErrCrash)
		require.ErrorIs(t, after, chanqtest.ErrCrash)
		require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM booked"))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"attempt 2: ack"}, lines(chanqtest.Work(t, orders, func(context.Context, *chanq.Lease[int]) error { return nil })))
	})
}

func TestMistakesWithCrashesAreNamed(t *testing.T) {
	t.Parallel()
	require.Contains(t, failure(t, func(tb testing.TB) {
		for range chanqtest.Crashes(tb) {
		}
	}), "call crash(t, db)")
	require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Crash(tb, chanqtest.DB(tb), 0) }), "nth is 0")
	require.Contains(t, failure(t, func(tb testing.TB) {
		db := chanqtest.DB(tb)
		chanqtest.Crash(tb, db, 3)
		number(tb, db, "SELECT 1")
		number(tb, db, "SELECT 2")
	}), "the program executed only 2 statements, and was to be killed after statement 3")
	require.Contains(t, failure(t, func(tb testing.TB) {
		for crash := range chanqtest.Crashes(tb) {
			used, other := chanqtest.DB(tb), chanqtest.DB(tb)
			crash(tb, other)
			number(tb, used, "SELECT 1")
		}
	}), "the program has executed no statement after crash(t, db)")
	n := 0
	require.Contains(t, failure(t, func(tb testing.TB) {
		for crash := range chanqtest.Crashes(tb) { // does something else each time
			db := chanqtest.DB(tb)
			crash(tb, db)
			n++
			_, err := db.Exec(fmt.Sprintf("SELECT %d", n))
			require.ErrorIs(tb, err, chanqtest.ErrCrash)
		}
	}), "more than 2000 statements")
}
