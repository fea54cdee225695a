package sqlserver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// ordered is an ordered queue, and a consumer that owns all of its slots.
type ordered struct {
	*queue
	consumer [16]byte
	last     byte
	fences   []int64 // of the slots
}

func newOrdered(t testing.TB, slots int, o mssqltest.Options) *ordered {
	testdb.Emulator.Require(t)
	names := sqlbatch.Names{Queue: "orders", Slots: slots}
	q := &ordered{queue: &queue{sqlserver.Dialect.Queue(names), mssqltest.Start(t, o), t}, consumer: [16]byte{7}, fences: make([]int64, slots)}
	testdb.MigrateTables(t, sqlserver.Dialect, q.DB(), names)
	q.exec(q.Join(sqlbatch.Consumer{ID: q.consumer, For: 1000 * time.Hour}))
	q.take()
	return q
}

// take takes all slots again, with higher fences.
func (q *ordered) take() {
	q.t.Helper()
	all := make([]int, len(q.fences))
	for slot := range all {
		all[slot] = slot
	}
	rows := q.rows(q.TakeSlots(q.consumer, 1, all))
	require.Len(q.t, rows, len(all))
	for _, row := range rows {
		q.fences[row[0].(int64)] = row[1].(int64)
	}
}

// line sends n messages of a key with one statement, with numbers from 1 on.
func (q *ordered) line(on testdb.Runner, st sqlbatch.Queue, slot int, key string, n int) {
	q.t.Helper()
	rows := make([]sqlbatch.Row, n)
	for i := range rows {
		q.last++
		rows[i] = sqlbatch.Row{ID: newID(), Slot: slot, OrderKey: key, Body: []byte{q.last}}
	}
	_, err := suite.Rows(context.Background(), on, st.Enqueue(rows))
	require.NoError(q.t, err)
}

// eachReading runs a test with READ_COMMITTED_SNAPSHOT off and on, with a running clock.
func eachReading(t *testing.T, slots int, test func(t *testing.T, q *ordered)) {
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", rcsi), func(t *testing.T) {
			test(t, newOrdered(t, slots, mssqltest.Options{ReadCommittedSnapshot: rcsi}))
		})
	}
}

// No statement of a consumer waits for a lock on the row of a consumer, also of one whose membership has ended, or on the row of the queue.
func TestLockedRowsOfConsumersAndQueuesDelayNoStatementOfAConsumer(t *testing.T) {
	eachReading(t, 2, func(t *testing.T, q *ordered) {
		q.line(q.DB(), q.Queue, 0, "a", 1)
		items := q.itemOf(0)
		gone := q.consumer
		q.consumer = [16]byte{8}
		q.exec(q.Join(sqlbatch.Consumer{ID: q.consumer, For: time.Hour}))
		q.exec(sqlbatch.Statement{Text: "UPDATE dbo.chanq__consumers SET until = '19700101' WHERE id = @p1", Args: []any{gone[:]}})
		tx := begin(t, testdb.Soon(t), q.queue)
		for _, lock := range []string{"UPDATE dbo.chanq__consumers SET name = name", "UPDATE dbo.chanq__queues SET holds = holds"} {
			_, err := tx.Exec(lock)
			require.NoError(t, err)
		}
		require.Len(t, q.rows(q.Slots()), 2)
		q.take()
		require.Len(t, q.rows(q.Extend(q.consumer, items, time.Minute)), 1)
		q.requireRead(q.readOf(0, 1), []byte{1}, nil)
		require.Len(t, q.rows(q.HeldKeys([]int{0}, []string{"a"})), 1)
		require.Len(t, q.rows(q.GiveSlots(q.consumer, q.owned(0, 1))), 2)
	})
}

// The number of keys that a read touches depends neither on the messages behind its rows nor on the ghosts before it.
func TestTheKeysReadByAReadDoNotDependOnTheBacklog(t *testing.T) {
	t.Parallel()
	const rows = 64
	keys := map[string]int64{}
	for _, backlog := range []struct {
		name                   string
		slots, behind, settled int
	}{
		{name: "64 slots", slots: 64},
		{name: "64 slots, many behind", slots: 64, behind: testdb.Of(4000, 20_000)},
		{name: "64 slots, many ghosts", slots: 64, settled: testdb.Of(900, 5000)},
		{name: "one slot", slots: 1},
		{name: "one slot, many behind", slots: 1, behind: testdb.Of(4000, 20_000)},
		{name: "one slot, many ghosts", slots: 1, settled: testdb.Of(900, 5000)},
	} {
		q := newOrdered(t, backlog.slots, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true, KeepGhosts: true})
		all := make([]int, backlog.slots)
		for slot := range all {
			all[slot] = slot
		}
		r := q.readOf(all...)
		r.From = q.settle(r, backlog.settled)
		r.Cursor, r.Rows = r.From, rows
		for slot := range backlog.slots {
			q.fill(slot, rows/backlog.slots)
		}
		q.fill(0, backlog.behind)
		q.ResetQueryStats()
		require.Len(t, q.rows(q.Read(r)), rows+1)
		keys[backlog.name] = cost(q.queue, "@walks").KeysRead
	}
	t.Log(keys)
	for _, kind := range []string{"one slot", "64 slots"} {
		require.Equal(t, keys[kind], keys[kind+", many behind"])
		require.Equal(t, keys[kind], keys[kind+", many ghosts"])
	}
	require.LessOrEqual(t, keys["64 slots"], keys["one slot"]+3*64, "its row, its entry among the slots, and one for each message")
}

// settle sends, reads and acks n messages, and returns the number after them.
func (q *ordered) settle(r sqlbatch.ReadParams, n int) (mark int64) {
	q.t.Helper()
	for ; n > 0; n -= 300 {
		q.fill(0, 300)
		r.From = mark
		rows := q.rows(q.Read(r))
		require.Len(q.t, rows, 300+1)
		require.Len(q.t, q.rows(q.Ack(suite.Items(rows[:300], 2))), 300)
		mark = rows[300][2].(int64)
	}
	return mark
}

// fill sends n messages to a slot, 500 per statement.
func (q *ordered) fill(slot, n int) {
	q.t.Helper()
	for ; n > 0; n -= 500 {
		rows := makeRows(min(n, 500), 0)
		for i := range rows {
			rows[i].Slot = slot
		}
		q.exec(q.Enqueue(rows))
	}
}
