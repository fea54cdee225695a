package postgres_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

// seen has the messages that a read returned, by the first byte of the ids.
type seen struct {
	ids     []byte // by seq
	seqs    map[byte]int64
	drawn   int64
	senders []string
}

func (q *serverQueue) see(r sqlbatch.ReadParams) *seen {
	q.Helper()
	rows := q.rows(q.db, q.Read(r))
	last := rows[len(rows)-1]
	s := &seen{seqs: map[byte]int64{}, drawn: last[2].(int64), senders: strings.Fields(last[12].(string))}
	for _, row := range rows[:len(rows)-1] {
		n := row[0].(string)[0]
		s.ids, s.seqs[n] = append(s.ids, n), row[15].(int64)
	}
	slices.SortFunc(s.ids, func(a, b byte) int { return cmp.Compare(s.seqs[a], s.seqs[b]) })
	return s
}

func line(slot int, key string, ns ...byte) (rows []sqlbatch.Row) {
	for _, n := range ns {
		rows = append(rows, sqlbatch.Row{ID: id(n), Slot: slot, OrderKey: key})
	}
	return rows
}

func TestASlotThatAnotherConsumerIsTakingIsLeftToIt(t *testing.T) {
	q, _ := newOrdered(t)
	other := [16]byte{0xB0}
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: other, For: time.Hour}))
	q.rows(q.db, q.Leave(consumer))
	tx := q.begin()
	_, err := tx.Exec(`UPDATE chanq__slots SET fence = fence + 1 WHERE slot = 1`)
	require.NoError(t, err)
	taken := q.rows(q.db, q.TakeSlots(other, 1, []int{0, 1}))
	require.Len(t, taken, 1, "it never waits for a lock")
	require.Equal(t, int64(0), taken[0][0])
	require.NoError(t, tx.Commit())
}

// A membership that has ended is not prolonged by a heartbeat that is committed later: its consumer has given up its slots.
func TestAConsumerThatHasJoinedAgainKeepsItsSlots(t *testing.T) {
	q, _ := newOrdered(t)
	other := [16]byte{0xB0}
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: other, For: time.Hour}))
	end := func() { q.exec(`UPDATE chanq__consumers SET until = 1 WHERE id = $1`, fmt.Sprintf("%x", consumer)) }
	end()
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: consumer, For: time.Hour}))
	require.Empty(t, q.rows(q.db, q.TakeSlots(other, 1, []int{0, 1})))
	end()
	tx := q.begin()
	q.rows(tx, q.Join(sqlbatch.Consumer{ID: consumer, For: time.Hour}))
	require.Len(t, q.rows(q.db, q.TakeSlots(other, 1, []int{0, 1})), 2, "it never waits for a lock")
	require.NoError(t, tx.Commit())
	require.Empty(t, q.rows(q.db, q.TakeSlots(consumer, 1, []int{0, 1})))
}

// An empty step would end the purge.
func TestAStepOfAPurgePassesLockedRows(t *testing.T) {
	q, _ := newOrdered(t)
	q.enqueue(line(0, "a", 1, 2, 3, 4)...)
	tx := q.begin()
	_, err := tx.Exec(`SELECT FROM chanq_orders WHERE get_byte(uuid_send(id), 0) <= 2 FOR UPDATE`)
	require.NoError(t, err)
	require.Equal(t, []byte{3}, q.ids(q.db, q.Purge(sqlbatch.Ready, 1, sqlbatch.Window{})))
	require.NoError(t, tx.Rollback())
}

func TestAReadReportsEachSenderThatHasDrawn(t *testing.T) {
	q, r := newOrdered(t)
	first := q.see(r)
	require.Empty(t, first.senders)
	require.Equal(t, int64(1)<<sqlbatch.SeqBits-1, first.drawn, "none yet: a number that is not drawn is not below")

	late := q.begin()
	require.Empty(t, q.rows(late, q.InTx().Enqueue(line(0, "a", 1))))
	begun := q.begin()
	require.Len(t, q.rows(begun, q.Begun()), 1)
	foreign := q.begin()
	_, err := foreign.Exec(`INSERT INTO chanq_orders (body) VALUES ('')`)
	require.NoError(t, err)
	drawn := q.see(r)
	require.Len(t, drawn.senders, 3, "each once, with one that has only drawn, and one of another program")
	elsewhere := q.begin()
	_, err = elsewhere.Exec(`SELECT pg_advisory_xact_lock_shared(1, 2)`)
	require.NoError(t, err)

	q.enqueue(line(0, "a", 2)...)
	later := q.see(r)
	require.Equal(t, []byte{2}, later.ids)
	require.Greater(t, later.drawn, drawn.drawn)
	require.ElementsMatch(t, drawn.senders, later.senders, "neither the sender that has committed nor the holder of another lock")
	require.NoError(t, begun.Rollback())
	require.NoError(t, foreign.Rollback())
	left := q.see(r)
	require.Len(t, left.senders, 1)
	require.Subset(t, drawn.senders, left.senders)
	require.NoError(t, late.Commit())
	all := q.see(r)
	require.Empty(t, all.senders)
	require.Equal(t, []byte{1, 2}, all.ids)
	require.LessOrEqual(t, all.seqs[1], drawn.drawn)
	require.Greater(t, all.seqs[2], drawn.drawn)
	require.LessOrEqual(t, all.seqs[2], later.drawn)
}

func TestAPreparedTransactionOfASenderHasNoNameOfItsOwn(t *testing.T) {
	q, r := newOrdered(t)
	var most int
	require.NoError(t, q.db.QueryRow(`SELECT current_setting('max_prepared_transactions')::int`).Scan(&most))
	if most == 0 {
		t.Skip("this server has no prepared transactions: max_prepared_transactions is 0")
	}
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	run := func(text string) {
		_, err := conn.ExecContext(q.ctx, text)
		require.NoError(t, err, text)
	}
	name := fmt.Sprintf("chanq %d", time.Now().UnixNano()) // the name is unique on the whole server
	run(`BEGIN`)
	require.Empty(t, q.rows(conn, q.InTx().Enqueue(line(0, "a", 1))))
	run(`PREPARE TRANSACTION '` + name + `'`)
	require.Equal(t, []string{sqlbatch.UnknownSender}, q.see(r).senders)
	run(`COMMIT PREPARED '` + name + `'`)
	require.Empty(t, q.see(r).senders)
}

func TestConcurrentBatchesAreOrderedByTheirBeginning(t *testing.T) {
	q, r := newOrdered(t)
	first, second := q.begin(), q.begin()
	require.Len(t, q.rows(first, q.Begun()), 1)
	require.Len(t, q.rows(second, q.Begun()), 1)
	require.Empty(t, q.rows(second, q.InOwnTx().EnqueueBegun(line(0, "a", 3, 4))))
	require.Empty(t, q.rows(first, q.InOwnTx().EnqueueBegun(line(0, "a", 1, 2))))
	require.NoError(t, first.Commit())
	require.NoError(t, second.Commit())
	require.Equal(t, []byte{1, 2, 3, 4}, q.see(r).ids)
}

// watcher tracks the senders of reads, as an owner of slots does: up to safe, reads that begin later see all messages.
type watcher struct {
	q       *serverQueue
	r       sqlbatch.ReadParams
	safe    int64
	hasty   bool // a broken one, which does not wait for senders
	waiting []*seen
	whole   int64 // up to here a read has seen all messages
	known   map[byte]bool
}

// read returns a message that appeared below the number up to which an earlier read had seen all messages, or 0.
func (w *watcher) read() (late byte) {
	safe := w.safe
	s := w.q.see(w.r)
	for _, n := range s.ids {
		if s.seqs[n] <= w.whole && !w.known[n] {
			late = n
		}
		w.known[n] = true
	}
	w.whole = max(w.whole, safe)
	if w.hasty {
		w.safe = s.drawn
	}
	w.waiting = append(w.waiting, s)
	for _, earlier := range w.waiting {
		earlier.senders = slices.DeleteFunc(earlier.senders, func(name string) bool { return !slices.Contains(s.senders, name) })
		if len(earlier.senders) == 0 {
			w.safe = max(w.safe, earlier.drawn)
		}
	}
	return late
}

func watch(q *serverQueue, r sqlbatch.ReadParams) *watcher {
	return &watcher{q: q, r: r, known: map[byte]bool{}}
}

// No message appears up to a number that all senders have passed, in whatever order they commit.
func TestNoMessageAppearsBelowTheWatermark(t *testing.T) {
	q, r := newOrdered(t)
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		q.ctx = testdb.Soon(q.T) // all histories together might take longer
		q.exec(`DELETE FROM chanq_orders`)
		w := watch(q, r)
		type open struct {
			tx *sql.Tx
			n  byte
		}
		var under []open
		defer func() {
			for _, o := range under {
				_ = o.tx.Rollback()
			}
		}()
		next := byte(1)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch do := rapid.IntRange(0, 4).Draw(t, "do"); {
			case do == 0 && len(under) < 4:
				tx, err := q.db.BeginTx(q.ctx, nil)
				require.NoError(t, err)
				q.rows(tx, q.InTx().Enqueue(line(0, "a", next)))
				under = append(under, open{tx, next})
				next++
			case do == 1:
				q.enqueue(line(0, "a", next)...)
				next++
			case do == 2 && len(under) > 0:
				i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
				require.NoError(t, under[i].tx.Commit())
				under = slices.Delete(under, i, i+1)
			default:
				require.Zero(t, w.read(), "a message that appeared late")
			}
		}
		if w.whole > 0 {
			passed++
		}
	})
	require.Positive(t, passed)
}

// The test above can fail: a reader that does not wait for senders misses a message.
func TestAReaderThatDoesNotWaitForSendersMissesAMessage(t *testing.T) {
	q, r := newOrdered(t)
	w := watch(q, r)
	w.hasty = true
	late := q.begin()
	q.rows(late, q.InTx().Enqueue(line(0, "a", 1)))
	q.enqueue(line(0, "b", 2)...)
	require.Zero(t, w.read())
	require.Zero(t, w.read())
	require.NoError(t, late.Commit())
	require.Equal(t, byte(1), w.read())
}

func TestTheLongestKeyArrivesInTheLastSlot(t *testing.T) {
	q := newQueueOf(t, sqlbatch.Names{Queue: "orders", Slots: sqlbatch.MaxSlots})
	key, body := strings.Repeat("é", sqlbatch.MaxOrderKey/2), make([]byte, 1<<20)
	q.enqueue(
		sqlbatch.Row{ID: id(1), Slot: sqlbatch.MaxSlots - 1, OrderKey: key, Body: body},
		sqlbatch.Row{ID: id(2), Slot: sqlbatch.MaxSlots - 1},
		sqlbatch.Row{ID: id(3), OrderKey: "a", Key: "b", Headers: []byte("c")},
	)
	var rows [3]struct {
		slot, bytes int
		key         sql.NullString
	}
	for i := range rows {
		row := &rows[i]
		require.NoError(t, q.db.QueryRow(`SELECT slot, length(body), order_key FROM chanq_orders WHERE id = $1`, fmt.Sprintf("%x", id(byte(i+1)))).Scan(&row.slot, &row.bytes, &row.key))
	}
	require.Equal(t, sqlbatch.MaxSlots-1, rows[0].slot)
	require.Equal(t, len(body), rows[0].bytes)
	require.Equal(t, key, rows[0].key.String)
	require.Equal(t, sqlbatch.MaxSlots-1, rows[1].slot)
	require.False(t, rows[1].key.Valid)
	require.Zero(t, rows[1].bytes+rows[2].slot+rows[2].bytes)
	require.Equal(t, "a", rows[2].key.String)
}

// A look reports whether another transaction has locked a row, except by a savepoint that was released. It never waits for a lock. Marks
// and releases do not either, and leave both rows out.
func TestALookReportsLockedRows(t *testing.T) {
	q, r := newOrdered(t)
	own := r.Slots
	q.enqueue(line(0, "a", 1, 2, 3)...)
	items := q.items(1, 2, 3)
	locked := func() map[byte]any {
		t.Helper()
		all := map[byte]any{}
		for _, row := range q.rows(q.db, q.LookOrdered(consumer, own, [][16]byte{id(1), id(2), id(3)})) {
			if row[0] != nil {
				all[row[0].(string)[0]] = row[22]
			}
		}
		return all
	}
	free := map[byte]any{1: int64(2), 2: int64(2), 3: int64(2)}
	require.Equal(t, free, locked())
	tx := q.begin()
	require.Len(t, q.rows(tx, q.InTx().Ack(items[:1])), 1)
	_, err := tx.Exec("SAVEPOINT a")
	require.NoError(t, err)
	require.Len(t, q.rows(tx, q.InTx().Ack(items[1:2])), 1)
	_, err = tx.Exec("RELEASE SAVEPOINT a")
	require.NoError(t, err)
	require.Equal(t, map[byte]any{1: int64(1), 2: int64(2), 3: int64(2)}, locked())
	var marks []sqlbatch.MarkItem
	for _, item := range items {
		marks = append(marks, sqlbatch.MarkItem{Item: item, SlotFence: own[0].Fence})
	}
	require.Equal(t, []byte{3}, q.ids(q.db, q.MarkOrdered(consumer, marks)))
	require.Equal(t, []byte{3}, q.ids(q.db, q.ReleaseOrdered(consumer, suite.Releases(q.items(1, 2, 3)), false)))
	require.Equal(t, []byte{1, 2, 3}, q.see(r).ids, "an uncommitted delete does not count")
	require.NoError(t, tx.Rollback())
	require.Equal(t, free, locked())
}
