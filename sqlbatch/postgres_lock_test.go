package sqlbatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// waitForLock waits until one session of the database waits for a lock.
func (q *pgQueue) waitForLock() {
	q.Helper()
	require.Eventually(q, func() bool {
		var waiting int
		err := q.db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, 30*time.Second, time.Millisecond)
}

// behind runs a statement that has to wait until release is called, and returns
// its result.
func (q *pgQueue) behind(st sqlbatch.Statement, release func() error) (rows [][]any, err error) {
	q.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rows, err = q.tryRows(q.db, st)
	}()
	q.waitForLock()
	require.NoError(q, release())
	<-done
	return rows, err
}

func TestPostgresClaimLocksNoMoreThanItTakesAndWaitsForNobody(t *testing.T) {
	q := newPGQueue(t)
	var rows []sqlbatch.Row
	for i := range byte(20) {
		rows = append(rows, sqlbatch.Row{ID: pgID(i), Priority: int8(i%4) - 1})
	}
	q.enqueue(rows...)
	first := q.begin()
	require.Len(t, q.claim(first, 7), 7)

	second := q.begin()
	require.Len(t, q.claim(second, 1000), 13, "the seven are passed over, and nothing else is locked")
	require.Empty(t, q.claim(q.db, 1000))
	require.LessOrEqual(t, q.rows(q.db, q.NextDue())[0][0], int64(0), "an uncommitted claim changes nothing for others")
	require.NoError(t, first.Rollback())
	require.Len(t, q.claim(q.db, 1000), 7)
}

func TestPostgresClaimPassesOverRowsOfOtherTransactions(t *testing.T) {
	q := newPGQueue(t)
	q.enqueue(sqlbatch.Row{ID: pgID(1)}, sqlbatch.Row{ID: pgID(2)})
	require.Equal(t, []byte{1}, q.claim(q.db, 1))
	tx := q.begin()
	require.Len(t, q.settled(tx, q.Release([]sqlbatch.ReleaseItem{{Item: q.item(1)}})), 1)
	require.Empty(t, q.rows(tx, q.Queue.Enqueue([]sqlbatch.Row{{ID: pgID(3)}})))

	require.Equal(t, []byte{2}, q.claim(q.db, 10))
	require.NoError(t, tx.Commit())
	require.ElementsMatch(t, []byte{1, 3}, q.claim(q.db, 10))
}

// The keeper extends leases while handlers settle them.
func TestPostgresAckAppliesAfterTheExtensionItWaitedFor(t *testing.T) {
	q := newPGQueue(t)
	q.enqueue(sqlbatch.Row{ID: pgID(1)}, sqlbatch.Row{ID: pgID(2)})
	q.claim(q.db, 2)
	for name, st := range map[string]sqlbatch.Statement{
		"ack":     q.Ack(q.items(1, 2)),
		"archive": q.Archive(q.items(1, 2)),
		"nack":    q.Nack([]sqlbatch.NackItem{{Item: q.item(1)}, {Item: q.item(2)}}),
		"release": q.Release([]sqlbatch.ReleaseItem{{Item: q.item(1)}, {Item: q.item(2)}}),
		"bury":    q.Bury([]sqlbatch.BuryItem{{Item: q.item(1)}, {Item: q.item(2)}}),
		"extend":  q.Extend(q.items(1, 2), time.Hour),
	} {
		q.exec(`TRUNCATE chanq_orders`)
		q.enqueue(sqlbatch.Row{ID: pgID(1)}, sqlbatch.Row{ID: pgID(2)})
		q.claim(q.db, 2)
		tx := q.begin()
		require.Len(t, q.settled(tx, q.Extend(q.items(2), time.Hour)), 1)

		rows, err := q.behind(st, tx.Commit)
		require.NoError(t, err, name)
		require.Len(t, rows, 2, name)
	}
}

func TestPostgresAckIsLostAfterTheClaimItWaitedFor(t *testing.T) {
	q := newPGQueue(t)
	q.enqueue(sqlbatch.Row{ID: pgID(1)})
	q.ids(q.db, q.Claim(sqlbatch.ClaimParams{Rows: 1, Salt: 1, Suspects: true})) // a lease that is over at once
	tx := q.begin()
	require.Equal(t, []byte{1}, q.claim(tx, 1))

	rows, err := q.behind(q.Ack(q.items(1)), tx.Commit)
	require.NoError(t, err)
	require.Empty(t, rows)
	require.Equal(t, "leased", q.get(1)["state"])
}

func TestPostgresEnqueueNewWaitsForTheSameKeyUnderWay(t *testing.T) {
	q := newPGQueue(t)
	for _, end := range []string{"commit", "rollback"} {
		q.exec(`TRUNCATE chanq_orders`)
		tx := q.begin()
		require.Empty(t, q.rows(tx, q.Queue.Enqueue([]sqlbatch.Row{{ID: pgID(1), Key: "k"}})))
		release, stored := tx.Commit, 0
		if end == "rollback" {
			release, stored = tx.Rollback, 1
		}

		rows, err := q.behind(q.EnqueueNew([]sqlbatch.Row{{ID: pgID(2), Key: "k"}}), release)
		require.NoError(t, err)
		require.Len(t, rows, stored, end)
	}
}

func TestPostgresMaintenanceWaitsForNobody(t *testing.T) {
	q := newPGQueue(t)
	fill := func(ids ...byte) {
		for _, id := range ids {
			q.enqueue(sqlbatch.Row{ID: pgID(id)})
		}
		require.Len(t, q.claim(q.db, 10), len(ids))
	}
	fill(1, 2)
	q.settled(q.db, q.Archive(q.items(1, 2)))
	fill(3, 4)
	q.settled(q.db, q.Bury([]sqlbatch.BuryItem{{Item: q.item(3)}, {Item: q.item(4)}}))
	q.enqueue(sqlbatch.Row{ID: pgID(5)}, sqlbatch.Row{ID: pgID(6)})
	q.exec(`UPDATE chanq_orders_done SET ended_at = ended_at - 10`)
	tx := q.begin()
	for _, table := range []string{"chanq_orders", "chanq_orders_dead", "chanq_orders_done"} {
		_, err := tx.Exec(`SELECT FROM ` + table + ` WHERE get_byte(uuid_send(id), 0) % 2 = 1 FOR UPDATE`)
		require.NoError(t, err)
	}

	require.Equal(t, []byte{2}, q.ids(q.db, q.Trim(time.Millisecond, 10, 0)))
	require.Equal(t, []byte{4}, q.ids(q.db, q.Redrive(10, nil, sqlbatch.Window{})))
	require.ElementsMatch(t, []byte{4, 6}, q.ids(q.db, q.Purge(sqlbatch.Ready, 10, sqlbatch.Window{})))
	require.NoError(t, tx.Rollback())
	require.Equal(t, []byte{1}, q.ids(q.db, q.Purge(sqlbatch.Done, 10, sqlbatch.Window{})))
	require.Equal(t, []byte{3}, q.ids(q.db, q.Purge(sqlbatch.Dead, 10, sqlbatch.Window{})))
}
