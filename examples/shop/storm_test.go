package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

// ledger is a world in a file: a bank and a mail server that know repetitions by their keys.
type ledger struct{ db *sql.DB }

func openLedger(ctx context.Context, dir string) (ledger, error) {
	db, err := embedded.Open(filepath.Join(dir, "world.db"))
	if err != nil {
		return ledger{}, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS charged (key TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS mails (key TEXT PRIMARY KEY, text TEXT NOT NULL)`)
	return ledger{db}, err
}

func (l ledger) Charge(ctx context.Context, key string, o order) error {
	_, err := l.db.ExecContext(ctx, "INSERT INTO charged VALUES (?, ?) ON CONFLICT DO NOTHING", key, o.Cents)
	return err
}

func (l ledger) Mail(ctx context.Context, key, _, text string) error {
	_, err := l.db.ExecContext(ctx, "INSERT INTO mails VALUES (?, ?) ON CONFLICT DO NOTHING", key, text)
	return err
}

// workProcess is a worker in a process of its own.
func workProcess(ctx context.Context, dir string, _ <-chan string) error {
	l, err := openLedger(ctx, dir)
	if err != nil {
		return err
	}
	db, err := embedded.Open(filepath.Join(dir, "market.db"))
	if err != nil {
		return err
	}
	s, err := open(ctx, db, l)
	if err != nil {
		return err
	}
	return s.work(ctx)
}

func TestThousandsOfCheckoutsSurviveKills(t *testing.T) {
	testdb.Long(t)
	const orders = 5000
	dir := t.TempDir()
	l, err := openLedger(t.Context(), dir)
	require.NoError(t, err)
	defer l.db.Close()
	db, err := embedded.Open(filepath.Join(dir, "market.db"))
	require.NoError(t, err)
	defer db.Close()
	s, err := open(t.Context(), db, l)
	require.NoError(t, err)

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
		p, err := child.Start(t.Context(), "worker", dir, nil)
		require.NoError(t, err)
		return p
	}
	workers := []*child.Process{start(), start()}
	const shipped = "SELECT COUNT(*) FROM parcels"
	for kill := range 3 {
		testdb.Eventually(t, "some orders are shipped", func() bool { return number(t, db, shipped) >= (kill+1)*orders/4 })
		require.NoError(t, workers[kill%2].Kill())
		workers[kill%2] = start()
	}
	clients.Wait()
	admin, err := chanqadmin.Open(t.Context(), db, "jobs", chanq.Config{})
	require.NoError(t, err)
	testdb.Eventually(t, "only the jobs that lapse orders are left", func() bool {
		stats, err := admin.Stats(t.Context())
		require.NoError(t, err)
		return stats.Ready+stats.Leased == 0 && stats.Scheduled == orders
	})
	testdb.Eventually(t, "all jobs are done", func() bool {
		page, err := admin.List(t.Context(), chanqadmin.Select{State: chanqadmin.StateScheduled}, chanqadmin.List{Limit: chanqadmin.MostListed})
		require.NoError(t, err)
		for _, e := range page.Entries {
			_, err := s.jobs.RunNow(t.Context(), e.ID) // an hour has passed
			require.NoError(t, err)
		}
		return len(page.Entries) == 0 && testdb.Empty(t, s.jobs)
	})
	for _, w := range workers {
		w.Stop()
		require.NoError(t, w.Wait())
	}

	require.Equal(t, orders, number(t, db, "SELECT COUNT(*) FROM orders WHERE state = 'shipped'"))
	require.Equal(t, orders, number(t, db, shipped))
	require.Equal(t, orders, number(t, db, "SELECT COUNT(DISTINCT order_id) FROM parcels"))
	require.Equal(t, 0, number(t, db, "SELECT COUNT(*) FROM chanq_jobs__dead"))
	for i := range orders {
		require.Equal(t, 100+i, number(t, l.db, fmt.Sprintf("SELECT cents FROM charged WHERE key = '%d'", i)))
	}
	require.Equal(t, orders, number(t, l.db, "SELECT COUNT(*) FROM charged"))
	require.Equal(t, orders, number(t, l.db, "SELECT COUNT(DISTINCT text) FROM mails"))
	require.Equal(t, orders, number(t, l.db, "SELECT COUNT(*) FROM mails"))
}
