package guides

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/chanqtest"
)

type mail struct{ To string }

var welcomeMail = chanqjobs.Define[mail]("welcome")

// mails is the program under test: it opens its queue, and has a worker.
type mails struct {
	jobs *chanq.Queue[chanqjobs.Job]
	send func(ctx context.Context, to string) error
}

func openMails(t *testing.T, db *sql.DB, send func(ctx context.Context, to string) error) *mails {
	require.NoError(t, chanq.Migrate(t.Context(), db, "jobs", chanq.Config{}))
	jobs, err := chanqjobs.Open(t.Context(), db, "jobs", chanq.Config{})
	require.NoError(t, err)
	return &mails{jobs, send}
}

func (m *mails) work(ctx context.Context) error {
	mux := chanqjobs.NewMux()
	chanqjobs.Handle(mux, welcomeMail, func(ctx context.Context, lease *chanq.Lease[mail]) error {
		if err := m.send(ctx, lease.Body.To); err != nil {
			return chanq.RetryAfter(24*time.Hour, err)
		}
		return nil
	}, chanqjobs.Options{})
	return chanqjobs.Run(ctx, chanqjobs.Work(m.jobs, 4, mux.Handle, chanq.ConsumerConfig{}))
}

func TestAFailedMailIsSentTheNextDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a bubble: time passes when all goroutines wait
		fail, sent := errors.New("the mail server is away"), 0
		mails := openMails(t, chanqtest.DB(t), func(context.Context, string) error {
			if fail == nil {
				sent++
			}
			return fail
		})
		_, err := mails.jobs.Send(t.Context(), welcomeMail.New(mail{"Ada"}))
		require.NoError(t, err)

		chanqtest.Drain(t, mails.work) // runs it until all queues are idle
		require.Equal(t, `welcome {"To":"Ada"} in 24h0m0s attempts 1: the mail server is away`,
			chanqtest.Sent(t, mails.jobs)[0].String())

		fail = nil
		time.Sleep(24 * time.Hour) // takes no time
		chanqtest.Drain(t, mails.work)
		require.Equal(t, 1, sent)
		require.Empty(t, chanqtest.Sent(t, mails.jobs))
	})
}

func TestOneHandlerIsCalled(t *testing.T) {
	db := chanqtest.DB(t)
	names := openQueue[string](t.Context(), db, "names", chanq.Spec{})
	_, err := names.Send(t.Context(), chanq.Msg("Ada"), chanq.Msg(""))
	require.NoError(t, err)

	outcomes := chanqtest.Work(t, names, func(_ context.Context, lease *chanq.Lease[string]) error {
		if lease.Body == "" {
			return chanq.DeadLetter(errors.New("no name"))
		}
		return nil
	})
	require.Equal(t, "attempt 1: ack", outcomes[0].String())
	require.Equal(t, "attempt 1: dead-letter: no name", outcomes[1].String())
}

// book stores an order and acks its message in one transaction.
func book(db *sql.DB) chanq.Handler[int] {
	return func(ctx context.Context, lease *chanq.Lease[int]) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO booked (number) VALUES (?)", lease.Body); err != nil {
				return err
			}
			return lease.AckTx(ctx, tx)
		})
	}
}

// bookTwice is wrong: a crash after its statement repeats it.
func bookTwice(db *sql.DB) chanq.Handler[int] {
	return func(ctx context.Context, lease *chanq.Lease[int]) error {
		_, err := db.ExecContext(ctx, "INSERT INTO booked (number) VALUES (?)", lease.Body)
		return err
	}
}

// booked sends an order, kills its worker where crash says, and returns how often the order was booked.
func booked(t *testing.T, crash func(testing.TB, *sql.DB), handler func(*sql.DB) chanq.Handler[int]) (n int) {
	db := chanqtest.DB(t)
	orders := openQueue[int](t.Context(), db, "orders", chanq.Spec{})
	_, err := db.ExecContext(t.Context(), "CREATE TABLE booked (number INTEGER NOT NULL)")
	require.NoError(t, err)
	_, err = orders.Send(t.Context(), chanq.Msg(7))
	require.NoError(t, err)
	crash(t, db)
	chanqtest.Drain(t, chanqjobs.Work(orders, 1, handler(db), chanq.ConsumerConfig{}))
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM booked").Scan(&n))
	return n
}

func TestAnOrderIsBookedOnceWhereverItsWorkerDies(t *testing.T) {
	for crash := range chanqtest.Crashes(t) {
		synctest.Test(t, func(t *testing.T) {
			require.Equal(t, 1, booked(t, crash, book))
		})
	}
}

func TestCrashesFindAHandlerThatBooksTwice(t *testing.T) {
	twice := 0
	for crash := range chanqtest.Crashes(t) {
		synctest.Test(t, func(t *testing.T) {
			if booked(t, crash, bookTwice) == 2 {
				twice++
			}
		})
	}
	require.Positive(t, twice)
}

func TestADayPassesOutsideOfABubble(t *testing.T) {
	db := chanqtest.DB(t) // or chanqtest.Postgres(t)
	names := openQueue[string](t.Context(), db, "names", chanq.Spec{})
	_, err := names.Send(t.Context(), chanq.Message[string]{Body: "Ada", Delay: 24 * time.Hour})
	require.NoError(t, err)
	hello := func(context.Context, *chanq.Lease[string]) error { return nil }
	require.Empty(t, chanqtest.Work(t, names, hello))

	chanqtest.Travel(t, db, 24*time.Hour)
	require.Len(t, chanqtest.Work(t, names, hello), 1)
}
