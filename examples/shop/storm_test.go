package main

import (
	"context"
	"database/sql"
	"errors"
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

// openBoth opens the shop and its world.
func openBoth(ctx context.Context, dir string) (*shop, ledger, error) {
	db, err := embedded.Open(filepath.Join(dir, "market.db"))
	world, failed := embedded.Open(filepath.Join(dir, "world.db"))
	if err := errors.Join(err, failed); err != nil {
		return nil, ledger{}, err
	}
	_, err = world.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS charged (key TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS mails (key TEXT PRIMARY KEY, text TEXT NOT NULL)`)
	s, failed := open(ctx, db, ledger{world})
	return s, ledger{world}, errors.Join(err, failed)
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
	s, _, err := openBoth(ctx, dir)
	if err != nil {
		return err
	}
	return s.work(ctx)
}

func TestThousandsOfCheckoutsSurviveKills(t *testing.T) {
	testdb.Long(t)
	const orders = 5000
	dir := t.TempDir()
	s, l, err := openBoth(t.Context(), dir)
	require.NoError(t, err)
	defer l.db.Close()
	defer s.db.Close()

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
		testdb.Eventually(t, "some orders are shipped", func() bool { return number(t, s.db, shipped) >= (kill+1)*orders/4 })
		require.NoError(t, workers[kill%2].Kill())
		workers[kill%2] = start()
	}
	clients.Wait()
	admin, err := chanqadmin.Open(t.Context(), s.db, "jobs", chanq.Config{})
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

	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(*) FROM orders WHERE state = 'shipped'"))
	require.Equal(t, orders, number(t, s.db, shipped))
	require.Equal(t, orders, number(t, s.db, "SELECT COUNT(DISTINCT order_id) FROM parcels"))
	require.Equal(t, 0, number(t, s.db, "SELECT COUNT(*) FROM chanq_jobs__dead"))
	require.Equal(t, orders, number(t, l.db, "SELECT COUNT(*) FROM charged WHERE cents = 100 + key"))
	require.Equal(t, orders, number(t, l.db, "SELECT COUNT(*) FROM charged"))
	require.Equal(t, orders, number(t, l.db, "SELECT COUNT(DISTINCT text) FROM mails"))
	require.Equal(t, orders, number(t, l.db, "SELECT COUNT(*) FROM mails"))
}
