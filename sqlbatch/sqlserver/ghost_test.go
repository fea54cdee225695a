package sqlserver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

// Empty reads the newest message first, which is behind all ghosts of older ones. If there is none it reads the ghosts
// twice.
func TestEmptyReadsNoGhostsOfOlderMessages(t *testing.T) {
	t.Parallel()
	const n = 500
	r := &reader{queue: newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), KeepGhosts: true})}
	r.store(n, 0)
	items := r.claim(n, time.Minute)
	for ; len(items) > 0; items = items[100:] {
		r.rows(r.Ack(items[:100]))
	}
	read := func() int64 {
		r.ResetQueryStats()
		r.empty()
		return cost(r.queue, "AS empty").KeysRead
	}
	require.True(t, r.empty())
	require.LessOrEqual(t, read(), int64(2*n+2))
	r.store(2, 0)
	require.False(t, r.empty())
	require.LessOrEqual(t, read(), int64(1))
}

// A scan with row locks would wait at the second message, behind the ghost of the first, and the third is stored in the
// part that was already scanned.
func TestEmptyMissesNoMessageStoredBehindItsScan(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), KeepGhosts: true})
	at := func(n byte) []sqlbatch.Row { return []sqlbatch.Row{{ID: [16]byte{n}, Body: []byte("b")}} }
	for _, ids := range [][3]byte{{2, 1, 3}, {12, 13, 11}} { // a scan can begin at either end
		q.exec(q.Enqueue(append(at(ids[0]), at(ids[1])...)))
		require.Len(t, q.rows(q.Cancel([][16]byte{{ids[0]}})), 1)
		tx := begin(t, ctx, q)
		rows, err := suite.Rows(ctx, tx, q.InTx().Cancel([][16]byte{{ids[1]}}))
		require.NoError(t, err)
		require.Len(t, rows, 1)
		empty := make(chan bool, 1)
		go func() {
			rows, err := suite.Rows(ctx, q.DB(), q.Empty())
			empty <- err == nil && rows[0][0] == int64(1)
		}()
		require.Eventually(t, func() bool { return len(empty) > 0 || len(waiting(q)) > 0 }, testdb.Patience, time.Millisecond)
		_, err = suite.Rows(ctx, tx, q.InTx().Enqueue(at(ids[2])))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.False(t, <-empty)
		require.Len(t, q.rows(q.Cancel([][16]byte{{ids[2]}})), 1)
	}
}

// The server's cleanup removes ghosts at its own pace, and none while a snapshot is open: here it never runs.
func TestAClaimFromItsHeadsReadsNoGhostsBeforeThem(t *testing.T) {
	t.Parallel()
	const group, batch = 500, 100 // due at one time, and claimed at once
	r := &reader{queue: newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true, KeepGhosts: true})}
	// turn sends, claims and acks one group, and returns the most keys that a claim read, and the most that a look read.
	turn := func() (claim, look int64) {
		r.store(group, 0)
		for range group / batch {
			r.ResetQueryStats()
			items := r.claim(batch, time.Minute)
			claim = max(claim, cost(r.queue, "leased_by = @by").KeysRead)
			require.Len(t, r.rows(r.Ack(items)), batch)
		}
		require.Nil(t, r.rows(r.NextDue(r.heads))[0][0])
		return claim, cost(r.queue, "due_in_ms").KeysRead
	}
	for range 20 {
		claim, look := turn()
		require.LessOrEqual(t, claim, keysOfClaim+2*group, "of this group, and of the previous one")
		require.LessOrEqual(t, look, int64(2*group))
	}

	r.heads = sqlbatch.Heads{}
	r.store(batch, 0)
	r.ResetQueryStats()
	rescanned := r.rows(r.Rescan())
	require.Greater(t, cost(r.queue, "AS due_in,").KeysRead, int64(20*group), "a look from the beginning walks them all")
	require.Equal(t, []any{int64(0), r.Clock().Now().Add(-time.Second).UnixMilli(), int64(-1000), int64(0)}, rescanned[2][:4])
	r.claim(batch, time.Minute)
	require.Greater(t, cost(r.queue, "leased_by = @by").KeysRead, int64(20*group), "as would a claim")

	r.CleanGhosts()
	r.ResetQueryStats()
	r.rows(r.Rescan())
	require.LessOrEqual(t, cost(r.queue, "AS due_in,").KeysRead, int64(3*batch+10), "for a free message, for expired leases, and for the end of a lease")
}
