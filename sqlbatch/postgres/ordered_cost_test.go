package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// hot is how many rows were updated in place, and how many in all.
func (q *serverQueue) hot() (hot, all int64) {
	q.Helper()
	require.Eventually(q, func() bool {
		q.exec(`SELECT pg_stat_clear_snapshot()`)
		require.NoError(q, q.db.QueryRow(`SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'chanq_orders'`).Scan(&hot, &all))
		return all > 0
	}, time.Minute, 10*time.Millisecond)
	return hot, all
}

func TestAClaimFromSlotsTouchesNoIndex(t *testing.T) {
	q, c := newOrdered(t)
	q.db.SetMaxOpenConns(1)
	rows := make([]sqlbatch.Row, 500)
	for i := range rows {
		rows[i] = sqlbatch.Row{ID: [16]byte{byte(i >> 8), byte(i)}, Slot: i % slotCount, OrderKey: fmt.Sprint(i), Body: make([]byte, 200)}
	}
	q.enqueue(rows...)
	leased := 0
	for _, row := range q.rows(q.db, q.ClaimSlots(*c)) {
		if row[0] != nil {
			leased++
		}
	}
	require.Equal(t, 500, leased)
	hot, all := q.hot()
	require.Equal(t, int64(500), all)
	require.GreaterOrEqual(t, hot, int64(490))
}

// What waits behind the mark, and behind the first that have room, is not read.
func TestAClaimFromSlotsReadsNoBacklog(t *testing.T) {
	q, c := newOrdered(t)
	q.fillSlots(64 * 11 * 20)
	var top int64
	require.NoError(t, q.db.QueryRow(`SELECT max(seq) FROM chanq_orders`).Scan(&top))
	q.fillSlots(64 * 11 * 20)
	c.Rows = 100
	for i := range c.Parts {
		c.Parts[i].From, c.Parts[i].Limit = top, 10
	}
	require.LessOrEqual(t, q.read(q.ClaimSlots(*c)), int64(3*100+64), "each once; who is walked past and how many were leased is looked up by id")
	c.Parts = c.Parts[:4]
	require.LessOrEqual(t, q.read(q.ClaimSlots(*c)), int64(3*40+64), "ten of each slot")
}

// ready stores that many claimable messages in each of these slots, in turns.
func (q *serverQueue) ready(slots, each int) {
	q.Helper()
	q.exec(`INSERT INTO chanq_orders (slot, seq, order_key, body)
SELECT i % $1::int, nextval('chanq_orders_seq') << 20, 'k' || i % 1000, convert_to(repeat('x', 100), 'UTF8') FROM generate_series(0, $1::int * $2::int - 1) AS i`, slots, each)
}

// blocks is how many pages of the table and its indexes a claim of 640 asks for.
func (q *serverQueue) blocks(c *sqlbatch.SlotClaim) int64 {
	q.Helper()
	tx := q.begin()
	defer tx.Rollback()
	count := func() (n int64) { // since this session last told the server
		require.NoError(q, tx.QueryRow(`SELECT pg_stat_get_xact_blocks_fetched('chanq_orders'::regclass) +
  (SELECT sum(pg_stat_get_xact_blocks_fetched(indexrelid)) FROM pg_index WHERE indrelid = 'chanq_orders'::regclass)`).Scan(&n))
		return n
	}
	before := count()
	require.Len(q, q.claimSlots(tx, c).rows, 640)
	return count() - before
}

// Pages stand for time, which no test can rely on.
func TestAClaimFromSlotsCostsTheSameBesideABacklogAndFromManySlots(t *testing.T) {
	q, c := newOrdered(t)
	c.Rows = 640
	q.ready(64, 10)
	alone := q.blocks(c)
	q.exec(`TRUNCATE chanq_orders`)
	q.ready(1, 640)
	one := q.blocks(c)
	require.LessOrEqual(t, alone, one*13/10, "of many slots, instead of one")

	q.exec(`TRUNCATE chanq_orders`)
	q.ready(64, 500)
	var top int64
	require.NoError(t, q.db.QueryRow(`SELECT max(seq) FROM chanq_orders`).Scan(&top))
	q.ready(64, 10)
	q.ready(1, 10_000) // behind the room that a slot has
	for i := range c.Parts {
		c.Parts[i].From, c.Parts[i].Limit = top, 10
	}
	require.LessOrEqual(t, q.blocks(c), alone*13/10, "beside a backlog")
}
