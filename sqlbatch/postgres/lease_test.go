package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/stretchr/testify/require"
)

// claimed is one row that a claim returned.
type claimed struct {
	ID                              byte
	Priority, Fence, Attempts       int64
	Lapses, Expired, EnqueuedAt, At int64
	ExpiresAt, Key, Headers, Body   any
}

func (q *serverQueue) claimed(p sqlbatch.ClaimParams) map[byte]claimed {
	q.Helper()
	all := map[byte]claimed{}
	for _, r := range q.rows(q.db, q.Claim(p)) {
		require.Len(q, r, 12)
		id := r[0].([]byte)[0]
		all[id] = claimed{id, r[1].(int64), r[2].(int64), r[3].(int64), r[4].(int64), r[5].(int64), r[6].(int64), r[7].(int64), r[8], r[9], r[10], r[11]}
	}
	return all
}

// lapse lets the leases of these messages run out.
func (q *serverQueue) lapse(ns ...byte) {
	q.Helper()
	require.Len(q, q.settled(q.db, q.EndAfter(q.items(ns...), 0)), len(ns))
}

func (q *serverQueue) now() (ms int64) {
	q.Helper()
	st := q.Clock()
	require.NoError(q, q.db.QueryRow(st.Text, st.Args...).Scan(&ms))
	return ms
}

func TestTellsTheTime(t *testing.T) {
	q := newQueue(t)
	require.InDelta(t, time.Now().UnixMilli(), q.now(), 10_000)
}

// A program that knows nothing of chanq sends by an INSERT of a body.
func TestABodyAloneIsAMessage(t *testing.T) {
	q := newQueue(t)
	before := q.now()
	q.exec(`INSERT INTO chanq_orders (body) SELECT 'b' FROM generate_series(1, 500)`)
	after := q.now()
	seen := map[[16]byte]bool{}
	for _, r := range q.rows(q.db, q.Claim(claimOf(1000))) {
		id := [16]byte(r[0].([]byte))
		var ms int64
		for _, b := range id[:6] {
			ms = ms<<8 | int64(b)
		}
		require.GreaterOrEqual(t, ms, before)
		require.LessOrEqual(t, ms, after)
		require.EqualValues(t, 7, id[6]>>4, "the version: %x", id)
		require.EqualValues(t, 2, id[8]>>6, "the variant: %x", id)
		require.False(t, seen[id])
		seen[id] = true
		require.Equal(t, []any{int64(0), int64(1), int64(0), int64(0), nil, nil, nil, []byte("b")}, []any{r[1], r[3], r[4], r[5], r[8], r[9], r[10], r[11]})
		require.GreaterOrEqual(t, r[6], before)
		require.LessOrEqual(t, r[6], after)
		require.Equal(t, r[6], r[7], "due when it was sent")
	}
	require.Len(t, seen, 500)
}

func TestRefusesAPriorityWithoutALane(t *testing.T) {
	q := newQueue(t)
	for _, priority := range []int{-2, 3} {
		_, err := q.db.Exec(`INSERT INTO chanq_orders (priority, body) VALUES ($1, '')`, priority)
		require.Equal(t, "bad row", postgres.Dialect.Classify(err).String(), priority)
	}
}

func TestNoFenceIsGivenTwice(t *testing.T) {
	q := newQueue(t)
	claim := func(salt int64) int64 {
		p := claimOf(1)
		p.Salt = salt
		return q.claimed(p)[1].Fence
	}
	q.enqueue(sqlbatch.Row{ID: id(1)})
	before := q.now()
	first := claim(5)
	after := q.now()
	require.GreaterOrEqual(t, first, before<<sqlbatch.FenceBits+5)
	require.LessOrEqual(t, first, after<<sqlbatch.FenceBits+5)

	q.lapse(1)
	second := claim(1)
	require.Greater(t, second, first)
	require.Len(t, q.settled(q.db, q.Ack(q.items(1))), 1)
	q.enqueue(sqlbatch.Row{ID: id(1)})
	require.Greater(t, claim(1<<sqlbatch.FenceBits), second, "of an id that is sent again")

	future := (q.now() + time.Hour.Milliseconds()) << sqlbatch.FenceBits
	q.exec(`UPDATE chanq_orders SET fence = $1`, future)
	q.lapse(1)
	require.Equal(t, future+3, claim(3), "of a clock that was set back")
}

func TestALeaseThatRanOutIsALapse(t *testing.T) {
	q := newQueue(t)
	lapses := func() int64 {
		t.Helper()
		rows := q.claimed(claimOf(1))
		require.Len(t, rows, 1)
		return rows[1].Lapses
	}
	q.enqueue(sqlbatch.Row{ID: id(1)})
	require.EqualValues(t, 0, lapses())
	q.lapse(1)
	require.EqualValues(t, 1, lapses())
	q.lapse(1)
	require.EqualValues(t, 2, lapses())
	q.settled(q.db, q.Release([]sqlbatch.ReleaseItem{{Item: q.item(1)}}))
	require.EqualValues(t, 2, lapses(), "a release says nothing of it")
	q.settled(q.db, q.Nack([]sqlbatch.NackItem{{Item: q.item(1)}}))
	require.EqualValues(t, 0, lapses(), "it came to an end")
	q.exec(`UPDATE chanq_orders SET lapses = 32767`)
	q.lapse(1)
	require.EqualValues(t, 32767, lapses())
}

func TestClaimsLeaveOutSuspects(t *testing.T) {
	q := newQueue(t)
	q.leased(1, 2, 3, 4)
	q.exec(`UPDATE chanq_orders SET lapses = 1 WHERE id IN ($1, $2)`, fmt.Sprintf("%x", id(2)), fmt.Sprintf("%x", id(4)))
	q.lapse(1, 2)
	q.settled(q.db, q.Release([]sqlbatch.ReleaseItem{{Item: q.item(3)}, {Item: q.item(4)}}))
	q.exec(`UPDATE chanq_orders SET lapses = 2 WHERE id = $1`, fmt.Sprintf("%x", id(3)))

	p := claimOf(10)
	p.Suspects, p.Lapses = false, 2
	rows := q.claimed(p)
	require.Len(t, rows, 2, "of 2 it would be the second lapse, 3 has two")
	require.EqualValues(t, 1, rows[1].Lapses)
	require.EqualValues(t, 1, rows[4].Lapses)
	p.Suspects = true
	rows = q.claimed(p)
	require.Len(t, rows, 2)
	require.EqualValues(t, 2, rows[2].Lapses)
	require.EqualValues(t, 2, rows[3].Lapses)
}

func TestWithinALaneWhatRanOutComesFirst(t *testing.T) {
	q := newQueue(t)
	q.leased(3, 4)
	q.enqueue(sqlbatch.Row{ID: id(1)}, sqlbatch.Row{ID: id(2), Priority: 1})
	q.exec(`UPDATE chanq_orders SET visible_at = visible_at - 3600000 WHERE leased_by IS NULL`)
	q.lapse(3)
	var peeked []byte
	for _, row := range q.rows(q.db, q.Peek(sqlbatch.Ready, 10)) {
		peeked = append(peeked, row[1].([]byte)[0])
	}
	require.Equal(t, []byte{2, 3, 1}, peeked)
	require.Equal(t, []any{int64(3), int64(0), int64(1)}, q.rows(q.db, q.Stats(10))[0][:3])
	require.Equal(t, []any{int64(2), int64(0), int64(1)}, q.rows(q.db, q.Stats(2))[0][:3])
	for _, id := range peeked {
		require.Equal(t, []byte{id}, q.claim(q.db, 1))
	}
	require.Empty(t, q.claim(q.db, 1))
}

func TestSaysWhatHasExpired(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1), TTL: time.Hour}, sqlbatch.Row{ID: id(2)}, sqlbatch.Row{ID: id(3), TTL: time.Millisecond, Delay: time.Hour})
	require.Equal(t, q.get(1)["enqueued_at"].(int64)+time.Hour.Milliseconds(), q.get(1)["expires_at"])
	require.Nil(t, q.get(2)["expires_at"])
	require.Equal(t, q.get(3)["enqueued_at"].(int64)+1, q.get(3)["expires_at"])
	q.exec(`UPDATE chanq_orders SET visible_at = 0, expires_at = least(expires_at, $1) WHERE id = $2`, q.now(), fmt.Sprintf("%x", id(3)))
	rows := q.claimed(claimOf(10))
	require.Equal(t, []int64{0, 0, 1}, []int64{rows[1].Expired, rows[2].Expired, rows[3].Expired})
	for n := range byte(3) {
		require.Equal(t, q.get(n + 1)["expires_at"], rows[n+1].ExpiresAt)
	}

	lease := q.item(3)
	q.settled(q.db, q.Bury([]sqlbatch.BuryItem{{Item: lease, Error: "expired", Uncounted: true}, {Item: q.item(2)}}))
	dead := q.get(3)
	require.Equal(t, []any{"dead", int64(0), "expired", nil}, []any{dead["state"], dead["attempts"], dead["last_error"], dead["expires_at"]})
	require.EqualValues(t, 1, q.get(2)["attempts"])
	require.Len(t, q.ids(q.db, q.Redrive(0, [][16]byte{id(3)}, sqlbatch.Window{})), 1)
	require.Nil(t, q.get(3)["expires_at"])
}

func TestABlindClaimReturnsNoContent(t *testing.T) {
	q := newQueue(t)
	q.enqueue(sqlbatch.Row{ID: id(1), Key: "k", Headers: []byte("h"), Body: []byte("b")})
	p := claimOf(1)
	p.Blind = true
	row := q.claimed(p)[1]
	require.EqualValues(t, 1, row.Attempts)
	require.Equal(t, []any{nil, nil, nil}, []any{row.Key, row.Headers, row.Body})
	require.Equal(t, []byte("b"), q.get(1)["body"])
}

func TestAnExtensionNeverMovesAnEndBack(t *testing.T) {
	q := newQueue(t)
	items := q.leased(1)
	end := func() int64 { return q.get(1)["due_at"].(int64) - q.now() }
	for form, q2 := range map[string]sqlbatch.Queue{"": q, "in a transaction": q.InTx(), "skipping": q.SkipLocked()} {
		require.Len(t, q.settled(q.db, q2.Extend(items, time.Hour)), 1)
		require.InDelta(t, time.Hour.Milliseconds(), end(), 30_000, form)
		require.Len(t, q.settled(q.db, q2.Extend(items, time.Second)), 1)
		require.InDelta(t, time.Hour.Milliseconds(), end(), 30_000, form)
		require.Len(t, q.settled(q.db, q2.EndAfter(items, time.Minute)), 1)
		require.InDelta(t, time.Minute.Milliseconds(), end(), 30_000, form)
	}
}

func TestALeasedMessageHasItsHoldersName(t *testing.T) {
	q := newQueue(t)
	q.leased(1)
	require.Equal(t, []any{member[:], nil}, []any{q.get(1)["leased_by"], q.get(1)["holder"]})
	q.rows(q.db, q.Join(sqlbatch.Member{ID: member, Name: "né", Host: "h", For: time.Minute}))
	require.Equal(t, "né", q.get(1)["holder"])
	require.Equal(t, q.rows(q.db, q.Get(id(1))), q.rows(q.db, q.Peek(sqlbatch.Leased, 1)))
}
