package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

// ledger is a world with rows: a bank and a mail server that know repetitions by their keys.
type ledger struct{ db *sql.DB }

const rows = `
CREATE TABLE charged (key TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE mails (key TEXT PRIMARY KEY, text TEXT NOT NULL)`

func (l ledger) Charge(ctx context.Context, key string, o order) error {
	_, err := l.db.ExecContext(ctx, "INSERT INTO charged VALUES ($1, $2) ON CONFLICT DO NOTHING", key, o.Cents)
	return err
}

func (l ledger) Mail(ctx context.Context, key, _, text string) error {
	_, err := l.db.ExecContext(ctx, "INSERT INTO mails VALUES ($1, $2) ON CONFLICT DO NOTHING", key, text)
	return err
}

var engines = []testdb.Engine{testdb.SQLite, testdb.Postgres}

// workProcess is a worker in a process of its own.
func workProcess(ctx context.Context, p testdb.Place, _ <-chan string) error {
	db, err := p.Open()
	if err != nil {
		return err
	}
	s, err := open(ctx, db, ledger{db})
	if err != nil {
		return err
	}
	return s.work(ctx)
}

func TestThousandsOfCheckoutsSurviveKills(t *testing.T) {
	testdb.Long(t)
	testdb.OnEach(t, engines, thousands)
}

func thousands(t *testdb.World) {
	const orders = 5000
	t.Within(10 * time.Minute)
	s, err := open(t.Context(), t.Open(), ledger{t.DB})
	require.NoError(t, err)
	t.Exec(rows)

	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for i := client; i < orders; i += 4 {
				for s.checkout(t.Context(), order{fmt.Sprint(i), "ada", 100 + i}) != nil {
				}
			}
		})
	}
	defer clients.Wait()
	start := func() *child.Process {
		p, err := child.Start(t.Context(), "worker", t.Place(), nil)
		require.NoError(t, err)
		return p
	}
	workers := []*child.Process{start(), start()}
	const shipped = "SELECT COUNT(*) FROM parcels"
	for kill := range 3 {
		testdb.Eventually(t, "some orders are shipped", func() bool { return number(t, s.db, shipped) >= (kill+1)*orders/4 })
		require.NoError(t, workers[kill%2].Kill())
		workers[kill%2] = start()
	}
	clients.Wait()
	testdb.Eventually(t, "only the jobs that lapse orders are left", func() bool {
		return testdb.Counted(t, s.jobs) == chanqadmin.Stats{Scheduled: orders}
	})
	testdb.Eventually(t, "all jobs are done", func() bool {
		left, err := testdb.Peek(t.Context(), s.jobs, chanqadmin.StateScheduled, chanqadmin.MostListed)
		require.NoError(t, err)
		for _, e := range left {
			_, err := s.jobs.RunNow(t.Context(), e.ID) // an hour has passed
			require.NoError(t, err)
		}
		return len(left) == 0 && testdb.Empty(t, s.jobs)
	})
	for _, w := range workers {
		w.Stop()
		require.NoError(t, w.Wait())
	}

	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(*) FROM orders WHERE state = 'shipped'"))
	require.Equal(t, orders, number(t, s.db, shipped))
	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(DISTINCT order_id) FROM parcels"))
	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(*) FROM charged WHERE cents = 100 + CAST(key AS INTEGER)"))
	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(*) FROM charged"))
	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(DISTINCT text) FROM mails"))
	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(*) FROM mails"))
}
