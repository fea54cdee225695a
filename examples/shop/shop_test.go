package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"worker": child.Does(workProcess)})
	log.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// fakes is a world in memory, of which each key counts once.
type fakes struct {
	mu      sync.Mutex
	charged map[string]int    // cents
	mails   map[string]string // the customer
	refuses map[string]error  // by customer
	mailErr error
	during  func() // a charge
}

func (f *fakes) Charge(_ context.Context, key string, o order) error {
	if f.during != nil {
		f.during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.refuses[o.Customer]
	if err == nil {
		f.charged[key] = o.Cents
	}
	return err
}

func (f *fakes) Mail(_ context.Context, key, to, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mailErr == nil {
		f.mails[key] = to
	}
	return f.mailErr
}

// opened opens the shop in a new database.
func opened(t *testing.T) (*shop, *fakes, *sql.DB) {
	db, f := chanqtest.DB(t), &fakes{charged: map[string]int{}, mails: map[string]string{}, refuses: map[string]error{}}
	s, err := open(t.Context(), db, f)
	require.NoError(t, err)
	return s, f, db
}

func state(t *testing.T, s *shop, id string) (state string) {
	require.NoError(t, s.db.QueryRow("SELECT state FROM orders WHERE id = $1", id).Scan(&state))
	return state
}

func number(t testdb.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}

func TestACheckoutIsChargedShippedAndAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, db := opened(t)
		for range 2 { // the client has not received the first answer
			require.NoError(t, s.checkout(t.Context(), order{"1", "ada", 1200}))
		}
		require.Equal(t, `[charge {"ID":"1","Customer":"ada","Cents":1200} lapse 1 in 1h0m0s]`, fmt.Sprint(chanqtest.Sent(t, s.jobs)))
		chanqtest.Drain(t, s.work)
		require.Equal(t, "shipped", state(t, s, "1"))
		require.Equal(t, map[string]int{"1": 1200}, f.charged)
		require.Len(t, f.mails, 1)
		require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM parcels"))
		time.Sleep(patience)
		chanqtest.Drain(t, s.work)
		require.Equal(t, "shipped", state(t, s, "1"))
		require.Empty(t, chanqtest.Sent(t, s.jobs))
	})
}

// Bob has no money, eve has it later, the charge of carl dies, and another attempt takes the money of dan.
func TestAnOrderWithoutMoneyLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, db := opened(t)
		f.refuses = map[string]error{"bob": errDeclined, "carl": chanq.DeadLetter(errors.New("no card")), "dan": errDeclined}
		const paid = "UPDATE orders SET state = 'paid' WHERE customer = 'dan' AND state = 'charging'"
		f.during = func() { _, _ = db.Exec(paid) }
		for i, customer := range []string{"bob", "eve", "carl", "dan"} {
			require.NoError(t, s.checkout(t.Context(), order{fmt.Sprint(i + 1), customer, 100}))
		}
		for minutes := range 8 {
			f.refuses["eve"] = map[bool]error{true: errDeclined}[minutes < 3]
			chanqtest.Drain(t, s.work)
			time.Sleep(10 * time.Minute)
		}
		require.Equal(t, "lapsed shipped lapsed paid", state(t, s, "1")+" "+state(t, s, "2")+" "+state(t, s, "3")+" "+state(t, s, "4"))
		require.Equal(t, map[string]int{"2": 100}, f.charged)
		require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM parcels"))
		require.Empty(t, chanqtest.Sent(t, s.jobs))
	})
}

// The jobs that lapse the orders become due while the bank works.
func TestAnOrderLapsesAfterItsChargeHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := opened(t)
		f.refuses["bob"] = errDeclined
		f.during = func() {
			for _, m := range chanqtest.Sent(t, s.jobs) {
				_, err := s.jobs.RunNow(t.Context(), m.ID)
				require.NoError(t, err)
			}
			time.Sleep(10 * time.Second)
		}
		for i, customer := range []string{"ada", "bob"} {
			require.NoError(t, s.checkout(t.Context(), order{fmt.Sprint(i + 1), customer, 100}))
			chanqtest.Drain(t, s.work)
		}
		time.Sleep(5 * time.Minute) // its charge is tried again in ten
		chanqtest.Drain(t, s.work)
		require.Equal(t, []string{"shipped", "lapsed"}, []string{state(t, s, "1"), state(t, s, "2")})
	})
}

func TestMailsWaitForTheMailServerAndReportsComeEachDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, db := opened(t)
		f.mailErr = errors.New("503")
		chanqtest.Drain(t, s.work) // the schedule is stored
		for day := range 3 {
			require.NoError(t, s.checkout(t.Context(), order{string(rune('1' + day)), "ada", 100}))
			chanqtest.Drain(t, s.work)
			time.Sleep(24 * time.Hour)
			chanqtest.Drain(t, s.work)
		}
		require.Empty(t, f.mails)
		require.Equal(t, 123, number(t, db, "SELECT group_concat(orders, '' ORDER BY day) FROM reports"))
		f.mailErr = nil
		time.Sleep(6 * time.Hour)
		chanqtest.Drain(t, s.work)
		require.Len(t, f.mails, 3)
	})
}

// Both processes of the shop are killed after each of their statements: the client of the checkout repeats it, and the worker is started
// again.
func TestEachOrderIsDoneOnceWhereverAProcessDies(t *testing.T) {
	for crash := range chanqtest.Crashes(t) {
		synctest.Test(t, func(t *testing.T) {
			s, f, db := opened(t)
			crash(t, db)
			for s.checkout(t.Context(), order{"1", "ada", 1200}) != nil {
			}
			chanqtest.Drain(t, s.work)
			time.Sleep(24 * time.Hour)
			chanqtest.Drain(t, s.work)
			require.Equal(t, "shipped", state(t, s, "1"))
			require.Equal(t, map[string]int{"1": 1200}, f.charged)
			require.Len(t, f.mails, 1)
			require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM parcels"))
			require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM reports"))
			require.Empty(t, chanqtest.Sent(t, s.jobs))
		})
	}
}
