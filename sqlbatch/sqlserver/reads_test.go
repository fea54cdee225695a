package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/mssqltest"
	"github.com/chanq/chanq/prove/testdb/mssqltest/engine"
	"github.com/chanq/chanq/prove/testdb/mssqltest/lock"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// What the owners of slots read, beside transactions that are open.

// owned are slots with their fences.
func (q *ordered) owned(slots ...int) (list []sqlbatch.OwnedSlot) {
	for _, slot := range slots {
		list = append(list, sqlbatch.OwnedSlot{Slot: slot, Fence: q.fences[slot]})
	}
	return list
}

func (q *ordered) readOf(slots ...int) sqlbatch.ReadParams {
	return sqlbatch.ReadParams{Member: q.member, Slots: q.owned(slots...), Upto: math.MaxInt64, Rows: 1000, Behind: 1000, Inline: sqlbatch.MaxBody}
}

// try runs a read, and returns the bodies and the last number drawn.
func (q *ordered) try(r sqlbatch.ReadParams) (bodies []byte, drawn int64, err error) {
	q.t.Helper()
	rows, err := suite.Rows(context.Background(), q.DB(), q.Read(r))
	if err != nil {
		return nil, 0, err
	}
	return bodiesOf(q.t, rows), rows[len(rows)-1][2].(int64), nil
}

// bodiesOf are the bodies of an answer that was walked, by number.
func bodiesOf(t require.TestingT, rows [][]any) (bodies []byte) {
	last := rows[len(rows)-1]
	require.Nil(t, last[0])
	require.Equal(t, int64(1), last[1], "it was walked")
	rows = slices.DeleteFunc(slices.Clone(rows), func(row []any) bool { return row[0] == nil || row[21] == int64(0) })
	slices.SortFunc(rows, func(a, b []any) int { return int(a[14].(int64) - b[14].(int64)) })
	for _, row := range rows {
		bodies = append(bodies, row[11].(string)...)
	}
	return bodies
}

// requireRead reads, and wants these bodies.
func (q *ordered) requireRead(want []byte, slots ...int) {
	q.t.Helper()
	bodies, _, err := q.try(q.readOf(slots...))
	require.NoError(q.t, err)
	require.Equal(q.t, want, bodies)
}

// requireWaits reads, and wants the read to fail after it has waited for a lock.
func (q *ordered) requireWaits(slots ...int) {
	q.t.Helper()
	_, _, err := q.try(q.readOf(slots...))
	require.Equal(q.t, int32(1222), numberOf(err), "%v", err)
	require.Equal(q.t, sqlbatch.RolledBack, sqlserver.Dialect.Classify(err))
}

// Each disturbance is a transaction on slot 0, whose message 1 is committed; message 2 is in slot 1, and 3 is dead, in slot 0. A read
// of slot 0 waits for it, a read of slot 1 does not, and a read after its end has what was committed then.
func TestAReadMissesNoRowOfATransactionThatIsOpen(t *testing.T) {
	for name, disturbance := range map[string]struct {
		begin                 func(q *ordered, tx *sql.Tx)
		committed, rolledBack []byte
		others                bool // a read of another slot waits, too
	}{
		"a delete":      {func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Ack(q.itemOf(0))) }, []byte{2}, []byte{1, 2}, false},
		"an archive":    {func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Archive(q.itemOf(0))) }, []byte{2}, []byte{1, 2}, false},
		"a nack":        {func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Nack([]sqlbatch.NackItem{{Item: q.itemOf(0)[0]}})) }, []byte{1, 2}, []byte{1, 2}, false},
		"a dead-letter": {func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Bury([]sqlbatch.BuryItem{{Item: q.itemOf(0)[0]}})) }, []byte{2}, []byte{1, 2}, false},
		"an insert":     {func(q *ordered, tx *sql.Tx) { q.line(tx, q.InTx(), 0, "a", 1) }, []byte{1, 2, 4}, []byte{1, 2}, false},
		"an insert elsewhere": {func(q *ordered, tx *sql.Tx) {
			q.do(tx, 0, sqlbatch.Statement{Text: "INSERT INTO dbo.chanq_orders (slot, body) VALUES (0, 0x05)"})
		}, []byte{1, 2, 5}, []byte{1, 2}, false},
		"a redrive": {func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Redrive(10, nil, sqlbatch.Window{})) }, []byte{1, 2, 3}, []byte{1, 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachReading(t, 2, func(t *testing.T, q *ordered) {
				for _, commit := range []bool{true, false} {
					q.exec(sqlbatch.Statement{Text: "DELETE FROM dbo.chanq_orders"})
					q.exec(sqlbatch.Statement{Text: "DELETE FROM dbo.chanq_orders_dead"})
					q.last = 0
					q.line(q.DB(), q.Queue, 0, "a", 1)
					q.line(q.DB(), q.Queue, 1, "b", 1)
					q.line(q.DB(), q.Queue, 0, "c", 1)
					q.do(q.DB(), 1, q.Bury([]sqlbatch.BuryItem{{Item: q.itemOf(0)[1]}}))
					q.requireRead([]byte{1, 2}, 0, 1)
					tx := begin(t, t.Context(), q.queue)
					disturbance.begin(q, tx)
					q.requireWaits(0, 1)
					q.requireWaits(0)
					if disturbance.others {
						q.requireWaits(1)
					} else {
						q.requireRead([]byte{2}, 1)
					}
					want := disturbance.committed
					if commit {
						require.NoError(t, tx.Commit())
					} else {
						want = disturbance.rolledBack
						require.NoError(t, tx.Rollback())
					}
					bodies, _, err := q.try(q.readOf(0, 1))
					require.NoError(t, err)
					slices.Sort(bodies)
					require.Equal(t, want, bodies)
				}
			})
		})
	}
}

// do runs a statement that returns so many rows.
func (q *ordered) do(on testdb.Runner, rows int, st sqlbatch.Statement) {
	q.t.Helper()
	got, err := suite.Rows(context.Background(), on, st)
	require.NoError(q.t, err)
	require.Len(q.t, got, rows)
}

// itemOf are the messages of a slot, by number.
func (q *ordered) itemOf(slot int) (items []sqlbatch.Item) {
	q.t.Helper()
	rows := q.rows(q.Read(q.readOf(slot)))
	rows = slices.DeleteFunc(rows, func(row []any) bool { return row[0] == nil })
	slices.SortFunc(rows, func(a, b []any) int { return int(a[14].(int64) - b[14].(int64)) })
	return suite.Items(rows, 2)
}

// While a sender is between its draw and its insert there is no watermark. The read returns what is up to the cursor, and says so.
func TestAReadDoesNotPassASenderThatHasNotInserted(t *testing.T) {
	eachReading(t, 1, func(t *testing.T, q *ordered) {
		q.line(q.DB(), q.Queue, 0, "a", 2)
		r := q.readOf(0)
		bodies, drawn, err := q.try(r)
		require.NoError(t, err)
		require.Equal(t, []byte{1, 2}, bodies)
		q.line(q.DB(), q.Queue, 0, "a", 1)
		tx := begin(t, t.Context(), q.queue)
		_, err = tx.Exec("DECLARE @granted int; EXEC @granted = sys.sp_getapplock @Resource = N'chanq senders of dbo.orders', @LockMode = N'Shared', @LockOwner = N'Transaction'")
		require.NoError(t, err)
		r.Cursor = drawn
		rows := q.rows(q.Read(r))
		require.Len(t, rows, 3, "two messages up to the cursor, and the last row")
		require.Equal(t, int64(-1), rows[2][2])
		require.NoError(t, tx.Commit())
		rows = q.rows(q.Read(r))
		require.Len(t, rows, 4)
		require.Greater(t, rows[3][2], drawn)
		require.Equal(t, []byte{3}, bodiesOf(t, rows))
	})
}

// A look tells locked rows from rows that are gone, and a fetch passes over the first.
func TestALookTellsLockedFromAbsent(t *testing.T) {
	eachReading(t, 1, func(t *testing.T, q *ordered) {
		q.line(q.DB(), q.Queue, 0, "a", 4)
		items := q.itemOf(0)
		tx := begin(t, t.Context(), q.queue)
		q.do(tx, 2, q.InTx().Ack(items[:2]))
		q.do(q.DB(), 1, q.Ack(items[3:]))
		ids := idsOf(items)
		locked := func() map[byte]int64 {
			t.Helper()
			all := map[byte]int64{}
			for _, row := range q.rows(q.LookOrdered(q.member, q.owned(0), ids)) {
				if row[0] != nil {
					n := slices.IndexFunc(items, func(i sqlbatch.Item) bool { return i.ID == suite.IDOf(row[0]) })
					all[byte(n+1)] = row[22].(int64)
				}
			}
			return all
		}
		require.Equal(t, map[byte]int64{1: 1, 2: 1, 3: 2}, locked())
		rows := q.rows(q.Fetch(q.member, q.owned(0), ids))
		require.Equal(t, []byte{3}, bodiesOf(t, rows))
		require.NoError(t, tx.Rollback())
		require.Equal(t, map[byte]int64{1: 2, 2: 2, 3: 2}, locked())
	})
}

// What a sender or a settle may wait for is one entry or one row under a read, and nothing that the read has passed.
func TestAReadHoldsOneRowAtATime(t *testing.T) {
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", rcsi), func(t *testing.T) {
			testdb.Emulator.Require(t)
			var watched atomic.Bool
			var most, seen atomic.Int64
			var q *ordered
			q = newOrderedHolding(t, 2, mssqltest.Options{Clock: engine.RealClock{}, ReadCommittedSnapshot: rcsi, OnLock: func(got lock.Info) {
				if !watched.Load() || got.Resource.Key == "" {
					return
				}
				seen.Add(1)
				held := int64(0)
				for _, l := range q.Engine().Locks() {
					if l.Session == got.Session && l.Resource.Key != "" && !l.Waiting {
						assert.Equal(t, lock.S, l.Mode, "%v", l)
						held++
					}
				}
				most.Store(max(most.Load(), held))
			}})
			q.line(q.DB(), q.Queue, 0, "a", 20)
			q.line(q.DB(), q.Queue, 1, "b", 20)
			items := q.itemOf(0)
			q.do(q.DB(), 1, q.Bury([]sqlbatch.BuryItem{{Item: items[0]}}))
			ids := idsOf(items)
			read, catchUp := q.readOf(0, 1), q.readOf(0, 1)
			read.Keys = []string{"b"}
			catchUp.Cursor, catchUp.Rows = math.MaxInt64-1, 0
			refill := sqlbatch.RefillParams{Member: q.member, Slots: q.owned(0, 1), Upto: math.MaxInt64, Rows: 100, Keys: []string{"a"}, Inline: 100}
			for name, st := range map[string]sqlbatch.Statement{
				"read": q.Read(read), "read one": q.Read(q.readOf(0)), "catch up": q.Read(catchUp), "refill": q.Refill(refill), "fetch": q.Fetch(q.member, q.owned(0), ids), "look": q.LookOrdered(q.member, q.owned(0), ids),
				"held": q.HeldKeys([]int{0, 1}, []string{"a", "b"}),
			} {
				most.Store(0)
				seen.Store(0)
				watched.Store(true)
				rows := q.rows(st)
				watched.Store(false)
				require.NotEmpty(t, rows, name)
				require.Positive(t, seen.Load(), name)
				require.LessOrEqual(t, most.Load(), int64(1), name)
			}
		})
	}
}

// newOrderedHolding is newOrdered of a queue whose dead messages hold their keys.
func newOrderedHolding(t *testing.T, slots int, o mssqltest.Options) *ordered {
	q := newOrdered(t, slots, o)
	q.Queue = sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders", Slots: slots, Holds: true})
	return q
}

// disturbed is a consumer that reads, and what other transactions do between the statements of a read.
type disturbed struct {
	*ordered
	*rand.Rand
	live, dead map[byte]sqlbatch.Item // committed
	slots      map[byte]int
	open       []*change
	busy       bool
	acts       int
}

// change is a transaction that is open, and what its commit does.
type change struct {
	tx     *sql.Tx
	commit func()
	of     byte // the message, or 0
}

// act begins a transaction, or ends one.
func (d *disturbed) act() {
	d.acts++
	if len(d.open) > 0 && d.IntN(2) == 0 {
		i := d.IntN(len(d.open))
		c := d.open[i]
		d.open = slices.Delete(d.open, i, i+1)
		if d.IntN(3) == 0 {
			assert.NoError(d.t, c.tx.Rollback())
			return
		}
		assert.NoError(d.t, c.tx.Commit())
		c.commit()
		return
	}
	if d.last > 200 {
		return
	}
	tx, err := d.DB().Begin()
	assert.NoError(d.t, err)
	c := &change{tx: tx, commit: func() {}}
	free := func(list map[byte]sqlbatch.Item) (byte, bool) {
		for n := range byte(d.last + 1) {
			_, ok := list[n]
			if ok && !slices.ContainsFunc(d.open, func(o *change) bool { return o.of == n }) && d.IntN(3) == 0 {
				return n, true
			}
		}
		return 0, false
	}
	n, ok := free(d.live)
	m, isDead := free(d.dead)
	switch kind := d.IntN(5); {
	case kind == 0 && ok:
		d.do(tx, 1, d.InTx().Ack([]sqlbatch.Item{d.live[n]}))
		c.of, c.commit = n, func() { delete(d.live, n) }
	case kind == 1 && ok:
		item := d.live[n]
		d.do(tx, 1, d.InTx().Bury([]sqlbatch.BuryItem{{Item: item}}))
		c.of, c.commit = n, func() {
			delete(d.live, n)
			item.Fence++
			d.dead[n] = item
		}
	case kind == 2 && isDead && !slices.ContainsFunc(d.open, func(o *change) bool { return o.of == 255 }):
		item := d.dead[m]
		rows, err := suite.Rows(context.Background(), tx, d.InTx().Redrive(0, [][16]byte{item.ID}, sqlbatch.Window{}))
		assert.NoError(d.t, err)
		c.of = 255 // one at a time: they lock the row of the queue
		if len(rows) == 1 {
			c.commit = func() {
				delete(d.dead, m)
				item.Fence++
				d.live[m] = item
			}
		}
	default:
		slot := d.IntN(2)
		d.line(tx, d.InTx(), slot, string("ab"[d.IntN(2)]), 1)
		n := d.last
		d.slots[n] = slot
		item := sqlbatch.Item{}
		rows, err := suite.Rows(context.Background(), tx, sqlbatch.Statement{Text: fmt.Sprintf("SELECT id, fence FROM dbo.chanq_orders WITH (READUNCOMMITTED) WHERE body = 0x%02x", n)})
		assert.NoError(d.t, err)
		if assert.Len(d.t, rows, 1) {
			item = suite.Items(rows, 1)[0]
		}
		c.of, c.commit = n, func() { d.live[n] = item }
	}
	d.open = append(d.open, c)
}

// TestAReadHasEachMessageThatWasThereAllTheTime: between the statements of a read, transactions begin, commit and roll back.
func TestAReadHasEachMessageThatWasThereAllTheTime(t *testing.T) {
	for _, versions := range []bool{false, true} {
		t.Run(fmt.Sprintf("READ_COMMITTED_SNAPSHOT=%t", versions), func(t *testing.T) {
			t.Parallel()
			testdb.Emulator.Require(t)
			read, acts := 0, 0
			for seed := range testdb.Of[uint64](6, 20) {
				d := &disturbed{Rand: rand.New(rand.NewPCG(seed, 1)), live: map[byte]sqlbatch.Item{}, dead: map[byte]sqlbatch.Item{}, slots: map[byte]int{}}
				d.ordered = newOrdered(t, 2, mssqltest.Options{Clock: engine.RealClock{}, ReadCommittedSnapshot: versions})
				reading := false
				d.Engine().SetHooks(engine.Hooks{Before: func(_ context.Context, st engine.Statement) error {
					between := st.Kind == "InsertStatement" || st.Kind == "UpdateStatement" || st.Kind == "SelectStatement" // where the read does not hold the gate
					if reading && !d.busy && between && strings.Contains(st.Text, "@walks") && d.IntN(3) == 0 {
						d.busy = true
						d.act()
						d.busy = false
					}
					return nil
				}})
				for range 30 {
					for range d.IntN(3) {
						d.act()
					}
					r := d.readOf([][]int{{0, 1}, {0}, {1}}[d.IntN(3)]...)
					before := map[byte]sqlbatch.Item{}
					for n, item := range d.live {
						before[n] = item
					}
					reading = true
					rows, err := suite.Rows(context.Background(), d.DB(), d.Read(r))
					reading = false
					if err != nil {
						require.Equal(t, sqlbatch.RolledBack, sqlserver.Dialect.Classify(err), "%v", err)
						continue
					}
					if rows[len(rows)-1][2] == int64(-1) {
						continue
					}
					read++
					bodies := bodiesOf(t, rows)
					for n, item := range before {
						if d.live[n] == item && slices.ContainsFunc(r.Slots, func(o sqlbatch.OwnedSlot) bool { return o.Slot == d.slots[n] }) {
							require.Contains(t, bodies, n, "message %d was committed before the read and is there", n)
						}
					}
					for _, n := range bodies {
						_, was := before[n]
						_, is := d.live[n]
						_, dies := d.dead[n]
						require.True(t, was || is || dies, "message %d was never committed", n)
					}
				}
				acts += d.acts
				d.Engine().SetHooks(engine.Hooks{})
				for _, c := range d.open {
					require.NoError(t, c.tx.Rollback())
				}
			}
			require.Greater(t, read, 20)
			require.Greater(t, acts, 100)
		})
	}
}
