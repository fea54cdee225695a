package mssqltest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestARowOfNothingButABodyIsAMessage(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	q := newQueue(t, mssqltest.Options{})
	_, err := q.DB().ExecContext(ctx, "INSERT INTO dbo.chanq_orders (body) VALUES (CONVERT(varbinary(max), '1')), (CONVERT(varbinary(max), '2'))")
	require.NoError(t, err)
	orders, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{})
	require.NoError(t, err)
	leases, err := orders.TryLease(ctx, 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 2)
	require.NotEqual(t, leases[0].ID, leases[1].ID)
	for _, l := range leases {
		id := uuid.UUID(l.ID)
		require.Equal(t, uuid.Version(7), id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
		at := uuid.Time(int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5]))
		require.Equal(t, q.Clock().Now().UnixMilli(), int64(at), "its time is the database's")
		require.Equal(t, q.Clock().Now(), l.EnqueuedAt.UTC())
		require.Equal(t, chanq.Priority(0), l.Priority)
		require.Equal(t, 1, l.Attempt)
		require.NoError(t, l.Ack())
	}
}

func TestARowThatNoClaimWouldSeeIsRefused(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	q := newQueue(t, mssqltest.Options{})
	for _, priority := range []int{-2, 3} {
		_, err := q.DB().ExecContext(ctx, "INSERT INTO dbo.chanq_orders (priority, body) VALUES (@p1, 0x31)", priority)
		require.Equal(t, int32(547), number(err))
		require.Equal(t, sqlbatch.BadRow, sqlserver.Dialect.Classify(err))
	}
}

func TestProblemsAreToldApart(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := mssqltest.Start(t, mssqltest.Options{})
	q := &queue{sqlserver.Dialect.Queue(names), s, t}
	require.Empty(t, q.rows(q.Problems()), "without any table")
	exec := func(text string) {
		_, err := s.DB().ExecContext(ctx, text)
		require.NoError(t, err)
	}
	exec("CREATE TABLE dbo.chanq_orders_dead (id binary(16) NOT NULL, fence int NOT NULL)")
	require.Equal(t, [][]any{{sqlbatch.ProblemForm, "[dbo].[chanq_orders_dead]"}}, q.rows(q.Problems()))
	exec("DROP TABLE dbo.chanq_orders_dead")
	q.migrate()
	require.Empty(t, q.rows(q.Problems()))
	exec("ALTER DATABASE CURRENT SET DELAYED_DURABILITY = ALLOWED")
	require.Empty(t, q.rows(q.Problems()), "who asks for it decides")
	exec("ALTER DATABASE CURRENT SET DELAYED_DURABILITY = FORCED")
	require.Equal(t, [][]any{{sqlbatch.ProblemDurability, "DELAYED_DURABILITY = FORCED"}}, q.rows(q.Problems()))
}

func TestTheRegistryIsMadeByTheStatementsThatItCounts(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := mssqltest.Start(t, mssqltest.Options{})
	m := sqlserver.Dialect.Migrations(names)[0]
	for _, text := range m.Statements[:m.Registry] {
		_, err := s.DB().ExecContext(ctx, text)
		require.NoError(t, err)
	}
	var tables []string
	rows, err := s.DB().QueryContext(ctx, "SELECT name FROM sys.tables")
	require.NoError(t, err)
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"chanq_queues"}, tables, "the rest comes once the version is known")
}

func TestMembersComeStayGoAndAreSweptAfterADay(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	bills := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "bills"})
	one := sqlbatch.Member{ID: [16]byte{1}, Name: "one 😀", Host: "h", Process: 7, For: time.Minute}
	two := sqlbatch.Member{ID: [16]byte{2}, Name: "two", For: time.Hour}
	since := q.Clock().Now().UnixMilli()
	q.exec(q.Join(one))
	q.exec(bills.Join(two))
	require.Equal(t, [][]any{{one.ID[:], "one 😀", "h", int64(7), since, since + 60_000}}, q.rows(q.Members()))
	q.Clock().Advance(50 * time.Second)
	one.Name = "renamed"
	q.exec(q.Join(one))
	require.Equal(t, [][]any{{one.ID[:], "renamed", "h", int64(7), since, since + 110_000}}, q.rows(q.Members()), "it is there since it came")
	q.Clock().Advance(2 * time.Minute)
	require.Empty(t, q.rows(q.Members()), "it did not say that it is still there")
	require.Len(t, q.rows(bills.Members()), 1)
	q.exec(bills.Leave(two.ID))
	require.Empty(t, q.rows(bills.Members()))

	stored := func() (n int) {
		require.NoError(t, q.DB().QueryRow("SELECT COUNT(*) FROM dbo.chanq_members").Scan(&n))
		return n
	}
	q.exec(bills.Join(two))
	require.Equal(t, 2, stored())
	q.Clock().Advance(24 * time.Hour)
	q.exec(q.Join(sqlbatch.Member{ID: [16]byte{3}}))
	require.Equal(t, 2, stored(), "of any queue, but gone for a day")
	q.Clock().Advance(time.Hour + time.Second)
	q.exec(q.Join(sqlbatch.Member{ID: [16]byte{4}}))
	require.Equal(t, 2, stored())
}

func TestAMemberThatIsLockedHoldsUpNoOtherAndItselfNotForLong(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		held := sqlbatch.Member{ID: [16]byte{1}, Name: "held", For: time.Minute}
		q.exec(q.Join(held))
		items := q.leased(1)
		_, err := q.DB().ExecContext(ctx, "UPDATE dbo.chanq_orders SET leased_by = @p1", held.ID[:])
		require.NoError(t, err)
		q.Clock().Advance(48 * time.Hour)
		tx := begin(t, ctx, q)
		_, err = tx.ExecContext(ctx, "UPDATE dbo.chanq_members SET host = 'x'")
		require.NoError(t, err)
		q.exec(q.Join(sqlbatch.Member{ID: [16]byte{2}, Name: "free", For: time.Minute}))
		require.Nil(t, q.rows(q.Peek(sqlbatch.Ready, 1))[0][9], "its name is not waited for")
		outcome := make(chan error, 1)
		go func() {
			_, err := rowsOf(ctx, q.DB(), q.Join(held))
			outcome <- err
		}()
		require.Eventually(t, func() bool { return q.Clock().Waiting() == 1 }, 5*time.Second, time.Millisecond)
		q.Clock().Advance(sqlbatch.LockWait)
		require.Equal(t, int32(1222), number(<-outcome))
		require.NoError(t, tx.Rollback())
		entry := q.rows(q.Get(items[0].ID))[0]
		require.Equal(t, []any{held.ID[:], "held"}, entry[8:10])
	})
}

func TestWhatExpiredIsSaidOfWhatIsClaimed(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	rows := makeRows(3, 0)
	rows[0].TTL, rows[1].TTL, rows[1].Delay = time.Second, 100*24*time.Hour, time.Second
	sent := q.Clock().Now()
	q.exec(q.Enqueue(rows))
	require.Equal(t, sent.Add(time.Second).UnixMilli(), q.rows(q.Get(rows[0].ID))[0][7])
	require.Equal(t, sent.Add(100*24*time.Hour).UnixMilli(), q.rows(q.Get(rows[1].ID))[0][7])
	require.Nil(t, q.rows(q.Get(rows[2].ID))[0][7])
	q.Clock().Advance(time.Second)
	expired := map[[16]byte]int64{}
	for _, row := range q.rows(q.Claim(claimTen)) {
		expired[[16]byte(row[0].([]byte))] = row[5].(int64)
	}
	require.Equal(t, map[[16]byte]int64{rows[0].ID: 1, rows[1].ID: 0, rows[2].ID: 0}, expired)
}

// A step begins where the one before it ended, and what comes behind the first
// step is left to whoever comes next.
func TestAWindowBoundsPurgesRedrivesAndTrims(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	now := func() int64 { return q.Clock().Now().UnixMilli() }
	idOf := func(rows [][]any) (list [][16]byte) {
		for _, row := range rows {
			list = append(list, [16]byte(row[0].([]byte)))
		}
		return list
	}
	var ids [][16]byte
	var times []int64
	end := func(settle func(sqlbatch.Item) sqlbatch.Statement) {
		ids, times = nil, nil
		for range 4 {
			item := q.leased(1)[0]
			q.rows(settle(item))
			ids, times = append(ids, item.ID), append(times, now())
			q.Clock().Advance(time.Second)
		}
	}
	bury := func(i sqlbatch.Item) sqlbatch.Statement { return q.Bury([]sqlbatch.BuryItem{{Item: i}}) }
	middle := func() sqlbatch.Window { return sqlbatch.Window{After: times[1], Before: times[3]} }

	end(bury)
	purged := q.rows(q.Purge(sqlbatch.Dead, 1, middle()))
	require.Equal(t, [][]any{{ids[1][:], times[1]}}, purged, "the first of two that are between, and when it ended")
	require.Equal(t, ids[2:3], idOf(q.rows(q.Purge(sqlbatch.Dead, 10, middle()))))
	require.Equal(t, ids[:1], idOf(q.rows(q.Redrive(10, nil, sqlbatch.Window{Before: times[1]}))))
	require.Empty(t, q.rows(q.Redrive(0, ids, sqlbatch.Window{Before: times[3]})))
	require.Equal(t, [][]any{{ids[3][:], times[3]}}, q.rows(q.Redrive(0, ids, sqlbatch.Window{})))
	require.Len(t, q.rows(q.Purge(sqlbatch.Ready, 10, sqlbatch.Window{})), 2)

	end(func(i sqlbatch.Item) sqlbatch.Statement { return q.Archive([]sqlbatch.Item{i}) })
	require.Equal(t, ids[1:3], idOf(q.rows(q.Purge(sqlbatch.Done, 10, middle()))))
	require.Equal(t, [][]any{{ids[3][:], times[3]}}, q.rows(q.Trim(0, 10, times[1])))
	require.Equal(t, ids[:1], idOf(q.rows(q.Trim(0, 10, 0))))

	// Live ones, by when they became what they are.
	for state, become := range map[sqlbatch.State]func() [16]byte{
		sqlbatch.Ready: func() [16]byte {
			row := makeRows(1, 0)
			q.exec(q.Enqueue(row))
			return row[0].ID
		},
		sqlbatch.Scheduled: func() [16]byte {
			row := makeRows(1, 0)
			row[0].Delay = time.Hour
			q.exec(q.Enqueue(row))
			return row[0].ID
		},
		sqlbatch.Leased: func() [16]byte { return q.leased(1)[0].ID },
	} {
		first := become()
		q.Clock().Advance(time.Second)
		before := now()
		second := become()
		require.Equal(t, [][]any{{first[:], int64(0)}}, q.rows(q.Purge(state, 10, sqlbatch.Window{Before: before})), state)
		require.Equal(t, [][16]byte{second}, idOf(q.rows(q.Purge(state, 10, sqlbatch.Window{}))), state)
	}
	row := makeRows(1, 0)
	q.exec(q.Enqueue(row))
	q.rows(q.Claim(claimTen))
	q.Clock().Advance(time.Hour)
	require.Equal(t, [][16]byte{row[0].ID}, idOf(q.rows(q.Purge(sqlbatch.Ready, 10, sqlbatch.Window{}))), "its lease ran out")
}

func TestABuryRefundsTheAttemptThatNobodyWasGiven(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	items := q.leased(2)
	require.Len(t, q.rows(q.Bury([]sqlbatch.BuryItem{{Item: items[0], Error: "expired", Uncounted: true}, {Item: items[1]}})), 2)
	require.Equal(t, int64(0), q.rows(q.Get(items[0].ID))[0][4])
	require.Equal(t, int64(1), q.rows(q.Get(items[1].ID))[0][4])
}

// What a redrive moves is what the table of the living has, with its CHECK.
func TestARedriveMovesAllOfAMessage(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, _ *chanq.Queue[int]) {
		row := makeRows(1, sqlbatch.PriorityUrgent)[0]
		row.Key, row.Headers, row.Body, row.TTL = "k", []byte(`{"a":"b"}`), []byte(strings.Repeat("x", 10_000)), time.Hour
		q.exec(q.Enqueue([]sqlbatch.Row{row}))
		item := itemsOf(q.rows(q.Claim(claimTen)))[0]
		q.rows(q.Bury([]sqlbatch.BuryItem{{Item: item, Error: "why"}}))
		tx := begin(t, ctx, q)
		moved, err := rowsOf(ctx, tx, q.InTx().Redrive(10, nil, sqlbatch.Window{}))
		require.NoError(t, err)
		require.Len(t, moved, 1)
		require.NoError(t, tx.Rollback())
		require.Equal(t, "dead", q.rows(q.Get(row.ID))[0][0])
		require.Len(t, q.rows(q.Redrive(10, nil, sqlbatch.Window{})), 1)
		now := q.Clock().Now().UnixMilli()
		require.Equal(t, []any{
			"ready", row.ID[:], int64(2), item.Fence + 2, int64(0), now, now, nil, nil, nil, []byte("k"), "why", row.Headers, row.Body,
		}, q.rows(q.Get(row.ID))[0])
	})
}
