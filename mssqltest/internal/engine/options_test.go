package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/tds"
)

func TestImplicitTransactionsStayOpenUntilTheyAreEnded(t *testing.T) {
	s := withItems(t, 3)
	c, other := s.client(), s.client()
	c.exec("SET IMPLICIT_TRANSACTIONS ON")
	require.Equal(t, int64(0), c.scalar("SELECT @@TRANCOUNT"), "neither SET nor a SELECT of no table opens one")
	w := c.exec("UPDATE dbo.items SET note = 'mine' WHERE id = 1")
	require.Equal(t, []string{"began"}, w.tx, "the client is informed")
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"))
	read := other.start("SELECT note FROM dbo.items WHERE id = 1")
	other.blocked()
	c.exec("ROLLBACK")
	require.Equal(t, []any{"n1"}, read.result().values())

	c.exec("SELECT note FROM dbo.items")
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"), "a SELECT of a table also opens one")
	c.exec("INSERT dbo.items VALUES (9, 9, 'kept'); COMMIT")
	require.Equal(t, int64(0), c.scalar("SELECT @@TRANCOUNT"))
	c.exec("BEGIN TRANSACTION")
	require.Equal(t, int64(2), c.scalar("SELECT @@TRANCOUNT"), "BEGIN is the second level")
	c.exec("COMMIT")
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"))
	c.exec("ROLLBACK; CREATE TABLE dbo.made (id int NOT NULL)")
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"), "definitions open one")
	c.exec("ROLLBACK")
	require.Empty(t, c.call("UPDATE dbo.items SET note = 'mine' WHERE id = 1", "").errors, "and it is not an error of the procedure (266)")
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"))
	c.exec("ROLLBACK; SET ANSI_DEFAULTS ON; SELECT note FROM dbo.items")
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"), "they are one of the ANSI defaults")
	c.exec("ROLLBACK; SET IMPLICIT_TRANSACTIONS OFF; INSERT dbo.items VALUES (10, 9, 'kept')")
	require.Nil(t, c.scalar("SELECT OBJECT_ID('dbo.made')"))
	require.Equal(t, int64(2), other.scalar("SELECT COUNT(*) FROM dbo.items WHERE note = 'kept'"))
}

func TestAProceduresImplicitTransactionsAndRowCountEndWithIt(t *testing.T) {
	s := withItems(t, 3)
	c := s.client()
	c.exec("SET IMPLICIT_TRANSACTIONS ON; SET ROWCOUNT 1")
	w := c.call("SET IMPLICIT_TRANSACTIONS OFF; SET ROWCOUNT 0; UPDATE dbo.items SET note = 'all'; SELECT id FROM dbo.items", "")
	require.Empty(t, w.errors)
	require.Len(t, w.values(), 3)
	require.Equal(t, int64(0), c.scalar("SELECT @@TRANCOUNT"))
	require.Len(t, c.query("SELECT id FROM dbo.items"), 1)
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"), "it is ON again")
	// sp_reset_connection.
	w = c.run(t.Context(), &tds.Request{Kind: tds.Batch, Text: "SELECT id FROM dbo.items; SELECT @@TRANCOUNT", Reset: true})
	require.Len(t, w.sets[0], 3)
	require.Equal(t, int64(0), w.sets[1][0][0])
}

func TestRowCountLimitsEachStatementByItself(t *testing.T) {
	s := withItems(t, 9)
	c := s.client()
	c.exec("SET ROWCOUNT 4")
	require.Len(t, c.query("SELECT id FROM dbo.items"), 4)
	require.Len(t, c.query("SELECT TOP (2) id FROM dbo.items"), 2, "TOP is less")
	require.Len(t, c.query("SELECT TOP (7) id FROM dbo.items"), 4)
	require.Equal(t, int64(9), c.scalar("SELECT COUNT(*) FROM dbo.items"), "a counted query returns no result")
	require.Equal(t, []int64{4}, c.exec("UPDATE dbo.items SET note = 'x'").counts)
	require.Equal(t, []int64{3}, c.exec("UPDATE TOP (3) dbo.items SET note = 'x'").counts)
	require.Equal(t, []int64{4}, c.exec("INSERT dbo.items SELECT id + 100, due, note FROM dbo.items").counts)
	require.Equal(t, []int64{4}, c.exec("INSERT dbo.items VALUES (201, 1, ''), (202, 1, ''), (203, 1, ''), (204, 1, ''), (205, 1, '')").counts)
	require.Equal(t, []int64{4}, c.exec("DELETE dbo.items").counts)
	c.exec("SET ROWCOUNT 0")
	require.Equal(t, []int64{13}, c.exec("DELETE dbo.items").counts)
}

func TestLockTimeoutEndsAWaitWith1222(t *testing.T) {
	clock := NewManualClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	s := withItems(t, 2, func(o *Options) { o.Clock = clock })
	writer, reader := s.client(), s.client()
	writer.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'new' WHERE id = 1")
	reader.fails(1222, "SET LOCK_TIMEOUT 0; SELECT note FROM dbo.items WHERE id = 1")
	reader.exec("SET LOCK_TIMEOUT 0; SELECT note FROM dbo.items WHERE id = 2")
	read := reader.start("SET LOCK_TIMEOUT 300; SELECT note FROM dbo.items WHERE id = 1")
	require.Eventually(t, func() bool { return clock.Waiting() == 1 }, time.Minute, time.Millisecond)
	clock.Advance(300 * time.Millisecond)
	require.Equal(t, int32(1222), read.result().number())
}

func TestAChangeSkipsLockedRowsOnlyWithReadPast(t *testing.T) {
	for _, change := range [][]func(*Options){nil, {rcsi}} {
		s := withItems(t, 3, change...)
		holder, c := s.client(), s.client()
		holder.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'held' WHERE id = 2")
		require.Equal(t, []any{int64(1), int64(3)}, c.exec("UPDATE i SET note = 'x' OUTPUT deleted.id FROM dbo.items AS i WITH (UPDLOCK, READPAST, ROWLOCK)").values())
		require.Equal(t, []any{int64(1), int64(3)}, c.exec("BEGIN TRAN; DELETE i OUTPUT deleted.id FROM dbo.items AS i WITH (UPDLOCK, READPAST, ROWLOCK); ROLLBACK").values())
		waits := c.start("DELETE i OUTPUT deleted.id FROM dbo.items AS i WITH (ROWLOCK)")
		c.blocked()
		holder.exec("ROLLBACK")
		require.Equal(t, []any{int64(1), int64(2), int64(3)}, waits.result().values())
	}
}

const checkedTable = `CREATE TABLE dbo.checked (
	id int NOT NULL CONSTRAINT PK_checked PRIMARY KEY CLUSTERED,
	lane smallint NULL CONSTRAINT CK_lane CHECK (lane >= -1 AND lane <= 2),
	low int NULL, high int NULL,
	CONSTRAINT CK_range CHECK (low <= high))`

func TestACheckRefusesRowsThatViolateIt(t *testing.T) {
	c := newServer(t).client()
	c.exec(checkedTable)
	c.exec("INSERT dbo.checked VALUES (1, -1, 1, 1), (2, 2, NULL, 0), (3, NULL, NULL, NULL)")
	e := c.fails(547, "INSERT dbo.checked VALUES (4, 3, 1, 1)")
	require.Equal(t, `The INSERT statement conflicted with the CHECK constraint "CK_lane". The conflict occurred in database "test", table "dbo.checked", column 'lane'.`, e.Message)
	c.fails(547, "INSERT dbo.checked (id, lane) SELECT 5, -2")
	c.fails(547, "UPDATE dbo.checked SET low = 2 WHERE id = 1")
	require.Equal(t, int64(3), c.scalar("SELECT COUNT(*) FROM dbo.checked"))
	require.Equal(t, int64(1), c.scalar("SELECT low FROM dbo.checked WHERE id = 1"))
}

func TestATableWithACheckIsNoTargetOfOutputInto(t *testing.T) {
	c := newServer(t).client()
	c.exec(checkedTable)
	c.exec("CREATE TABLE dbo.plain (id int NOT NULL)")
	c.fails(333, "DELETE dbo.plain OUTPUT deleted.id INTO dbo.checked (id)")
	c.exec("INSERT dbo.checked (id) VALUES (1); DELETE dbo.checked OUTPUT deleted.id INTO dbo.plain (id)")
	c.exec("DECLARE @t TABLE (id int NOT NULL CHECK (id > 0)); DELETE dbo.plain OUTPUT deleted.id INTO @t (id)")
}

func TestADefaultIsEvaluatedForEachRow(t *testing.T) {
	c := newServer(t).client()
	c.exec(`CREATE TABLE dbo.made (
		id binary(16) NOT NULL DEFAULT (CONVERT(binary(6), DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME())) + CONVERT(binary(2), 28672) + SUBSTRING(CONVERT(binary(16), NEWID()), 9, 8)),
		at datetime2(3) NOT NULL DEFAULT (SYSUTCDATETIME()),
		n int NOT NULL)`)
	c.exec("INSERT dbo.made (n) VALUES (1), (2), (3); INSERT dbo.made (n) SELECT n FROM dbo.made")
	ids := map[string]bool{}
	for _, row := range c.query("SELECT id FROM dbo.made") {
		id := row[0].([]byte)
		require.Len(t, id, 16)
		require.Equal(t, []byte{0x70, 0}, id[6:8])
		require.Equal(t, byte(0x80), id[8]&0xC0, "the variant")
		ids[string(id)] = true
	}
	require.Len(t, ids, 6)
}

func TestAFilteredIndexOfNullsHasNoOtherRows(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE TABLE dbo.held (id int NOT NULL PRIMARY KEY CLUSTERED, due int NOT NULL, by_whom int NULL)")
	c.exec("CREATE INDEX IX_free ON dbo.held (due) WHERE by_whom IS NULL; CREATE INDEX IX_taken ON dbo.held (due) WHERE by_whom IS NOT NULL")
	c.exec("INSERT dbo.held VALUES (1, 10, NULL), (2, 20, 7), (3, 30, NULL); UPDATE dbo.held SET by_whom = 8 WHERE id = 3; UPDATE dbo.held SET by_whom = NULL WHERE id = 2")
	free := "SELECT id FROM dbo.held WITH (INDEX (IX_free), FORCESEEK) WHERE due > 0 AND "
	require.Equal(t, []any{int64(1), int64(2)}, c.exec(free+"by_whom IS NULL").values())
	require.Equal(t, []any{int64(3)}, c.exec("SELECT id FROM dbo.held WITH (INDEX (IX_taken), FORCESEEK) WHERE due > 0 AND by_whom IS NOT NULL").values())
	c.fails(8622, free+"by_whom IS NOT NULL")
	c.fails(8622, free+"id > 0")
}

func TestTheDatabaseReportsTheDurabilityOfItsCommits(t *testing.T) {
	c := newServer(t).client()
	for i, value := range []string{"DISABLED", "ALLOWED", "FORCED"} {
		c.exec("ALTER DATABASE CURRENT SET DELAYED_DURABILITY = " + value)
		require.Equal(t, int64(i), c.scalar("SELECT delayed_durability FROM sys.databases WHERE database_id = DB_ID()"))
	}
}

func TestAListAndARangeBehindItAreOneSeekForEachOfTheList(t *testing.T) {
	s := newServer(t)
	c := s.client()
	c.exec("CREATE TABLE dbo.lanes (id int NOT NULL PRIMARY KEY CLUSTERED, lane int NOT NULL, due int NOT NULL); CREATE INDEX IX_lanes ON dbo.lanes (lane, due)")
	for i := range 40 {
		c.exec(fmt.Sprintf("INSERT dbo.lanes VALUES (%d, %d, %d)", i, i%4, i))
	}
	s.ResetQueryStats()
	require.ElementsMatch(t, []any{int64(1), int64(2), int64(5), int64(6)}, c.exec("SELECT id FROM dbo.lanes WITH (INDEX (IX_lanes), FORCESEEK) WHERE lane IN (2, 1) AND due < 7").values())
	for _, p := range s.QueryStats() {
		if strings.HasPrefix(p.Text, "SELECT id") {
			require.Equal(t, int64(4), p.KeysRead)
			return
		}
	}
	require.Fail(t, "it has a plan")
}
