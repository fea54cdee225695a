package sqlserver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/mssqltest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

// bodies claims n messages, and returns their bodies in the order of claims.
func (r *reader) bodies(n int) []byte {
	r.t.Helper()
	p := sqlbatch.ClaimParams{Rows: n, Lease: time.Minute, Salt: 1, Inline: sqlbatch.MaxBody, Heads: r.heads, Shared: r.shared}
	var got []byte
	for _, row := range r.rows(r.Claim(p)) {
		got = append(got, row[12].(string)...)
	}
	return got
}

// shared returns a queue with ten messages, of which a consumer has claimed the first five.
func shared(t *testing.T, o mssqltest.Options) *queue {
	q := newQueue(t, o)
	q.exec(q.Enqueue(makeRows(10, 0)))
	q.Clock().Advance(time.Second)
	first := &reader{queue: q, shared: true}
	require.Equal(t, []byte{0, 1, 2, 3, 4}, first.bodies(5))
	return q
}

// A consumer that lowers its own head knows of messages before those of others.
func TestOnlyASharedClaimBeginsBehindOtherConsumers(t *testing.T) {
	t.Parallel()
	q := shared(t, mssqltest.Options{ReadCommittedSnapshot: true})
	q.exec(sqlbatch.Statement{Text: "UPDATE dbo.chanq_orders SET leased_by = NULL, lease_until = '19700101' WHERE body = 0x01"})
	require.Equal(t, []byte{5, 6}, (&reader{queue: q, shared: true}).bodies(2))
	require.Equal(t, []byte{1, 7, 8}, (&reader{queue: q}).bodies(3))
	require.Equal(t, []byte{9}, (&reader{queue: q, shared: true}).bodies(10), "only a shared claim moves the head")
}

// A claim reads the head that another one has written before its commit.
func TestNoClaimWaitsForAHead(t *testing.T) {
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		for _, lock := range []string{"UPDATE dbo.chanq__heads SET place = place", "SELECT place FROM dbo.chanq__heads WITH (REPEATABLEREAD)"} {
			q := shared(t, mssqltest.Options{ReadCommittedSnapshot: rcsi})
			tx := begin(t, testdb.Soon(t), q)
			_, err := suite.Rows(t.Context(), tx, sqlbatch.Statement{Text: lock})
			require.NoError(t, err)
			claimed := make(chan int, 1)
			go func() {
				p := sqlbatch.ClaimParams{Rows: 2, Lease: time.Minute, Salt: 1, Shared: true}
				rows, _ := suite.Rows(t.Context(), q.DB(), q.Claim(p))
				claimed <- len(rows)
			}()
			require.Eventually(t, func() bool { return len(claimed) > 0 || len(waiting(q)) > 0 }, testdb.Patience, time.Millisecond)
			require.Empty(t, waiting(q), lock)
			require.Equal(t, 2, <-claimed)
		}
	}
}

// Neither a head from before the clock was set back hides messages, nor is it kept.
func TestAHeadInTheFutureDoesNotCount(t *testing.T) {
	t.Parallel()
	q := shared(t, mssqltest.Options{})
	q.exec(sqlbatch.Statement{Text: "UPDATE dbo.chanq__heads SET place = 0x7FFFFFFF0000000000000000000000000000000000000000"})
	r := &reader{queue: q, shared: true}
	require.Equal(t, []byte{5, 6}, r.bodies(2))
	q.Engine().ResetPlans()
	require.Equal(t, []byte{7}, r.bodies(1))
	require.LessOrEqual(t, cost(q, "leased_by = @by").KeysRead, int64(7), "from the head of the last claim")
}

// A program that a dump restored, or a schema that was made by hand, might have no rows of heads.
func TestClaimsWithoutHeads(t *testing.T) {
	t.Parallel()
	q := shared(t, mssqltest.Options{})
	q.exec(sqlbatch.Statement{Text: "DELETE FROM dbo.chanq__heads"})
	require.Equal(t, []byte{5, 6, 7, 8, 9}, (&reader{queue: q, shared: true}).bodies(10))
}

// Each priority has a head.
func TestEachPriorityHasASharedHead(t *testing.T) {
	t.Parallel()
	q := shared(t, mssqltest.Options{})
	q.exec(q.Enqueue(makeRows(3, sqlbatch.PriorityUrgent)))
	q.exec(q.Enqueue(makeRows(3, sqlbatch.PriorityLow)))
	q.Clock().Advance(time.Second)
	require.Equal(t, []byte{0, 1, 2, 5, 6, 7, 8, 9, 0}, (&reader{queue: q, shared: true}).bodies(9))
	q.Engine().ResetPlans()
	require.Equal(t, []byte{1}, (&reader{queue: q, shared: true}).bodies(1))
	require.LessOrEqual(t, cost(q, "leased_by = @by").KeysRead, int64(1+4+2+1))
	q.exec(q.Enqueue(makeRows(1, sqlbatch.PriorityUrgent)))
	require.Equal(t, []byte{0, 2}, (&reader{queue: q, shared: true}).bodies(2), "a later message of any priority is found")
}
