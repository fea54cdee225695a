package postgres_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// hot returns how many rows were updated in place, and how many in all.
func (q *serverQueue) hot() (hot, all int64) {
	q.Helper()
	require.Eventually(q, func() bool {
		q.exec(`SELECT pg_stat_clear_snapshot()`)
		require.NoError(q, q.db.QueryRow(`SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'chanq_orders'`).Scan(&hot, &all))
		return all > 0
	}, time.Minute, 10*time.Millisecond)
	return hot, all
}

func TestAMarkOfAnOrderedQueueTouchesNoIndex(t *testing.T) {
	q, r := newOrdered(t)
	q.db.SetMaxOpenConns(1)
	rows, ids := make([]sqlbatch.Row, 500), make([][16]byte, 500)
	for i := range rows {
		ids[i] = [16]byte{byte(i >> 8), byte(i)}
		rows[i] = sqlbatch.Row{ID: ids[i], Slot: i % slotCount, OrderKey: fmt.Sprint(i), Body: make([]byte, 200)}
	}
	q.enqueue(rows...)
	var marks []sqlbatch.MarkItem
	for _, item := range q.settled(q.db, q.Look(ids)) {
		marks = append(marks, sqlbatch.MarkItem{Item: item, SlotFence: r.Slots[0].Fence})
	}
	require.Len(t, q.rows(q.db, q.MarkOrdered(consumer, marks)), 500)
	hot, all := q.hot()
	require.Equal(t, int64(500), all)
	require.GreaterOrEqual(t, hot, int64(490))
}

// A read walks neither the entries up to its beginning nor those behind its rows.
func TestAReadOfAnOrderedQueueReadsNoBacklog(t *testing.T) {
	q, r := newOrdered(t)
	q.fillSlots(64 * 11 * 20)
	require.NoError(t, q.db.QueryRow(`SELECT max(seq) FROM chanq_orders`).Scan(&r.From))
	q.fillSlots(64 * 11 * 20)
	r.Cursor, r.Rows = r.From, 100
	require.LessOrEqual(t, q.read(q.Read(r)), int64(100))
	r.Cursor, r.Rows, r.Behind = math.MaxInt64, 0, 100
	require.LessOrEqual(t, q.read(q.Read(r)), int64(100))
}
