package sqlite_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/stretchr/testify/require"
)

// The columns of a claim and of a peek that these tests look at.
const (
	claimID, claimFence, claimAttempts, claimLapses, claimExpired = 0, 2, 3, 4, 5
	peekState, peekID, peekFence, peekAttempts, peekAt            = 0, 1, 3, 4, 6
	peekExpires, peekBy, peekHolder, peekError, peekBody          = 7, 8, 9, 11, 13
)

// expire ends all leases of the table.
func (s *table) expire() {
	s.Helper()
	s.exec("UPDATE chanq_orders SET visible_at = 1 WHERE leased_by IS NOT NULL")
}

func (s *table) exec(text string, args ...any) {
	s.Helper()
	s.run(sqlbatch.Statement{Text: text, Args: args})
}

func (s *table) number(text string) int64 {
	s.Helper()
	return s.run(sqlbatch.Statement{Text: text})[0][0].(int64)
}

func (s *table) now() int64 {
	s.Helper()
	return s.run(s.q.Clock())[0][0].(int64)
}

func (s *table) claim(n int) [][]any {
	s.Helper()
	return s.run(s.q.Claim(claimOf(n, time.Minute)))
}

// claimOne claims the only message and returns its lease.
func (s *table) claimOne() (row []any, item sqlbatch.Item) {
	s.Helper()
	rows := s.claim(10)
	require.Len(s, rows, 1)
	return rows[0], itemOf(rows[0])
}

func itemOf(claimed []any) sqlbatch.Item {
	return sqlbatch.Item{ID: [16]byte(claimed[claimID].([]byte)), Fence: claimed[claimFence].(int64)}
}

func (s *table) get(id [16]byte) []any {
	s.Helper()
	rows := s.run(s.q.Get(id))
	require.Len(s, rows, 1)
	return rows[0]
}

func numbered(n int) [16]byte { return [16]byte{14: byte(n >> 8), 15: byte(n)} }

func (s *table) send(from, n int, delay time.Duration) {
	s.Helper()
	var rows []sqlbatch.Row
	for i := range n {
		rows = append(rows, sqlbatch.Row{ID: numbered(from + i), Priority: int8(i%4 - 1), Delay: delay, Body: []byte("b")})
	}
	s.run(s.q.Enqueue(rows))
}

func TestTheInsertOfAnyProgramIsAMessage(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	const n = 5000
	before := table.now()
	for range n / 100 {
		table.exec(`INSERT INTO chanq_orders (body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT 'text' FROM n`)
	}
	after := table.now()

	ids := table.run(sqlbatch.Statement{Text: "SELECT id FROM chanq_orders ORDER BY rowid"})
	require.Len(t, ids, n)
	distinct, values := map[[16]byte]bool{}, map[int]map[byte]bool{}
	last := int64(0)
	for _, row := range ids {
		id := [16]byte(row[0].([]byte))
		require.Equal(t, byte(0x70), id[6]&0xf0, "version 7: %x", id)
		require.Equal(t, byte(0x80), id[8]&0xc0, "variant 10: %x", id)
		made := int64(binary.BigEndian.Uint64(id[:8]) >> 16)
		require.GreaterOrEqual(t, made, max(last, before), "ids ascend with time")
		require.LessOrEqual(t, made, after)
		last = made
		distinct[id] = true
		for i := 6; i < 16; i++ {
			if values[i] == nil {
				values[i] = map[byte]bool{}
			}
			values[i][id[i]] = true
		}
	}
	require.Len(t, distinct, n)
	for i, seen := range values {
		want := 256
		switch i {
		case 6:
			want = 16 // beside the version
		case 8:
			want = 64 // beside the variant
		}
		require.Len(t, seen, want, "byte %d is random", i)
	}
	require.Greater(t, last, before, "it took a while")

	claimed := table.claim(1)
	require.Len(t, claimed, 1)
	require.Equal(t, "text", claimed[0][len(claimed[0])-1])
	require.EqualValues(t, 1, claimed[0][claimAttempts])
}

// The bytes of a time that is not now: each of its bytes is any.
func TestEachByteOfATimeIsInTheID(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	ddl := table.run(sqlbatch.Statement{Text: "SELECT sql FROM sqlite_schema WHERE name = 'chanq_orders'"})[0][0].(string)
	expression := idExpression(t, ddl)
	for i := range 256 {
		at := int64(i)<<32 | int64(255-i)<<24 | int64(i^0x55)<<16 | int64(i^0xaa)<<8 | int64(i) | int64(i&7)<<40
		id := table.run(sqlbatch.Statement{Text: "SELECT " + expression, Args: []any{at}})[0][0].([]byte)
		require.Len(t, id, 16)
		require.Equal(t, at, int64(binary.BigEndian.Uint64(id)>>16))
	}
}

// idExpression is the default of the id, of the time ?1.
func idExpression(t *testing.T, ddl string) string {
	_, rest, found := strings.Cut(ddl, "DEFAULT (CAST(substr(")
	require.True(t, found)
	expression, _, found := strings.Cut(rest, "randomblob(7) AS BLOB)")
	require.True(t, found)
	now := "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
	require.Equal(t, 6, strings.Count(expression, now))
	return "CAST(substr(" + strings.ReplaceAll(expression, now, "?1") + "randomblob(7) AS BLOB)"
}

func TestWhatNoStatementCouldFindIsRefused(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	for _, values := range []string{
		"(priority, body) VALUES (-2, 'b')", "(priority, body) VALUES (3, 'b')", "(priority, body) VALUES (0.5, 'b')", "(priority, body) VALUES ('urgent', 'b')",
		"(id, body) VALUES (x'00', 'b')", "(id, body) VALUES ('0123456789abcdef', 'b')", "(id, body) VALUES (7, 'b')",
		"(visible_at, body) VALUES ('2026-01-01', 'b')", "(visible_at, body) VALUES (0.5, 'b')", "(enqueued_at, body) VALUES ('now', 'b')",
		"(expires_at, body) VALUES ('tomorrow', 'b')", "(body) VALUES (NULL)",
	} {
		_, err := table.conn.ExecContext(t.Context(), "INSERT INTO chanq_orders "+values)
		require.Equal(t, sqlbatch.BadRow, sqlite.Dialect.Classify(err), "%s: %v", values, err)
	}
	require.Zero(t, table.number("SELECT count(*) FROM chanq_orders"))
}

func TestAFenceIsNeverGivenTwice(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.send(0, 1, 0)
	before := table.now()
	_, first := table.claimOne()
	require.GreaterOrEqual(t, first.Fence, before<<sqlbatch.FenceBits)
	require.LessOrEqual(t, first.Fence, (table.now()+1)<<sqlbatch.FenceBits)
	table.expire()
	_, second := table.claimOne()
	require.Greater(t, second.Fence, first.Fence)
	require.Empty(t, table.run(table.q.Ack([]sqlbatch.Item{first})))
	require.Len(t, table.run(table.q.Ack([]sqlbatch.Item{second})), 1)

	table.send(0, 1, 0)
	_, third := table.claimOne()
	require.NotContains(t, []int64{first.Fence, second.Fence}, third.Fence, "the same id, sent again")
	require.Empty(t, table.run(table.q.Ack([]sqlbatch.Item{first, second})))

	// A clock that was set back leaves the greater one of the row.
	ahead := table.now()<<sqlbatch.FenceBits + 1<<40
	table.exec("UPDATE chanq_orders SET fence = ?1", ahead)
	table.expire()
	_, fourth := table.claimOne()
	require.Greater(t, fourth.Fence, ahead)
	require.LessOrEqual(t, fourth.Fence, ahead+1<<sqlbatch.FenceBits, "the fence, and a salt")
}

func TestALapseIsALeaseThatWasNeverSettled(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.send(0, 1, 0)
	lapses := func(want int) sqlbatch.Item {
		t.Helper()
		row, item := table.claimOne()
		require.EqualValues(t, want, row[claimLapses])
		return item
	}
	unsuspected := func(lapses int) int {
		p := claimOf(10, time.Minute)
		p.Suspects, p.Lapses = false, lapses
		return len(table.run(table.q.Claim(p)))
	}
	item := lapses(0)
	table.run(table.q.Release([]sqlbatch.ReleaseItem{{Item: item, Due: 1}}))
	lapses(0)
	table.expire()
	item = lapses(1)
	table.run(table.q.Release([]sqlbatch.ReleaseItem{{Item: item, Due: 1}}))
	lapses(1) // a release changes nothing
	table.expire()
	require.Zero(t, unsuspected(2), "it would be the second lapse")
	require.Equal(t, [][]any{{int64(0)}}, [][]any{{table.number("SELECT count(*) FROM chanq_orders WHERE visible_at > 1")}}, "it is left where it is")
	item = lapses(2)
	table.run(table.q.Release([]sqlbatch.ReleaseItem{{Item: item, Due: 1}}))
	require.Zero(t, unsuspected(2), "nobody holds it, and it is a suspect still")
	require.Equal(t, 1, unsuspected(3))
	table.expire()
	item = lapses(3)
	table.run(table.q.Nack([]sqlbatch.NackItem{{Item: item}}))
	require.Equal(t, 1, unsuspected(1), "a nack forgets lapses")
}

func TestAClaimTakesWhatRanOutFirst(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.run(table.q.Enqueue([]sqlbatch.Row{{ID: numbered(2)}, {ID: numbered(1), Priority: 1}}))
	require.Len(t, table.claim(2), 2)
	table.exec("UPDATE chanq_orders SET visible_at = 5")
	table.run(table.q.Enqueue([]sqlbatch.Row{{ID: numbered(4)}, {ID: numbered(3), Priority: 1}}))
	table.exec("UPDATE chanq_orders SET visible_at = 1 WHERE leased_by IS NULL")
	for want := range 4 {
		claimed := table.claim(1)
		require.Len(t, claimed, 1)
		id := claimed[0][claimID].([]byte)[15]
		require.EqualValues(t, []int{1, 3, 2, 4}[want], id, "by priority, then what ran out, then the others")
	}
	require.Empty(t, table.claim(1))
}

func TestAClaimTellsWhatHasExpired(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	now := table.now()
	table.run(table.q.Enqueue([]sqlbatch.Row{
		{ID: numbered(1), TTL: time.Nanosecond}, {ID: numbered(2), TTL: time.Hour}, {ID: numbered(3)},
	}))
	require.InDelta(t, now+3_600_000, table.get(numbered(2))[peekExpires].(int64), 10_000)
	require.Nil(t, table.get(numbered(3))[peekExpires])
	require.Eventually(t, func() bool { return table.now() > now+1 }, time.Minute, time.Millisecond)
	expired := map[byte]any{}
	for _, row := range table.claim(10) {
		expired[row[claimID].([]byte)[15]] = row[claimExpired]
		if itemOf(row).ID == numbered(1) {
			require.Len(t, table.run(table.q.Bury([]sqlbatch.BuryItem{{Item: itemOf(row), Error: "expired", Uncounted: true}})), 1)
		}
	}
	require.Equal(t, map[byte]any{1: int64(1), 2: int64(0), 3: int64(0)}, expired)

	buried := table.get(numbered(1))
	require.Equal(t, []any{"dead", int64(0), "expired", nil}, []any{buried[peekState], buried[peekAttempts], buried[peekError], buried[peekExpires]})
	require.Len(t, table.run(table.q.Redrive(10, nil, sqlbatch.Window{})), 1)
	require.Nil(t, table.get(numbered(1))[peekExpires], "a redrive drops the expiry")
	row, _ := table.claimOne()
	require.EqualValues(t, 0, row[claimExpired])
}

func TestABlindClaimLeavesOutWhatIsLarge(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.run(table.q.Enqueue([]sqlbatch.Row{{ID: numbered(1), Key: "k", Headers: []byte("h"), Body: []byte("b")}}))
	p := claimOf(1, time.Minute)
	p.Blind = true
	blind := table.run(table.q.Claim(p))
	require.Len(t, blind, 1)
	table.expire()
	seeing := table.claim(1)
	require.Len(t, seeing, 1)
	n := len(seeing[0])
	require.Len(t, blind[0], n)
	require.Equal(t, []any{nil, nil, nil}, blind[0][n-3:])
	require.Equal(t, []any{"k", []byte("h"), []byte("b")}, seeing[0][n-3:])
	require.Equal(t, "k", table.get(numbered(1))[10], "they are there")
}

func TestABuryRefundsTheAttemptThatNobodyHad(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.send(0, 2, 0)
	table.claim(2)
	table.expire()
	var buries []sqlbatch.BuryItem
	for i, row := range table.claim(2) {
		buries = append(buries, sqlbatch.BuryItem{Item: itemOf(row), Uncounted: i == 0})
	}
	require.Len(t, table.run(table.q.Bury(buries)), 2)
	require.EqualValues(t, 1, table.get(buries[0].ID)[peekAttempts])
	require.EqualValues(t, 2, table.get(buries[1].ID)[peekAttempts])
}

func TestAnExtensionNeverMovesTheEndBack(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.send(0, 1, 0)
	_, item := table.claimOne()
	end := func() int64 { return table.get(item.ID)[peekAt].(int64) }
	extend := func(st sqlbatch.Statement) {
		t.Helper()
		require.Equal(t, [][]any{{item.ID[:], item.Fence}}, table.run(st))
	}
	extend(table.q.Extend([]sqlbatch.Item{item}, time.Hour))
	hour := end()
	require.InDelta(t, table.now()+3_600_000, hour, 10_000)
	extend(table.q.Extend([]sqlbatch.Item{item}, time.Second))
	require.Equal(t, hour, end(), "one that was late")
	extend(table.q.EndAfter([]sqlbatch.Item{item}, time.Second))
	require.Less(t, end(), table.now()+10_000, "one that is meant")
}

func TestALookTellsTheFences(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.run(table.q.Enqueue([]sqlbatch.Row{{ID: numbered(1)}, {ID: numbered(2), Key: "k"}}))
	require.Len(t, table.claim(1), 1)
	held := table.run(sqlbatch.Statement{Text: "SELECT id, fence FROM chanq_orders ORDER BY id"})
	require.ElementsMatch(t, held, table.run(table.q.Look([][16]byte{numbered(1), numbered(2), numbered(3)})))
	require.Empty(t, table.run(table.q.Look([][16]byte{numbered(3)})))
	require.Empty(t, table.run(table.q.Look(nil)))

	require.Equal(t, [][]any{{held[0][0], nil, held[0][1]}}, table.run(table.q.Find([][16]byte{numbered(1)}, nil)))
	second := numbered(2)
	require.Equal(t, [][]any{{second[:], "k", int64(0)}}, table.run(table.q.Find(nil, []string{"k", "other"})))
}

func TestEachCountEndsAtTheLimitAndAtNothingElse(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	const limit, few = 100, 10
	stats := func() []any { return table.run(table.q.Stats(limit))[0][:3] }
	peeked := func(s sqlbatch.State) int {
		rows := table.run(table.q.Peek(s, limit))
		for _, row := range rows {
			require.Equal(t, string(s), row[peekState])
		}
		return len(rows)
	}
	// Many leases, which end before the few are due.
	table.send(0, limit+500, 0)
	require.Len(t, table.claim(1000), limit+500)
	table.send(1000, few, time.Hour)
	require.Equal(t, []any{int64(0), int64(few), int64(limit)}, stats())
	require.Equal(t, []int{0, few, limit}, []int{peeked(sqlbatch.Ready), peeked(sqlbatch.Scheduled), peeked(sqlbatch.Leased)})

	// The mirror image: few leases that end after many are due, and leases that ran out.
	table.expire()
	require.Equal(t, []any{int64(limit), int64(few), int64(0)}, stats(), "what ran out is ready")
	table.exec("DELETE FROM chanq_orders")
	table.send(0, few, 0)
	require.Len(t, table.run(table.q.Claim(claimOf(1000, 2*time.Hour))), few)
	table.send(1000, limit+500, time.Hour)
	require.Equal(t, []any{int64(0), int64(limit), int64(few)}, stats())
	require.Equal(t, []int{0, limit, few}, []int{peeked(sqlbatch.Ready), peeked(sqlbatch.Scheduled), peeked(sqlbatch.Leased)})
	table.expire()
	table.send(5000, few, 0)
	require.Equal(t, []any{int64(2 * few), int64(limit), int64(0)}, stats(), "ready: what ran out, and what is due")
	require.Equal(t, 2*few, peeked(sqlbatch.Ready))
	oldest := table.run(table.q.Stats(limit))[0][5].(int64)
	require.InDelta(t, table.now()-1, oldest, 10_000)
	require.LessOrEqual(t, table.run(table.q.NextDue())[0][0].(int64), int64(0))
}

func TestAPurgeLeavesWhatCameAfterItBegan(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	purge := func(s sqlbatch.State, before int64) (n int) {
		for _, row := range table.run(table.q.Purge(s, 1000, sqlbatch.Window{Before: before})) {
			require.EqualValues(t, 0, row[1])
			n++
		}
		return n
	}
	now := table.now()
	table.send(0, 4, 0)
	table.exec("UPDATE chanq_orders SET visible_at = ?1 WHERE id <> ?2", now-1, []byte("0"))
	require.Len(t, table.claim(2), 2)
	table.exec("UPDATE chanq_orders SET fence = ((?1 - 1) << 20) + 1048576 WHERE rowid = (SELECT min(rowid) FROM chanq_orders WHERE leased_by IS NOT NULL)", now)
	table.exec("UPDATE chanq_orders SET fence = (?1 << 20) + 1 WHERE rowid = (SELECT max(rowid) FROM chanq_orders WHERE leased_by IS NOT NULL)", now)
	require.Equal(t, 1, purge(sqlbatch.Leased, now), "claimed in the millisecond before")
	require.Equal(t, 1, purge(sqlbatch.Leased, 0), "without a bound")

	table.exec("UPDATE chanq_orders SET visible_at = ?1 WHERE rowid = (SELECT max(rowid) FROM chanq_orders)", now)
	require.Equal(t, 1, purge(sqlbatch.Ready, now), "due before")
	require.Equal(t, 1, purge(sqlbatch.Ready, 0))

	table.send(0, 2, time.Hour)
	table.exec("UPDATE chanq_orders SET enqueued_at = ?1 - 1 WHERE rowid = (SELECT max(rowid) FROM chanq_orders)", now)
	require.Equal(t, 1, purge(sqlbatch.Scheduled, now), "sent before")
	require.Equal(t, 1, purge(sqlbatch.Scheduled, 0))
}

// ended buries or archives four messages, which ended at 10, 20, 30 and 40.
func (s *table) ended(state string) {
	s.Helper()
	for i := range 4 {
		s.exec(fmt.Sprintf("INSERT INTO chanq_orders_%s (id, priority, enqueued_at, ended_at, fence, attempts, body) VALUES (?1, 0, 1, ?2, 5, 3, x'00')", state), []byte(fmt.Sprintf("%016d", i)), 10*(i+1))
	}
}

func places(rows [][]any) (at []int64) {
	for _, row := range rows {
		at = append(at, row[1].(int64))
	}
	return at
}

func TestStepsThroughTheDeadAndTheDoneKeepToTheirWindow(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	window := sqlbatch.Window{After: 20, Before: 40}
	for _, s := range []sqlbatch.State{sqlbatch.Dead, sqlbatch.Done} {
		table.ended(string(s))
		require.ElementsMatch(t, []int64{20}, places(table.run(table.q.Purge(s, 1, window))))
		require.ElementsMatch(t, []int64{30}, places(table.run(table.q.Purge(s, 10, window))))
		require.ElementsMatch(t, []int64{10, 40}, places(table.run(table.q.Purge(s, 10, sqlbatch.Window{}))))
	}
	table.ended("done")
	require.ElementsMatch(t, []int64{20}, places(table.run(table.q.Trim(time.Hour, 1, 20))))
	require.ElementsMatch(t, []int64{30, 40}, places(table.run(table.q.Trim(time.Hour, 10, 20))))
	require.ElementsMatch(t, []int64{10}, places(table.run(table.q.Trim(time.Hour, 10, 0))))

	table.ended("dead")
	require.ElementsMatch(t, []int64{20}, places(table.run(table.q.Redrive(1, nil, window))))
	require.ElementsMatch(t, []int64{30}, places(table.run(table.q.Redrive(10, nil, window))))
	require.ElementsMatch(t, []int64{10, 40}, places(table.run(table.q.Redrive(10, nil, sqlbatch.Window{}))))
	require.Equal(t, [][]any{{int64(4), int64(6), int64(6), int64(0)}}, table.run(sqlbatch.Statement{Text: "SELECT count(*), min(fence), max(fence), max(attempts + lapses) FROM chanq_orders"}))
}

func TestMembersAreThoseThatAreThere(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	other := sqlite.Dialect.Queue(sqlbatch.Names{Queue: "other"})
	one := sqlbatch.Member{ID: numbered(9), Name: "one", Host: "here", Process: 7, For: time.Minute}
	table.run(table.q.Join(one))
	for i, until := range []int64{table.now() - 25*3_600_000, table.now() - 23*3_600_000, table.now() + 3_600_000} {
		gone := sqlbatch.Member{ID: numbered(i), For: time.Minute}
		table.run(other.Join(gone))
		table.exec("UPDATE chanq_members SET until = ?1 WHERE id = ?2", until, gone.ID[:])
	}
	table.exec("UPDATE chanq_members SET since = since - 60000, until = since WHERE id = ?1", one.ID[:])
	require.Empty(t, table.run(table.q.Members()), "it is gone")
	table.run(table.q.Join(one))
	members := table.run(table.q.Members())
	require.Len(t, members, 1, "that of another queue is not of this one")
	require.Equal(t, []any{one.ID[:], "one", "here", int64(7)}, members[0][:4])
	require.InDelta(t, 120_000, members[0][5].(int64)-members[0][4].(int64), 10_000, "it is there since it first came")
	require.EqualValues(t, 3, table.number("SELECT count(*) FROM chanq_members"), "the one that was gone for a day is forgotten")

	table.send(0, 1, 0)
	_, item := table.claimOne()
	held := table.get(item.ID)
	require.Equal(t, []any{one.ID[:], "one"}, []any{held[peekBy], held[peekHolder]}, "who holds the lease")
	require.Equal(t, held, table.run(table.q.Peek(sqlbatch.Leased, 1))[0])
	table.run(table.q.Leave(numbered(9)))
	require.Empty(t, table.run(table.q.Members()))
	require.Nil(t, table.get(item.ID)[peekHolder])
}

func TestProblemsAreTold(t *testing.T) {
	kinds := func(db *sql.DB, q sqlbatch.Queue) (kinds []string) {
		t.Helper()
		rows, err := db.Query(q.Problems().Text)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var kind, found string
			require.NoError(t, rows.Scan(&kind, &found))
			require.NotEmpty(t, found)
			kinds = append(kinds, kind)
		}
		require.NoError(t, rows.Err())
		return kinds
	}
	names := sqlbatch.Names{Queue: "orders"}
	q := sqlite.Dialect.Queue(names)
	migrate := func(db *sql.DB) {
		t.Helper()
		for _, text := range sqlite.Dialect.Migrations(names)[0].Statements {
			_, err := db.Exec(text)
			require.NoError(t, err)
		}
	}
	for _, path := range []string{":memory:", filepath.Join(t.TempDir(), "queue.db")} {
		db, err := embedded.Open(path)
		require.NoError(t, err)
		defer db.Close()
		require.Empty(t, kinds(db, q), "before there are tables: %s", path)
		migrate(db)
		require.Empty(t, kinds(db, q), path)
	}
	for text, want := range map[string][]string{
		"PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (n)":            {"encoding"},
		"PRAGMA encoding = 'UTF-16be'; CREATE TABLE t (n)":            {"encoding"},
		"PRAGMA synchronous = NORMAL":                                 {"durability"},
		"PRAGMA synchronous = OFF":                                    {"durability"},
		"PRAGMA synchronous = EXTRA":                                  nil,
		"PRAGMA journal_mode = MEMORY":                                {"durability"},
		"PRAGMA journal_mode = OFF":                                   {"durability"},
		"PRAGMA journal_mode = TRUNCATE":                              nil,
		"CREATE TABLE chanq_orders (id BLOB PRIMARY KEY, leased_by)":  {"form"},
		"CREATE TABLE chanq_orders (id BLOB PRIMARY KEY, expires_at)": {"form"},
		"CREATE TABLE chanq_others (id BLOB PRIMARY KEY)":             nil,
	} {
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "queue.db"))
		require.NoError(t, err)
		defer db.Close()
		db.SetMaxOpenConns(1)
		_, err = db.Exec(text)
		require.NoError(t, err)
		require.Equal(t, want, kinds(db, q), text)
	}
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err = db.Exec("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")
	require.NoError(t, err)
	require.Empty(t, kinds(db, q), "a database in memory is fine as it is")
}

func TestAQueueThatIsNotRegisteredYieldsNothing(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	table.send(0, 1, 0)
	table.exec("DELETE FROM chanq_queues")
	require.Empty(t, table.claim(1))
	require.Equal(t, [][]any{{nil}}, table.run(table.q.NextDue()))
}

func TestWhatATriggerRaisesIsOfTheRow(t *testing.T) {
	for _, action := range []string{"ABORT", "FAIL", "ROLLBACK"} {
		table := newTable(t, sqlbatch.Names{Queue: "orders"})
		table.exec(fmt.Sprintf("CREATE TRIGGER refuse BEFORE INSERT ON chanq_orders BEGIN SELECT RAISE(%s, 'not today'); END", action))
		st := table.q.Enqueue([]sqlbatch.Row{{ID: numbered(1)}})
		_, err := table.conn.ExecContext(t.Context(), st.Text, st.Args...)
		require.ErrorContains(t, err, "not today")
		require.Equal(t, sqlbatch.BadRow, sqlite.Dialect.Classify(err), "%s: %v", action, err)
	}
}

// What hostile values do to a database: nothing. PostgreSQL and SQL Server are
// asked in the conformance suite and the stand-in's tests.
func TestHostileValuesAreStoredAsTheyAre(t *testing.T) {
	table := newTable(t, sqlbatch.Names{Queue: "orders"})
	calls := suite.Calls(table.q, suite.Hostile)
	table.run(calls["enqueue"])
	got := table.run(calls["get"])
	require.Len(t, got, 1)
	require.Equal(t, suite.Hostile, bytesOrNone(got[0][12]))
	require.Equal(t, suite.Hostile, bytesOrNone(got[0][13]))
	delete(calls, "enqueue") // a second time it is a duplicate
	for _, st := range calls {
		for _, prior := range st.Prior {
			table.run(prior)
		}
		table.run(st)
	}
	require.NotEmpty(t, table.run(sqlbatch.Statement{Text: "SELECT count(*) FROM chanq_orders"}), "the table is there")
}
