package sqlserver_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/mssqltest"
	"github.com/chanq/chanq/prove/testdb/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// ordered is an ordered queue, and a member that owns all of its slots.
type ordered struct {
	*queue
	member [16]byte
	salt   int64
	last   byte
	fences []int64 // of the slots
}

func newOrdered(t testing.TB, slots int, o mssqltest.Options) *ordered {
	testdb.Emulator.Require(t)
	names := sqlbatch.Names{Queue: "orders", Slots: slots}
	q := &ordered{queue: &queue{sqlserver.Dialect.Queue(names), mssqltest.Start(t, o), t}, member: [16]byte{7}, fences: make([]int64, slots)}
	testdb.MigrateTables(t, sqlserver.Dialect, q.DB(), names)
	q.exec(q.Join(sqlbatch.Member{ID: q.member, For: 1000 * time.Hour}))
	q.take()
	return q
}

// take takes all slots, anew.
func (q *ordered) take() {
	q.t.Helper()
	all := make([]int, len(q.fences))
	for slot := range all {
		all[slot] = slot
	}
	rows := q.rows(q.TakeSlots(q.member, 1, all))
	require.Len(q.t, rows, len(all))
	for _, row := range rows {
		q.fences[row[0].(int64)] = row[1].(int64)
	}
}

// line sends n messages of a key by one statement, with numbers from 1 on.
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

// found is what a claim returned: the bodies of what it leased, how many it walked past,
// and up to where it went in each slot.
type found struct {
	leased []byte
	items  []sqlbatch.Item
	past   int
	ends   map[int64]int64
}

func (q *ordered) claim(rows int, parts ...sqlbatch.SlotPart) (f found) {
	q.t.Helper()
	q.salt++
	f.ends = map[int64]int64{}
	c := sqlbatch.SlotClaim{Rows: rows, Lease: time.Hour, Member: q.member, Salt: q.salt, Lapses: math.MaxInt32}
	for _, p := range parts {
		p.Fence = q.fences[p.Slot]
		c.Parts, c.Mine = append(c.Parts, p), c.Mine || p.Doubt
	}
	for _, row := range q.rows(q.ClaimSlots(c)) {
		switch {
		case row[0] == nil:
			f.ends[row[12].(int64)] = row[13].(int64)
		case row[15] == nil:
			f.leased = append(f.leased, row[11].(string)...)
			f.items = append(f.items, itemsOf([][]any{row})...)
		default:
			f.past++
		}
	}
	require.Len(q.t, f.ends, len(parts))
	return f
}

// eachReading runs a test with READ_COMMITTED_SNAPSHOT off and on, beside a clock that goes.
func eachReading(t *testing.T, slots int, test func(t *testing.T, q *ordered)) {
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", rcsi), func(t *testing.T) {
			test(t, newOrdered(t, slots, mssqltest.Options{Clock: engine.RealClock{}, ReadCommittedSnapshot: rcsi}))
		})
	}
}

func TestAnOpenAckTxHoldsUpItsSlotAloneAndThatOnlyWhileItIsInDoubt(t *testing.T) {
	eachReading(t, 3, func(t *testing.T, q *ordered) {
		for slot := range 3 {
			q.line(q.DB(), q.Queue, slot, "a", 1)
		}
		first := q.claim(10, sqlbatch.SlotPart{Slot: 0, Limit: 1})
		require.Equal(t, []byte{1}, first.leased)
		tx := begin(t, t.Context(), q.queue)
		acked, err := suite.Rows(t.Context(), tx, q.InTx().Ack(first.items))
		require.NoError(t, err)
		require.Len(t, acked, 1)
		q.line(q.DB(), q.Queue, 0, "a", 1)
		q.take()

		all := func(doubt bool) []sqlbatch.SlotPart {
			return []sqlbatch.SlotPart{{Slot: 0, Limit: 5, Doubt: doubt}, {Slot: 1, Limit: 5, Doubt: doubt}, {Slot: 2, Limit: 5}}
		}
		f := q.claim(10, all(true)...)
		require.Equal(t, []byte{2, 3}, f.leased, "nobody knows whether another message precedes the fourth")
		require.Equal(t, map[int64]int64{0: 0, 1: math.MaxInt64, 2: math.MaxInt64}, f.ends)
		require.NoError(t, tx.Rollback())
		f = q.claim(10, all(true)...)
		require.Equal(t, []byte{4}, f.leased)
		require.Equal(t, 3, f.past, "the first is the member's own, and told of")

		tx = begin(t, t.Context(), q.queue)
		acked, err = suite.Rows(t.Context(), tx, q.InTx().Ack(first.items))
		require.NoError(t, err)
		require.Len(t, acked, 1)
		q.line(q.DB(), q.Queue, 0, "b", 1)
		f = q.claim(10, all(false)...)
		require.Equal(t, []byte{5}, f.leased, "where the member knows its lines, it waits for nobody")
		require.NoError(t, tx.Commit())
		require.Equal(t, map[int64]int64{0: math.MaxInt64, 1: math.MaxInt64, 2: math.MaxInt64}, q.claim(10, all(true)...).ends)
	})
}

func TestASendTxThatIsOpenClosesItsKeyAlone(t *testing.T) {
	eachReading(t, 1, func(t *testing.T, q *ordered) {
		tx := begin(t, t.Context(), q.queue)
		q.line(tx, q.InTx(), 0, "a", 2)
		q.line(q.DB(), q.Queue, 0, "b", 1)
		f := q.claim(10, sqlbatch.SlotPart{Limit: 10})
		require.Equal(t, []byte{3}, f.leased)
		require.Equal(t, 2, f.past, "those of a are told of")
		require.Equal(t, int64(math.MaxInt64), f.ends[0])
		f = q.claim(10, sqlbatch.SlotPart{Limit: 10, Doubt: true})
		require.Equal(t, 3, f.past, "and where there is doubt what is leased already")
		require.Equal(t, int64(math.MaxInt64), f.ends[0])
		require.NoError(t, tx.Rollback())
		f = q.claim(10, sqlbatch.SlotPart{Limit: 10})
		require.Zero(t, f.past)
	})
}

// What a claim from slots reads does not grow with what waits in them, nor with the ghosts that
// lie before its mark.
func TestAClaimFromSlotsReadsNoMoreKeysWhateverTheBacklog(t *testing.T) {
	t.Parallel()
	const rows = 64
	keys := map[string]int64{}
	for _, backlog := range []struct {
		name                             string
		slots, waiting, blocked, settled int
	}{
		{name: "64 slots", slots: 64},
		{name: "one slot", slots: 1},
		{name: "20,000 behind", slots: 1, blocked: 20_000},
		{name: "3,000 wait for their time", slots: 1, waiting: 3000},
		{name: "5,000 ghosts", slots: 1, settled: 5000},
	} {
		q := newOrdered(t, backlog.slots, mssqltest.Options{ReadCommittedSnapshot: true, KeepGhosts: true})
		mark := q.settle(backlog.settled)
		q.fill(0, backlog.waiting)
		_, err := q.DB().Exec("UPDATE dbo.chanq_orders SET due_at = '99991231'")
		require.NoError(t, err)
		for slot := range backlog.slots {
			q.fill(slot, rows/backlog.slots)
		}
		q.fill(0, backlog.blocked)
		parts := make([]sqlbatch.SlotPart, backlog.slots)
		for slot := range parts {
			parts[slot] = sqlbatch.SlotPart{Slot: slot, From: mark, Limit: rows / backlog.slots}
		}
		q.Engine().ResetPlans()
		f := q.claim(rows, parts...)
		require.Equal(t, rows, len(f.leased)+f.past)
		keys[backlog.name] = cost(q.queue, "leased_by = @by").KeysRead
	}
	t.Log(keys)
	require.Equal(t, keys["one slot"], keys["20,000 behind"])
	require.LessOrEqual(t, keys["3,000 wait for their time"], keys["one slot"])
	require.Equal(t, keys["one slot"], keys["5,000 ghosts"])
	require.LessOrEqual(t, keys["64 slots"], keys["one slot"]+6*64, "its row, a seek in each walk, its part and its end, for each slot")
}

// settle sends, claims and acks n messages, and returns the place behind them.
func (q *ordered) settle(n int) (mark int64) {
	q.t.Helper()
	for ; n > 0; n -= 300 {
		q.fill(0, 300)
		items := q.claim(300, sqlbatch.SlotPart{From: mark, Limit: 300}).items
		require.Len(q.t, q.rows(q.Ack(items)), 300)
		mark = q.rows(q.Horizon())[0][0].(int64)
	}
	return mark
}

// fill sends n messages to a slot, 500 by a statement.
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
