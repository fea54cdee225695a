package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// waitForLock waits until one session of the database waits for a lock.
func (q *serverQueue) waitForLock() {
	q.Helper()
	require.Eventually(q, func() bool {
		var waiting int
		err := q.db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, time.Minute, time.Millisecond)
}

// behind runs a statement that must wait until release is called, and returns its result.
func (q *serverQueue) behind(st sqlbatch.Statement, release func() error) (rows [][]any, err error) {
	q.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rows, err = suite.Rows(q.ctx, q.db, st)
	}()
	q.waitForLock()
	require.NoError(q, release())
	<-done
	return rows, err
}

func TestClaimLocksOnlyWhatItTakesAndNeverBlocks(t *testing.T) {
	q := newQueue(t)
	var rows []sqlbatch.Row
	for i := range byte(20) {
		rows = append(rows, sqlbatch.Row{ID: id(i), Priority: int8(i%4) - 1})
	}
	q.enqueue(rows...)
	first := q.begin()
	require.Len(t, q.claim(first, 7), 7)

	second := q.begin()
	require.Len(t, q.claim(second, 1000), 13, "the seven are skipped, and nothing else is locked")
	require.Empty(t, q.claim(q.db, 1000))
	require.LessOrEqual(t, q.rows(q.db, q.NextDue(sqlbatch.Heads{}))[0][0], int64(0), "an uncommitted claim changes nothing for others")
	require.NoError(t, first.Rollback())
	require.Len(t, q.claim(q.db, 1000), 7)
}

func TestClaimSkipsRowsOfOtherTransactions(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2)})
	require.Equal(t, []byte{1}, q.claim(q.db, 1))
	tx := q.begin()
	require.Len(t, q.settled(tx, q.Release(suite.Releases([]sqlbatch.Item{q.item(1)}))), 1)
	require.Empty(t, q.rows(tx, q.Queue.Enqueue([]sqlbatch.Row{{ID: id(3)}})))

	require.Equal(t, []byte{2}, q.claim(q.db, 10))
	require.NoError(t, tx.Commit())
	require.ElementsMatch(t, []byte{1, 3}, q.claim(q.db, 10))
}

// leased sends and leases messages in an empty queue, and returns their leases.
func (q *serverQueue) leased(ns ...byte) []sqlbatch.Item {
	q.Helper()
	q.exec(`TRUNCATE chanq_orders`)
	for _, n := range ns {
		q.enqueue(sqlbatch.Row{ID: id(n)})
	}
	require.Len(q, q.claim(q.db, 1000), len(ns))
	return q.items(ns...)
}

// The extender extends leases while handlers settle them.
func TestInATransactionASettleAppliesAfterTheExtensionItWaitedFor(t *testing.T) {
	q := newQueue(t)
	for name := range suite.Settles(q) {
		items := q.leased(1, 2)
		tx := q.begin()
		require.Len(t, q.settled(tx, q.Extend(suite.Consumer, items[1:], time.Hour)), 1)

		rows, err := q.behind(suite.Settles(q.InTx(), items...)[name], tx.Commit)
		require.NoError(t, err, name)
		require.Len(t, rows, 2, name)
	}
}

// TestARescueLeavesALeaseThatWasRenewedAfterItsWalk stops a rescue between its walk, which sees an expired lease, and the lock of the row.
func TestARescueLeavesALeaseThatWasRenewedAfterItsWalk(t *testing.T) {
	q := newQueue(t)
	for name, renew := range map[string]func([]sqlbatch.Item){
		"extended": func(items []sqlbatch.Item) {
			require.Len(t, q.settled(q.db, q.Extend(suite.Consumer, items, time.Hour)), 1)
		},
		"released and claimed": func(items []sqlbatch.Item) {
			require.Len(t, q.settled(q.db, q.Release(suite.Releases(items))), 1)
			require.Equal(t, []byte{1}, q.claim(q.db, 1))
		},
		"rescued and claimed": func([]sqlbatch.Item) {
			require.Len(t, q.rows(q.db, q.Rescue(sqlbatch.RescueParams{MaxCrashes: 8})), 1)
			require.Equal(t, []byte{1}, q.claim(q.db, 1))
		},
		"nacked": func(items []sqlbatch.Item) {
			require.Len(t, q.settled(q.db, q.Nack([]sqlbatch.NackItem{{Item: items[0]}})), 1)
		},
	} {
		items := q.leased(1)
		q.exec("UPDATE chanq_orders SET lease_until = lease_until - 1000000")
		rescue := q.Rescue(sqlbatch.RescueParams{MaxCrashes: 8})
		const walked = "FROM walked AS w JOIN"
		require.Equal(t, 1, strings.Count(rescue.Text, walked))
		rescue.Text = strings.Replace(rescue.Text, walked, "FROM (SELECT w.*, pg_advisory_xact_lock(42) FROM walked AS w OFFSET 0) AS w JOIN", 1)
		gate := q.begin()
		_, err := gate.Exec("SELECT pg_advisory_xact_lock(42)")
		require.NoError(t, err)
		rows, err := q.behind(rescue, func() error {
			renew(items)
			return gate.Commit()
		})
		require.NoError(t, err)
		require.Empty(t, rows, name)
		if name != "nacked" {
			require.Equal(t, "leased", q.get(1)["state"], name)
		}
	}
}

func TestASettleIsLostAfterTheClaimItWaitedFor(t *testing.T) {
	q := newQueue(t)
	for name := range suite.Settles(q) {
		items := q.leased(1)
		_, err := q.db.Exec("UPDATE chanq_orders SET lease_until = lease_until - 1000000")
		require.NoError(t, err, name)
		tx := q.begin()
		require.Len(t, q.rows(tx, q.Rescue(sqlbatch.RescueParams{MaxCrashes: 8})), 1, name)
		require.Equal(t, []byte{1}, q.claim(tx, 1), name)

		rows, err := q.behind(suite.Settles(q.InTx(), items...)[name], tx.Commit)
		require.NoError(t, err, name)
		require.Empty(t, rows, name)
		require.Equal(t, "leased", q.get(1)["state"], name)
	}
}

func TestASettleWaitsForALockedRowForLockWaitAndThenChangesNothing(t *testing.T) {
	q := newQueue(t)
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(q.ctx, `SET lock_timeout = 77777`)
	require.NoError(t, err)
	ordinary := func() (timeout string) {
		require.NoError(t, conn.QueryRowContext(q.ctx, `SHOW lock_timeout`).Scan(&timeout))
		return timeout
	}
	everything := func() (text string) {
		require.NoError(t, q.db.QueryRow(`SELECT string_agg(q::text, ' ' ORDER BY id) FROM chanq_orders AS q`).Scan(&text))
		return text
	}
	for name := range suite.Settles(q) {
		items := q.leased(1, 2, 3)
		tx := q.begin()
		_, err := tx.Exec(`SELECT FROM chanq_orders WHERE id = $1 FOR UPDATE`, fmt.Sprintf("%x", id(2)))
		require.NoError(t, err)
		before, start := everything(), time.Now()

		st := suite.Settles(q, items...)[name]
		_, err = suite.Rows(q.ctx, conn, st)
		require.Equal(t, sqlbatch.RolledBack, postgres.Dialect.Classify(err), "%s: %v", name, err)
		require.GreaterOrEqual(t, time.Since(start), sqlbatch.LockWait, name)
		require.Less(t, time.Since(start), time.Minute, name)
		require.Equal(t, before, everything(), name)
		require.Equal(t, "77777ms", ordinary(), name)

		require.NoError(t, tx.Rollback())
		require.Equal(t, items, q.settled(conn, st, items...), name)
		require.Equal(t, "77777ms", ordinary(), name)
	}
}

func TestASkippingSettleLeavesOutWhatIsLocked(t *testing.T) {
	q := newQueue(t)
	for form, skipping := range map[string]sqlbatch.Queue{"alone": q.SkipLocked(), "in a transaction": q.InTx().SkipLocked()} {
		for name := range suite.Settles(q) {
			items := q.leased(1, 2, 3)
			stale := items[2]
			stale.Fence--
			tx := q.begin()
			_, err := tx.Exec(`SELECT FROM chanq_orders WHERE id = $1 FOR UPDATE`, fmt.Sprintf("%x", id(2)))
			require.NoError(t, err)

			st := suite.Settles(skipping, items[0], items[1], stale)[name]
			require.Equal(t, items[:1], q.settled(q.db, st), "%s %s", name, form)
			require.NotContains(t, st.Text, "set_config")
			require.NoError(t, tx.Rollback())
			require.Equal(t, items[1:], q.settled(q.db, suite.Settles(skipping, items[1:]...)[name]), "%s %s", name, form)
		}
	}
}

// Settings and waits of the caller's transaction belong to the caller.
func TestInATransactionASettleHasNoSettings(t *testing.T) {
	q := postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	for name, st := range suite.Settles(q.InTx(), sqlbatch.Item{}) {
		require.NotContains(t, st.Text, "set_config", name)
		require.NotContains(t, st.Text, "SKIP LOCKED", name)
		require.Equal(t, st, suite.Settles(q.InTx().InTx(), sqlbatch.Item{})[name])
	}
}

func TestLookNeverBlocks(t *testing.T) {
	q := newQueue(t)
	items := q.leased(1, 2, 3)
	tx := q.begin()
	require.Len(t, q.settled(tx, q.InTx().Ack(items[:1])), 1)
	require.Len(t, q.settled(tx, q.InTx().Nack([]sqlbatch.NackItem{{Item: items[1]}})), 1)
	require.Equal(t, items, q.settled(q.db, q.Look([][16]byte{id(3), id(9), id(1), id(2)})), "the last committed version")
	require.NoError(t, tx.Commit())
	items[1].Fence++
	require.Equal(t, items[1:], q.settled(q.db, q.Look([][16]byte{id(1), id(2), id(3)})))
}

func TestEnqueueNewWaitsForAnOpenInsertOfTheSameKey(t *testing.T) {
	q := newQueue(t)
	for _, end := range []string{"commit", "rollback"} {
		q.exec(`TRUNCATE chanq_orders`)
		tx := q.begin()
		require.Empty(t, q.rows(tx, q.Queue.Enqueue([]sqlbatch.Row{{ID: id(1), Key: "k"}})))
		release, stored := tx.Commit, 0
		if end == "rollback" {
			release, stored = tx.Rollback, 1
		}

		rows, err := q.behind(q.EnqueueNew([]sqlbatch.Row{{ID: id(2), Key: "k"}}), release)
		require.NoError(t, err)
		require.Len(t, rows, stored, end)
	}
}

func TestMaintenanceNeverBlocks(t *testing.T) {
	q := newQueue(t)
	q.settled(q.db, q.Archive(q.leased(1, 2)))
	q.leased(3, 4)
	q.settled(q.db, q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: q.item(3)}, {Item: q.item(4)}}))
	q.enqueue(sqlbatch.Row{ID: id(5)}, sqlbatch.Row{ID: id(6)})
	q.exec(`UPDATE chanq_orders__done SET ended_at = ended_at - 10`)
	tx := q.begin()
	for _, table := range []string{"chanq_orders", "chanq_orders__dead", "chanq_orders__done"} {
		_, err := tx.Exec(`SELECT FROM ` + table + ` WHERE get_byte(uuid_send(id), 0) % 2 = 1 FOR UPDATE`)
		require.NoError(t, err)
	}

	require.Equal(t, []byte{2}, q.ids(q.db, q.Trim(sqlbatch.Done, time.Millisecond, 10, 0)))
	require.Equal(t, []byte{4}, q.ids(q.db, q.Redrive(10, nil, sqlbatch.Window{})))
	require.ElementsMatch(t, []byte{4, 6}, q.ids(q.db, q.Purge(sqlbatch.Ready, 10, sqlbatch.Window{})))
	require.NoError(t, tx.Rollback())
	require.Equal(t, []byte{1}, q.ids(q.db, q.Purge(sqlbatch.Done, 10, sqlbatch.Window{})))
	require.Equal(t, []byte{3}, q.ids(q.db, q.Purge(sqlbatch.Dead, 10, sqlbatch.Window{})))
}
