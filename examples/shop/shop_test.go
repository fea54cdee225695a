package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/chanqtest"
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
	poor    map[string]bool   // customers
	mailErr error
	during  func() // a charge
}

func (f *fakes) Charge(_ context.Context, key string, o order) error {
	if f.during != nil {
		f.during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.poor[o.Customer] {
		return errDeclined
	}
	f.charged[key] = o.Cents
	return nil
}

func (f *fakes) Mail(_ context.Context, key, to, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mailErr != nil {
		return f.mailErr
	}
	f.mails[key] = to
	return nil
}

// opened opens the shop in a new database.
func opened(t *testing.T) (*shop, *fakes, *sql.DB) {
	db, f := chanqtest.DB(t), &fakes{charged: map[string]int{}, mails: map[string]string{}, poor: map[string]bool{}}
	s, err := open(t.Context(), db, f)
	require.NoError(t, err)
	return s, f, db
}

func state(t *testing.T, s *shop, id string) (state string) {
	require.NoError(t, s.db.QueryRow("SELECT state FROM orders WHERE id = ?", id).Scan(&state))
	return state
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}

func TestACheckoutIsChargedShippedAndAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, db := opened(t)
		for range 2 { // the client has not received the first answer
			require.NoError(t, s.checkout(t.Context(), order{"1", "ada", 1200}))
		}
		sent := chanqtest.Sent(t, s.jobs)
		require.Len(t, sent, 2)
		require.Equal(t, `charge {"ID":"1","Customer":"ada","Cents":1200}`, sent[0].String())
		require.Equal(t, `lapse 1 in 1h0m0s`, sent[1].String())
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

func TestAnOrderWithoutMoneyLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, db := opened(t)
		f.poor["bob"], f.poor["eve"] = true, true
		require.NoError(t, s.checkout(t.Context(), order{"1", "bob", 100}))
		require.NoError(t, s.checkout(t.Context(), order{"2", "eve", 100}))
		for minutes := range 8 {
			f.poor["eve"] = minutes < 3
			chanqtest.Drain(t, s.work)
			time.Sleep(10 * time.Minute)
		}
		require.Equal(t, "lapsed", state(t, s, "1"))
		require.Equal(t, "shipped", state(t, s, "2"))
		require.Equal(t, map[string]int{"2": 100}, f.charged)
		require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM parcels"))
		require.Empty(t, chanqtest.Sent(t, s.jobs))
	})
}

// The jobs that lapse the orders become due while the bank works.
func TestAnOrderLapsesAfterItsChargeHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := opened(t)
		f.poor["bob"] = true
		f.during = func() {
			for _, m := range chanqtest.Sent(t, s.jobs) {
				_, err := s.jobs.RunNow(t.Context(), m.ID)
				require.NoError(t, err)
			}
			time.Sleep(10 * time.Second)
		}
		for i, customer := range []string{"ada", "bob"} {
			require.NoError(t, s.checkout(t.Context(), order{string(rune('1' + i)), customer, 100}))
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
