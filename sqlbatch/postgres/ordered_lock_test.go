package postgres_test

import (
	"database/sql"
	"fmt"
	"math"
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

// found is what a claim from slots returned, by the first byte of the ids.
type found struct {
	rows   [][]any // that were leased
	leased []byte  // their ids, by seq
	seqs   map[byte]int64
	past   map[byte]int64
	ends   map[int]int64
}

func (q *serverQueue) claimSlots(on testdb.Runner, c *sqlbatch.SlotClaim) *found {
	q.Helper()
	c.Salt++
	return foundIn(q.rows(on, q.ClaimSlots(*c)))
}

func foundIn(rows [][]any) *found {
	f := &found{seqs: map[byte]int64{}, past: map[byte]int64{}, ends: map[int]int64{}}
	for _, row := range rows {
		seq, _ := row[13].(int64)
		if row[0] == nil {
			f.ends[int(row[12].(int64))] = seq
			continue
		}
		n := row[0].(string)[0]
		f.seqs[n] = seq
		if row[15] == nil {
			f.leased, f.rows = append(f.leased, n), append(f.rows, row)
		} else {
			f.past[n] = row[15].(int64)
		}
	}
	slices.SortFunc(f.leased, func(a, b byte) int { return int(f.seqs[a] - f.seqs[b]) })
	return f
}

func line(slot int, key string, ns ...byte) (rows []sqlbatch.Row) {
	for _, n := range ns {
		rows = append(rows, sqlbatch.Row{ID: id(n), Slot: slot, OrderKey: key})
	}
	return rows
}

func TestAClaimFromSlotsTellsOfWhatOthersHaveLocked(t *testing.T) {
	q, c := newOrdered(t)
	q.enqueue(line(0, "a", 1, 2, 3)...)
	tx := q.begin()
	require.Equal(t, []byte{2}, q.ids(tx, q.InTx().Cancel([][16]byte{id(2)})))
	f := q.claimSlots(q.db, c)
	require.Equal(t, []byte{1, 3}, f.leased)
	require.Equal(t, map[byte]int64{2: 0}, f.past)
	require.NoError(t, tx.Rollback())
	require.Equal(t, []byte{2}, q.claimSlots(q.db, c).leased)
}

// The claim has its view of the table, and waits before it locks a row.
func TestWhatChangesWhileAClaimIsUnderWayIsLeftToTheNext(t *testing.T) {
	q, c := newOrdered(t)
	c.Parts = c.Parts[:1]
	q.enqueue(line(0, "a", 1, 2, 3)...)
	tx := q.begin()
	_, err := tx.Exec(`SELECT pg_advisory_xact_lock(1)`)
	require.NoError(t, err)
	const lock = "WHERE q.ctid = ANY"
	c.Salt++
	st := q.ClaimSlots(*c)
	require.Equal(t, 2, strings.Count(st.Text, lock))
	st.Text = strings.Replace(st.Text, lock, "WHERE (SELECT pg_advisory_xact_lock_shared(1)::text) = '' AND q.ctid = ANY", 1)
	claimed := make(chan *found)
	go func() { claimed <- foundIn(q.rows(q.db, st)) }()
	require.Eventually(t, func() (waits bool) {
		require.NoError(t, q.db.QueryRow(`SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits))
		return waits
	}, time.Minute, 10*time.Millisecond)
	q.exec(`UPDATE chanq_orders SET attempts = 5 WHERE id = $1`, fmt.Sprintf("%x", id(2)))
	require.Equal(t, []byte{3}, q.ids(q.db, q.Cancel([][16]byte{id(3)})))
	require.NoError(t, tx.Commit())
	f := <-claimed
	require.Equal(t, []byte{1}, f.leased)
	require.Equal(t, map[byte]int64{2: 0, 3: 0}, f.past)
	f = q.claimSlots(q.db, c)
	require.Equal(t, []byte{2}, f.leased)
	require.Empty(t, f.past, "one is gone, and one is ours")
}

func TestASlotThatAnotherTakesAtThisMomentIsLeftToHim(t *testing.T) {
	q, _ := newOrdered(t)
	other := [16]byte{0xB0}
	q.rows(q.db, q.Join(sqlbatch.Member{ID: other, For: time.Hour}))
	q.rows(q.db, q.Leave(member))
	tx := q.begin()
	_, err := tx.Exec(`UPDATE chanq_slots SET fence = fence + 1 WHERE slot = 1`)
	require.NoError(t, err)
	taken := q.rows(q.db, q.TakeSlots(other, 1, []int{0, 1}))
	require.Len(t, taken, 1, "it waits for no lock")
	require.Equal(t, int64(0), taken[0][0])
	require.NoError(t, tx.Commit())
}

// His row is locked while he joins again: he has not gone.
func TestAMemberWhoIsComingBackKeepsHisSlots(t *testing.T) {
	q, _ := newOrdered(t)
	other := [16]byte{0xB0}
	q.rows(q.db, q.Join(sqlbatch.Member{ID: other, For: time.Hour}))
	q.exec(`UPDATE chanq_members SET until = 1 WHERE id = $1`, fmt.Sprintf("%x", member))
	tx := q.begin()
	q.rows(tx, q.Join(sqlbatch.Member{ID: member, For: time.Hour}))
	require.Empty(t, q.rows(q.db, q.TakeSlots(other, 1, []int{0, 1})))
	require.NoError(t, tx.Commit())
	require.Empty(t, q.rows(q.db, q.TakeSlots(other, 1, []int{0, 1})))
}

// drawn and senders of a Horizon.
func (q *serverQueue) horizon() (drawn int64, senders []string) {
	q.Helper()
	row := q.rows(q.db, q.Horizon())[0]
	return row[0].(int64), strings.Fields(row[1].(string))
}

func TestTheHorizonKnowsWhoeverHasDrawn(t *testing.T) {
	q, c := newOrdered(t)
	drawn, senders := q.horizon()
	require.Empty(t, senders)
	require.Equal(t, int64(1)<<sqlbatch.SeqBits-1, drawn, "nothing yet: a number that is not drawn is not below")

	late := q.begin()
	require.Empty(t, q.rows(late, q.InTx().Enqueue(line(0, "a", 1))))
	begun := q.begin()
	require.Len(t, q.rows(begun, q.Begun()), 1)
	foreign := q.begin()
	_, err := foreign.Exec(`INSERT INTO chanq_orders (body) VALUES ('')`)
	require.NoError(t, err)
	drawn, senders = q.horizon()
	require.Len(t, senders, 3, "each once, also who has only drawn, and who is no chanq")
	elsewhere := q.begin()
	_, err = elsewhere.Exec(`SELECT pg_advisory_xact_lock_shared(1, 2)`)
	require.NoError(t, err)

	q.enqueue(line(0, "a", 2)...)
	later, again := q.horizon()
	require.Greater(t, later, drawn)
	require.ElementsMatch(t, senders, again, "whoever has committed is none, nor who has another lock")
	require.NoError(t, begun.Rollback())
	require.NoError(t, foreign.Commit())
	_, again = q.horizon()
	require.Len(t, again, 1)
	require.Subset(t, senders, again)
	require.NoError(t, late.Commit())
	_, again = q.horizon()
	require.Empty(t, again)
	f := q.claimSlots(q.db, c)
	require.LessOrEqual(t, f.seqs[1], drawn)
	require.Greater(t, f.seqs[2], drawn)
	require.LessOrEqual(t, f.seqs[2], later)
}

func TestASenderWhoseTransactionIsPreparedHasNoNameOfItsOwn(t *testing.T) {
	q, _ := newOrdered(t)
	var most int
	require.NoError(t, q.db.QueryRow(`SELECT current_setting('max_prepared_transactions')::int`).Scan(&most))
	if most == 0 {
		t.Skip("this server prepares no transactions: max_prepared_transactions is 0")
	}
	conn, err := q.db.Conn(q.ctx)
	require.NoError(t, err)
	defer conn.Close()
	run := func(text string) {
		_, err := conn.ExecContext(q.ctx, text)
		require.NoError(t, err, text)
	}
	name := fmt.Sprintf("chanq %d", time.Now().UnixNano()) // of the whole server
	run(`BEGIN`)
	require.Empty(t, q.rows(conn, q.InTx().Enqueue(line(0, "a", 1))))
	run(`PREPARE TRANSACTION '` + name + `'`)
	_, senders := q.horizon()
	require.Equal(t, []string{sqlbatch.UnknownSender}, senders)
	run(`COMMIT PREPARED '` + name + `'`)
	_, senders = q.horizon()
	require.Empty(t, senders)
}

func TestGroupsThatAreInsertedSideBySideHaveTheOrderInWhichTheyBegan(t *testing.T) {
	q, c := newOrdered(t)
	first, second := q.begin(), q.begin()
	require.Len(t, q.rows(first, q.Begun()), 1)
	require.Len(t, q.rows(second, q.Begun()), 1)
	require.Empty(t, q.rows(second, q.InOwnTx().EnqueueBegun(line(0, "a", 3, 4))))
	require.Empty(t, q.rows(first, q.InOwnTx().EnqueueBegun(line(0, "a", 1, 2))))
	require.NoError(t, first.Commit())
	require.NoError(t, second.Commit())
	require.Equal(t, []byte{1, 2, 3, 4}, q.claimSlots(q.db, c).leased)
}

// watcher is a claimer's view: marks go no farther than the horizon that was known before the
// claim.
type watcher struct {
	q       *serverQueue
	mark    int64
	safe    int64
	endless bool // a broken one
	waiting []sample
}

type sample struct {
	drawn   int64
	senders []string
}

func (w *watcher) sample() {
	drawn, here := w.q.horizon()
	w.waiting = append(w.waiting, sample{drawn, here})
	for i := range w.waiting {
		s := &w.waiting[i]
		s.senders = slices.DeleteFunc(slices.Clone(s.senders), func(who string) bool { return !slices.Contains(here, who) })
		if len(s.senders) == 0 {
			w.safe = max(w.safe, s.drawn)
		}
	}
}

func (w *watcher) claim(c *sqlbatch.SlotClaim) *found {
	safe := w.safe
	if w.endless {
		safe = math.MaxInt64
	}
	c.Parts[0].From = w.mark
	f := w.q.claimSlots(w.q.db, c)
	reached := f.ends[0]
	if reached == math.MaxInt64 { // the last that it saw
		reached = w.mark
		for _, seq := range f.seqs {
			reached = max(reached, seq)
		}
	}
	w.mark = max(w.mark, min(safe, reached))
	return f
}

// history sends messages of one key in transactions that overlap, and claims and acks
// meanwhile. It reports a message that was claimed before one that had been sent before it.
func history(t *rapid.T, q *serverQueue, c *sqlbatch.SlotClaim, w *watcher) (inversion string) {
	type open struct {
		tx *sql.Tx
		n  byte
	}
	var under []open
	after := map[byte][]byte{} // what had been sent when the send of this began
	var sent, seen []byte
	next := byte(1)
	defer func() {
		for _, o := range under {
			_ = o.tx.Rollback()
		}
	}()
	for range rapid.IntRange(5, 40).Draw(t, "steps") {
		switch do := rapid.IntRange(0, 5).Draw(t, "do"); {
		case do == 0 && len(under) < 4 && next < 200:
			tx, err := q.db.BeginTx(q.ctx, nil)
			require.NoError(t, err)
			after[next] = slices.Clone(sent)
			q.rows(tx, q.InTx().Enqueue(line(0, "a", next)))
			under = append(under, open{tx, next})
			next++
		case do == 1 && next < 200:
			after[next] = slices.Clone(sent)
			q.enqueue(line(0, "a", next)...)
			sent = append(sent, next)
			next++
		case do == 2 && len(under) > 0:
			i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
			require.NoError(t, under[i].tx.Commit())
			sent = append(sent, under[i].n)
			under = slices.Delete(under, i, i+1)
		case do == 3:
			w.sample()
		case do >= 4:
			c.Rows = rapid.IntRange(1, 5).Draw(t, "rows")
			f := w.claim(c)
			for _, n := range f.leased {
				seen = append(seen, n)
				for _, before := range after[n] {
					if !slices.Contains(seen, before) {
						return fmt.Sprintf("%d was sent before %d", before, n)
					}
				}
			}
			if len(f.leased) > 0 && rapid.Bool().Draw(t, "ack") {
				q.rows(q.db, q.Ack(q.items(f.leased...)))
			}
		}
	}
	return ""
}

// What commits late is claimed before what was sent after its commit.
func TestNoClaimPassesAMessageThatCommitsLate(t *testing.T) {
	q, c := newOrdered(t)
	c.Parts = c.Parts[:1]
	rapid.Check(t, func(t *rapid.T) {
		q.exec(`DELETE FROM chanq_orders`)
		require.Empty(t, history(t, q, c, &watcher{q: q}))
	})
}

// The same without a horizon goes wrong, so the test above can fail.
func TestWithoutAHorizonWhatCommitsLateIsPassed(t *testing.T) {
	q, c := newOrdered(t)
	w := &watcher{q: q, endless: true}
	late := q.begin()
	q.rows(late, q.InTx().Enqueue(line(0, "a", 1)))
	q.enqueue(line(0, "b", 2)...)
	require.Equal(t, []byte{2}, w.claim(c).leased)
	require.NoError(t, late.Commit())
	q.enqueue(line(0, "a", 3)...)
	require.Equal(t, []byte{3}, w.claim(c).leased)

	w = &watcher{q: q}
	q.rows(q.db, q.Release(suite.Releases(q.items(2, 3))))
	require.Equal(t, []byte{1, 2, 3}, w.claim(c).leased)
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

// ordered reads of the tests: all slots of member.
func (q *serverQueue) owned(c *sqlbatch.SlotClaim) (own []sqlbatch.OwnedSlot) {
	for _, p := range c.Parts {
		own = append(own, sqlbatch.OwnedSlot{Slot: p.Slot, Fence: p.Fence})
	}
	return own
}

// A look tells whether another transaction has locked a row, except by a savepoint that was released. It waits for no lock, and neither do marks and
// releases, which leave both rows out.
func TestALookTellsLockedRows(t *testing.T) {
	q, c := newOrdered(t)
	own := q.owned(c)
	q.enqueue(line(0, "a", 1, 2, 3)...)
	items := q.items(1, 2, 3)
	locked := func() map[byte]any {
		t.Helper()
		all := map[byte]any{}
		for _, row := range q.rows(q.db, q.LookOrdered(member, own, [][16]byte{id(1), id(2), id(3)})) {
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
	require.Equal(t, []byte{3}, q.ids(q.db, q.MarkOrdered(member, marks, sqlbatch.NotAlone)))
	require.Equal(t, []byte{3}, q.ids(q.db, q.ReleaseOrdered(member, suite.Releases(q.items(1, 2, 3)), false)))
	read := q.rows(q.db, q.Read(sqlbatch.ReadParams{Member: member, Slots: own, Upto: math.MaxInt64, Rows: 10, Behind: 10, Inline: 10}))
	require.Len(t, read, 4, "what is not committed is not gone")
	require.NoError(t, tx.Rollback())
	require.Equal(t, free, locked())
}

// The last number drawn is read after the rows and the senders after the number: a row above that the read did not see has its sender among the
// senders, or is committed and has a number that was drawn later.
func TestAReadReportsEachSenderThatItDidNotSee(t *testing.T) {
	q, c := newOrdered(t)
	own := q.owned(c)
	read := func() (ids []byte, drawn int64, senders []string) {
		t.Helper()
		rows := q.rows(q.db, q.Read(sqlbatch.ReadParams{Member: member, Slots: own, Upto: math.MaxInt64, Rows: 100, Behind: 10, Inline: 10}))
		last := rows[len(rows)-1]
		for _, row := range rows[:len(rows)-1] {
			ids = append(ids, row[0].(string)[0])
		}
		return ids, last[2].(int64), strings.Fields(last[11].(string))
	}
	first, second := q.begin(), q.begin()
	q.rows(first, q.InTx().Enqueue(line(0, "a", 1)))
	q.rows(second, q.InTx().Enqueue(line(0, "a", 2)))
	q.enqueue(line(0, "a", 3)...)
	ids, drawn, senders := read()
	require.Equal(t, []byte{3}, ids)
	require.Len(t, senders, 2)
	require.NoError(t, first.Commit())
	ids, again, left := read()
	require.Equal(t, []byte{1, 3}, ids)
	require.Equal(t, drawn, again)
	require.Len(t, left, 1)
	require.Subset(t, senders, left)
	require.NoError(t, second.Rollback())
	_, _, left = read()
	require.Empty(t, left)
}
