package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func TestExpressions(t *testing.T) {
	c := newServer(t).client()
	for text, want := range map[string]any{
		"7 / 2":                    int64(3),
		"7 % 4 + 2 * 3":            int64(9),
		"-5":                       int64(-5),
		"'a' + 'b'":                "ab",
		"0x01 + 0x0203":            []byte{1, 2, 3},
		"CONVERT(int, 0x0000012C)": int64(300),
		"CONVERT(bigint, CONVERT(binary(8), 0x01))":                                 int64(1 << 56),
		"CONVERT(smallint, 0xFF)":                                                   int64(255),
		"CONVERT(binary(4), 258)":                                                   []byte{0, 0, 1, 2},
		"CONVERT(varbinary(max), N'ab')":                                            []byte{'a', 0, 'b', 0},
		"CONVERT(nvarchar(10), 0x61006200)":                                         "ab",
		"SUBSTRING(0x0102030405, 2, 3)":                                             []byte{2, 3, 4},
		"SUBSTRING(N'a\u00e9cd', 2, 2)":                                             "\u00e9c",
		"SUBSTRING('abc', -1, 3)":                                                   "a",
		"SUBSTRING('abc', 3, 9223372036854775807)":                                  "c",
		"SUBSTRING(N'ab', 9, 1)":                                                    "",
		"SUBSTRING(CONVERT(char(4), 'ab'), 2, 9)":                                   "b  ",
		"LEFT(N'abcd', 3)":                                                          "abc",
		"LEFT('ab', 9) + '!'":                                                       "ab!",
		"DATALENGTH(LEFT(N'abc', 2))":                                               int64(4),
		"ISNULL(LEFT(CONVERT(varchar(9), NULL), 2), 'none')":                        "none",
		"DATALENGTH(N'abc')":                                                        int64(6),
		"DATALENGTH(CONVERT(varbinary(max), 0x010203))":                             int64(3),
		"ISNULL(NULL, 5)":                                                           int64(5),
		"DATEADD(day, -31, CAST('20260131' AS date))":                               time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC),
		"CASE WHEN NULL = NULL THEN 1 ELSE 2 END":                                   int64(2),
		"CASE WHEN 'ABC  ' = 'abc' THEN 1 ELSE 0 END":                               int64(1),
		"CASE WHEN 5 IN (1, NULL) THEN 1 WHEN NOT 5 IN (1, NULL) THEN 2 ELSE 3 END": int64(3),
		"CONVERT(varchar, 12)":                                                      "12",
		"CAST('2026-01-02T03:04:05' AS datetime2(3))":                               time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"CAST('20260102' AS datetime2(0))":                                          time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		"DATEADD(millisecond, 1500, CAST('19700101' AS datetime2(3)))":              time.Date(1970, 1, 1, 0, 0, 1, 5e8, time.UTC),
		"DATEDIFF(day, '20260101', '20260201')":                                     int64(31),
		"DATEDIFF_BIG(millisecond, '19700101', '20260101')":                         int64(1767225600000),
		"DB_NAME()": "test",
		"(SELECT MAX(v.x) FROM (VALUES (1), (3), (2)) AS v (x))": int64(3),
	} {
		require.Equal(t, want, c.scalar("SELECT "+text), text)
	}
}

func TestErrorsHaveTheServersNumbers(t *testing.T) {
	c := newServer(t, snapshots).client()
	c.exec(itemsTable + `
CREATE TABLE dbo.keyed (id int IDENTITY(1,1) PRIMARY KEY, k varbinary(20) NULL, small tinyint NULL, must varchar(3) NOT NULL DEFAULT ('x'));
CREATE UNIQUE INDEX UX_keyed ON dbo.keyed (k) WHERE k IS NOT NULL;
INSERT dbo.items VALUES (1, 1, NULL); INSERT dbo.keyed (k) VALUES (0x0A)`)
	for text, number := range map[string]int32{
		"SELECT * FROM dbo.nothing":                               208,
		"SELECT nothing FROM dbo.items":                           207,
		"SELECT q.id FROM dbo.items":                              4104,
		"SELECT id FROM dbo.items AS a CROSS JOIN dbo.items AS b": 209,
		"SELECT @x":             137,
		"SELECT * FROM @t":      1087,
		"EXEC dbo.nothing":      2812,
		"SELECT 1 / 0":          8134,
		"SELECT LEFT('a', -1)":  537,
		"SELECT 2147483647 + 1": 8115,
		"SELECT DATEADD(millisecond, 2147483648, SYSUTCDATETIME())":       8115,
		"SELECT DATEADD(day, 2147483647, SYSUTCDATETIME())":               517,
		"SELECT DATEDIFF(millisecond, '19700101', '20260101')":            535,
		"SELECT CONVERT(int, 'x')":                                        245,
		"SELECT CONVERT(datetime2, 'x')":                                  241,
		"SELECT CONVERT(uniqueidentifier, 'x')":                           8169,
		"SELECT 'a' + 0x01":                                               402,
		"SELECT 1 WHERE 0x01 = CONVERT(datetime2, '20200101')":            206,
		"INSERT dbo.items VALUES (1, 2, NULL)":                            2627,
		"INSERT dbo.keyed (k) VALUES (0x0A)":                              2601,
		"INSERT dbo.items (id) VALUES (2)":                                515,
		"UPDATE dbo.items SET due = NULL":                                 515,
		"INSERT dbo.keyed (must) VALUES ('long')":                         2628,
		"INSERT dbo.keyed (small) VALUES (256)":                           220,
		"INSERT dbo.keyed (id) VALUES (5)":                                544,
		"INSERT dbo.keyed (k) VALUES ('text')":                            257,
		"INSERT dbo.items (id, due) VALUES (1)":                           109,
		"INSERT dbo.items VALUES (1)":                                     213,
		"SELECT id FROM dbo.items WITH (FORCESEEK)":                       8622,
		"SELECT id FROM dbo.keyed WITH (INDEX (UX_keyed)) WHERE k = 0x0A": 8622,
		"SELECT id FROM dbo.items WITH (INDEX (nothing))":                 308,
		"UPDATE dbo.items WITH (INDEX (PK_items)) SET due = 1":            1069,
		"UPDATE dbo.items WITH (NOLOCK) SET due = 1":                      1065,
		"INSERT dbo.items WITH (READPAST) VALUES (9, 9, NULL)":            4140,
		"INSERT dbo.items WITH (READCOMMITTEDLOCK) VALUES (9, 9, NULL)":   4140,
		"SELECT id FROM dbo.items WITH (READPAST, SERIALIZABLE)":          650,
		"SELECT (SELECT v.x FROM (VALUES (1), (2)) AS v (x))":             512,
		"COMMIT":               3902,
		"ROLLBACK":             3903,
		"DELTE FROM dbo.items": 102,
		"SELECT NOTHING(1)":    40517,
		"SELECT id FROM dbo.items WITH (ROWLOCK, READPSAT)": 321,
		"SELECT id FROM dbo.items WITH (PAGLOCK)":           40517,
		"CREATE TABLE dbo.items (id int)":                   2714,
		"DROP TABLE dbo.nothing":                            3701,
		"THROW 51000, N'own', 1":                            51000,
		"MERGE dbo.items AS t USING (SELECT 1 AS a) AS s ON t.id = s.a WHEN MATCHED THEN DELETE;": 40517,
		"INSERT dbo.items VALUES " + strings.Repeat("(9, 9, NULL), ", 1000) + "(9, 9, NULL)":      10738,
	} {
		e := c.fails(number, text)
		require.NotZero(t, e.Class, text)
	}
	e := c.fails(2627, "INSERT dbo.items VALUES (1, 2, NULL)")
	require.Equal(t, "Violation of PRIMARY KEY constraint 'PK_items'. Cannot insert duplicate key in object 'dbo.items'. The duplicate key value is (1).", e.Message)
	require.Equal(t, "Cannot insert duplicate key row in object 'dbo.keyed' with unique index 'UX_keyed'. The duplicate key value is (0x0a).",
		c.fails(2601, "INSERT dbo.keyed (k) VALUES (0x0A)").Message)
}

func TestAFailedStatementLeavesNothingBehind(t *testing.T) {
	c := withItems(t, 3).client()
	c.fails(2627, "INSERT dbo.items SELECT v.a, v.a, NULL FROM (VALUES (7), (8), (2), (9)) AS v (a)")
	c.fails(2627, "UPDATE dbo.items SET id = 3 WHERE id < 3")
	require.Equal(t, []any{int64(1), int64(2), int64(3)}, c.exec("SELECT id FROM dbo.items").values())
	require.Equal(t, []any{int64(1), int64(2), int64(3)}, c.exec("SELECT id FROM dbo.items WITH (INDEX (IX_items_due)) ORDER BY due").values())
}

func TestRollbackRestoresEverything(t *testing.T) {
	c := withItems(t, 3).client()
	c.exec(`BEGIN TRAN;
UPDATE dbo.items SET due = due + 100, id = id + 10;
DELETE dbo.items WHERE id = 11;
INSERT dbo.items VALUES (1, 5, 'again');
`)
	require.Equal(t, []any{int64(1), int64(12), int64(13)}, c.exec("SELECT id FROM dbo.items").values())
	c.exec("ROLLBACK")
	require.Equal(t, []any{int64(10), int64(20), int64(30)}, c.exec("SELECT due FROM dbo.items").values())
	require.Equal(t, []any{int64(1), int64(2), int64(3)}, c.exec("SELECT id FROM dbo.items WITH (INDEX (IX_items_due)) ORDER BY due").values())
}

func TestDefinitionsAreTransactional(t *testing.T) {
	c := newServer(t).client()
	c.exec("BEGIN TRAN; " + itemsTable + " INSERT dbo.items VALUES (1, 1, NULL); ROLLBACK")
	require.Nil(t, c.scalar("SELECT OBJECT_ID(N'dbo.items', N'U')"))
	c.exec(itemsTable + " BEGIN TRAN; CREATE INDEX IX_note ON dbo.items (note); INSERT dbo.items VALUES (1, 1, NULL); ROLLBACK")
	require.Nil(t, c.scalar("SELECT INDEXPROPERTY(OBJECT_ID('dbo.items'), 'IX_note', 'IndexID')"))
	c.exec("INSERT dbo.items VALUES (1, 1, NULL)")
	c.exec("DROP TABLE dbo.items")
	c.fails(208, "SELECT id FROM dbo.items")
}

func TestJoinsAndSubqueries(t *testing.T) {
	c := withItems(t, 4).client()
	c.exec("CREATE TABLE dbo.tags (item int NOT NULL, tag varchar(10) NOT NULL); INSERT dbo.tags VALUES (1, 'a'), (1, 'b'), (3, 'a')")
	require.Equal(t, []Row{{int64(1), "a"}, {int64(1), "b"}, {int64(3), "a"}},
		c.query("SELECT i.id, t.tag FROM dbo.items AS i INNER JOIN dbo.tags AS t ON t.item = i.id ORDER BY i.id, t.tag"))
	require.Equal(t, []Row{{int64(3), "n3"}, {int64(1), "n1"}},
		c.query("SELECT p.x, q.note FROM (VALUES (3), (1), (9)) AS p (x) CROSS APPLY (SELECT TOP (1) note FROM dbo.items WHERE id = p.x) AS q"))
	require.Equal(t, []any{int64(2), int64(4)}, c.exec("SELECT id FROM dbo.items AS i WHERE NOT EXISTS (SELECT 1 FROM dbo.tags AS t WHERE t.item = i.id)").values())
	require.Equal(t, []any{int64(1), int64(2)}, c.exec("SELECT 1 UNION ALL SELECT 2").values())
	require.Equal(t, Row{int64(0), nil}, c.query("SELECT COUNT(*), MAX(id) FROM dbo.items WHERE id > 99")[0])
}

// The emulator refuses unsupported syntax: it silently ignores no part of a statement.
func TestUnknownStatementsAreRefused(t *testing.T) {
	c := withItems(t, 3).client()
	for _, text := range []string{
		"SELECT DISTINCT due FROM dbo.items",
		"SELECT x.due FROM (SELECT DISTINCT due FROM dbo.items) AS x",
		"SELECT due FROM dbo.items GROUP BY due",
		"SELECT 1 FROM (SELECT due FROM dbo.items GROUP BY due) AS x",
		"SELECT COUNT(DISTINCT due) FROM dbo.items",
		"SELECT due FROM dbo.items ORDER BY 1",
		"SELECT due FROM dbo.items ORDER BY due OFFSET 1 ROWS",
		"SELECT x.due FROM (SELECT due FROM dbo.items ORDER BY due OFFSET 1 ROWS) AS x",
		"SELECT 1 UNION SELECT 1",
		"SELECT 1 EXCEPT SELECT 1",
		"SELECT 1 FROM dbo.items AS a LEFT JOIN dbo.items AS b ON a.id = b.id",
		"SELECT 1 FROM dbo.items AS a OUTER APPLY (SELECT 1 AS one) AS b",
		"SELECT 1 FROM dbo.items WHERE note LIKE 'n%'",
		"SELECT 1 FROM dbo.items WHERE id BETWEEN 1 AND 2",
		"SELECT 1 FROM dbo.items WHERE id IN (SELECT 1)",
		"SELECT 1 FROM OPENJSON('[]')",
		"SELECT 1.5 * 2",
		"SELECT 6 & 3",
		"SELECT i.* FROM dbo.items AS i",
		"DECLARE @n int = 1; SET @n |= 1",
		"DECLARE @t TABLE (id int NOT NULL); UPDATE @t SET id = 1",
		"DECLARE @t TABLE (id int NOT NULL); DELETE @t FROM @t AS t",
		"SET DEADLOCK_PRIORITY 3",
		"DECLARE @x xml",
		"DECLARE @name sysname",
		"EXEC sp_executesql DEFAULT",
		"SELECT 1 WHERE CONVERT(bit, 1) = CONVERT(bit, 0)",
		"SELECT due FROM dbo.items ORDER BY CONVERT(float, due)",
		"SELECT MAX(CONVERT(float, due)) FROM dbo.items",
		"SELECT COL_LENGTH('dbo.items', 'note')",
		"SELECT CONVERT(varchar(30), GETUTCDATE())",
		"SELECT CONVERT(varchar(1), CONVERT(bit, 1))",
		"SELECT CONVERT(varbinary(1), CONVERT(bit, 1))",
		"SELECT CONVERT(uniqueidentifier, 0x01)",
		"CREATE TABLE dbo.falling (due int NOT NULL); CREATE INDEX IX_falling ON dbo.falling (due DESC)",
		"CREATE TABLE dbo.wide (due int NOT NULL, note int NULL); CREATE INDEX IX_wide ON dbo.wide (due) INCLUDE (note)",
		"CREATE TABLE dbo.half (id float NOT NULL PRIMARY KEY)",
		"SET IDENTITY_INSERT dbo.items ON",
		"ALTER TABLE dbo.items ADD extra int NULL",
		"TRUNCATE TABLE dbo.items",
		"CREATE INDEX IX_late ON dbo.items (note)",
		"CREATE TYPE dbo.ids AS TABLE (id int NOT NULL)",
		"CREATE TABLE dbo.cased (name varchar(9) COLLATE Latin1_General_BIN2 NOT NULL)",
	} {
		c.fails(40517, text)
	}
	c.fails(40517, "SELECT UPPER('a')")
	require.Equal(t, int64(3), c.scalar("SELECT COUNT(*) FROM dbo.items"))
}

func TestOutputComesFromBeforeAndAfter(t *testing.T) {
	c := withItems(t, 3).client()
	require.Equal(t, []Row{{int64(10), int64(11)}, {int64(20), int64(21)}},
		c.query("UPDATE dbo.items SET due = due + 1 OUTPUT deleted.due, inserted.due AS later WHERE id < 3"))
	c.exec("CREATE TABLE dbo.log (id int NOT NULL, why varchar(10) NULL)")
	w := c.exec("DELETE TOP (1) FROM dbo.items OUTPUT deleted.id, 'gone' INTO dbo.log (id, why) OUTPUT deleted.note WHERE id = 2")
	require.Equal(t, []any{"n2"}, w.values())
	require.Equal(t, []Row{{int64(2), "gone"}}, c.query("SELECT id, why FROM dbo.log"))
	c.exec("CREATE TRIGGER dbo.tr ON dbo.items AFTER DELETE AS BEGIN SELECT 1 END")
	c.fails(334, "DELETE dbo.items OUTPUT deleted.id")
	c.exec("DELETE dbo.items OUTPUT deleted.id, NULL INTO dbo.log")
	require.Equal(t, int64(3), c.scalar("SELECT COUNT(*) FROM dbo.log"))
}

func TestOutputRowsStaySentWhenTheStatementFailsLater(t *testing.T) {
	s := withItems(t, 3)
	c := s.client()
	s.SetHooks(Hooks{OutputRow: func(_ context.Context, _ Statement, n int) error {
		if n == 2 {
			return &sqltype.Error{Number: 1205, Class: 13, State: 51, Message: "deadlock"}
		}
		return nil
	}})
	w := c.try("UPDATE dbo.items SET note = 'x' OUTPUT inserted.id")
	s.SetHooks(Hooks{})
	require.Equal(t, []any{int64(1), int64(2)}, w.values())
	require.Equal(t, int32(1205), w.number())
	require.Positive(t, w.flushes)
	require.Equal(t, []any{"n1", "n2", "n3"}, c.exec("SELECT note FROM dbo.items").values())
}

func TestVariablesLoopsAndBranches(t *testing.T) {
	c := newServer(t).client()
	w := c.exec(`DECLARE @n int = 0, @s varchar(3) = 'abcdef', @sum int = 0;
WHILE 1 = 1
BEGIN
	SET @n = @n + 1;
	IF @n = 2 CONTINUE;
	IF @n > 4 BREAK;
	SET @sum = @sum + @n;
END;
PRINT 'sum ' + CONVERT(varchar, @sum);
SELECT @s, @sum, @n;`)
	require.Equal(t, []Row{{"abc", int64(8), int64(5)}}, w.sets[0])
	require.Equal(t, []string{"sum 8"}, w.messages)
	c.exec("DECLARE @t TABLE (id int IDENTITY PRIMARY KEY, v int NOT NULL); INSERT @t (v) VALUES (5), (6); BEGIN TRAN; DELETE t FROM @t AS t WHERE t.v = 5; ROLLBACK; IF (SELECT COUNT(*) FROM @t) <> 1 THROW 50000, 'a table variable is no part of the transaction', 1")
}

func TestProcedures(t *testing.T) {
	c := withItems(t, 2).client()
	c.exec("CREATE PROCEDURE dbo.take (@id int, @step int = 1, @now int OUTPUT) AS BEGIN SET NOCOUNT ON; UPDATE dbo.items SET due = due + @step WHERE id = @id; SELECT @now = due FROM dbo.items WHERE id = @id; END")
	w := c.exec("DECLARE @rc int = 9, @out int; EXEC @rc = dbo.take 1, @now = @out OUTPUT; SELECT @rc, @out; INSERT dbo.items VALUES (3, 3, NULL)")
	require.Equal(t, Row{int64(0), int64(11)}, w.sets[0][0])
	require.Equal(t, []int64{1, 1}, w.counts, "NOCOUNT ended with the procedure")
	c.fails(201, "EXEC dbo.take")
	c.fails(8145, "EXEC dbo.take @nothing = 1")
	c.exec("CREATE PROCEDURE dbo.opens AS BEGIN TRAN")
	c.fails(266, "EXEC dbo.opens")
	c.exec("ROLLBACK")
}

func TestExecuteSQLConvertsToTheDeclaredTypes(t *testing.T) {
	c := newServer(t).client()
	bin := func(n int) sqltype.Type { return sqltype.Type{Kind: sqltype.VarBinary, Size: n} }
	w := c.call("SELECT DATALENGTH(@a), @n + 1", "@a binary(4), @n bigint", p{"a", bin(2), []byte{1, 2}}, p{"n", typeInt, int64(41)})
	require.Equal(t, Row{int64(4), int64(42)}, w.sets[0][0])
	require.Equal(t, int32(257), c.call("SELECT 1", "@a varbinary(10)", p{"a", sqltype.Type{Kind: sqltype.NVarChar, Size: 1}, nil}).number())
	require.Equal(t, int32(8114), c.call("SELECT 1", "@a int", p{"a", typeText, "x"}).number())
	require.Equal(t, int32(8152), c.call("SELECT 1", "@a varbinary(2)", p{"a", bin(3), []byte{1, 2, 3}}).number())
	require.Equal(t, int32(8178), c.call("SELECT @a", "@a int").number())
	require.Equal(t, int32(137), c.call("SELECT @b", "@a int", p{"a", typeInt, int64(1)}).number())
	many := make([]p, 2099)
	for i := range many {
		many[i] = p{"x", typeInt, int64(1)}
	}
	require.Equal(t, int32(8003), c.call("SELECT 1", "", many...).number())
}

func TestSettingsOfADynamicBatchEndWithIt(t *testing.T) {
	c := withItems(t, 1).client()
	c.call("SET NOCOUNT, XACT_ABORT ON; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "")
	w := c.exec("UPDATE dbo.items SET due = 1; SELECT id FROM dbo.items WITH (READPAST)")
	require.Equal(t, []int64{1, 1}, w.counts)
}

func TestViewsCanBeUpdated(t *testing.T) {
	c := withItems(t, 3).client()
	c.exec("CREATE VIEW dbo.late AS SELECT id AS number, due FROM dbo.items WHERE due > 10")
	require.Equal(t, []any{int64(2)}, c.exec("UPDATE TOP (1) dbo.late WITH (READPAST) SET due = 5 OUTPUT inserted.number").values())
	require.Equal(t, []any{int64(3)}, c.exec("SELECT number FROM dbo.late").values())
	c.exec("DROP VIEW dbo.late")
}

// "UPDATE (Transact-SQL)" and "CREATE VIEW", Updatable Views: a change of columns of one base table.
func TestAJoinCanBeUpdatedInOneOfItsTables(t *testing.T) {
	s := withItems(t, 4)
	c := s.client()
	const join = "WITH a AS (SELECT TOP (@n) u.id, u.note FROM dbo.items AS i WITH (INDEX (IX_items_due), FORCESEEK)" +
		" INNER JOIN dbo.items AS u WITH (UPDLOCK, READPAST) ON u.id = i.id WHERE i.due > 10 ORDER BY i.due, i.id) "
	const update = "DECLARE @n int = 2; " + join + "UPDATE a SET note = 'x' OUTPUT inserted.id OPTION (FORCE ORDER, OPTIMIZE FOR (@n = 1))"
	s.ResetQueryStats()
	require.Equal(t, []any{int64(2), int64(3)}, c.exec(update).values())
	for _, plan := range s.QueryStats() {
		if plan.Text == update {
			require.EqualValues(t, 4, plan.KeysRead)
			require.EqualValues(t, 6, plan.Locks, "S on an entry, U and X on its row")
		}
	}
	c.fails(4405, "DECLARE @n int = 2; "+join+"DELETE a")
	c.fails(4405, "DECLARE @n int = 2; "+join+"INSERT a (id, note) VALUES (9, 'x')")
	c.fails(4405, "WITH a AS (SELECT u.id, i.note FROM dbo.items AS i INNER JOIN dbo.items AS u ON u.id = i.id) UPDATE a SET note = 'x'")
	c.fails(137, "DECLARE @n int = 2; "+join+"UPDATE a SET note = 'x' OPTION (OPTIMIZE FOR (@m = 1))")
}

func TestColumnsOfAViewHaveTheirNames(t *testing.T) {
	c := withItems(t, 1).client()
	c.exec("CREATE VIEW dbo.shown AS SELECT d.number, d.twice, CASE WHEN d.twice > 0 THEN 'y' END AS word FROM (SELECT id AS number, 2 * id AS twice FROM dbo.items) AS d")
	for _, text := range []string{"SELECT number, twice, word FROM dbo.shown", "SELECT s.number, s.twice, s.word FROM dbo.shown AS s", "SELECT * FROM dbo.shown"} {
		require.Equal(t, []string{"number", "twice", "word"}, c.exec(text).columns[0], text)
	}
	require.Equal(t, []string{"n", ""}, c.exec("SELECT twice AS n, twice + 1 FROM dbo.shown").columns[0])
}

func TestFilteredIndexesNeedTheAnsiSettings(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE TABLE dbo.keyed (id int PRIMARY KEY, k int NULL); CREATE UNIQUE INDEX UX ON dbo.keyed (k) WHERE k IS NOT NULL")
	c.fails(1934, "SET QUOTED_IDENTIFIER OFF; INSERT dbo.keyed VALUES (1, 1)")
	c.exec("SET QUOTED_IDENTIFIER ON; INSERT dbo.keyed VALUES (1, 1), (2, NULL), (3, NULL)")
	c.fails(2601, "INSERT dbo.keyed VALUES (4, 1)")
	require.Equal(t, int64(1), c.scalar("SELECT id FROM dbo.keyed WITH (INDEX (UX), FORCESEEK) WHERE k = 1 AND k IS NOT NULL"))
}

func TestPermissions(t *testing.T) {
	s := withItems(t, 1)
	admin := s.client()
	admin.exec("CREATE LOGIN bob WITH PASSWORD = 'pw'; CREATE USER bob FOR LOGIN bob")
	admin.exec("CREATE PROCEDURE dbo.p AS SELECT COUNT(*) FROM dbo.items")
	l, err := s.Login(t.Context(), loginOf("bob", "pw"))
	require.NoError(t, err)
	bob := &client{Session: l.(*Session), srv: s, t: t}
	defer bob.Close()
	bob.fails(229, "SELECT id FROM dbo.items")
	bob.fails(229, "EXEC dbo.p")
	admin.exec("GRANT SELECT ON dbo.items TO bob; GRANT EXECUTE ON SCHEMA::dbo TO bob")
	bob.exec("SELECT id FROM dbo.items; EXEC dbo.p")
	bob.fails(229, "INSERT dbo.items VALUES (5, 5, NULL)")
	bob.fails(229, "DELETE dbo.items")
	_, err = s.Login(t.Context(), loginOf("bob", "wrong"))
	require.ErrorContains(t, err, "18456")
}

func TestAScanIsSeenByWhatItReads(t *testing.T) {
	s := withItems(t, 50)
	c := s.client()
	s.ResetQueryStats()
	const seek = "SELECT TOP (3) id FROM dbo.items WITH (INDEX (IX_items_due), FORCESEEK) WHERE due > 100 ORDER BY due, id"
	const scan = "SELECT id FROM dbo.items WHERE note = 'n7'"
	c.exec(seek)
	c.exec(seek)
	c.exec(scan)
	read := map[string]Cost{}
	for _, plan := range s.QueryStats() {
		read[plan.Text] = plan.Cost
	}
	require.Equal(t, Cost{Requests: 2, RowsReturned: 6, KeysRead: 6, RowsRead: 6, Locks: 6}, read[seek])
	require.EqualValues(t, 50, read[scan].KeysRead)
}

func TestOrderComesFromTheIndexForwardsAndBackwards(t *testing.T) {
	s := withItems(t, 20)
	c := s.client()
	s.ResetQueryStats()
	const text = "SELECT TOP (2) id FROM dbo.items WITH (INDEX (IX_items_due)) WHERE due < 100 ORDER BY due DESC, id DESC"
	require.Equal(t, []any{int64(9), int64(8)}, c.exec(text).values())
	for _, plan := range s.QueryStats() {
		if plan.Text == text {
			require.EqualValues(t, 2, plan.KeysRead)
		}
	}
}

func TestAColumnIsAddedToATableWithoutRows(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE TABLE dbo.grows (id int NOT NULL PRIMARY KEY)")
	c.exec("BEGIN TRANSACTION; ALTER TABLE dbo.grows ADD lost int NULL; ROLLBACK TRANSACTION")
	c.exec("ALTER TABLE dbo.grows ADD due int NULL CONSTRAINT DF_due DEFAULT (7)")
	c.exec("INSERT INTO dbo.grows (id) VALUES (1)")
	require.Equal(t, []Row{{int64(1), int64(7)}}, c.query("SELECT id, due FROM dbo.grows"))
	c.fails(207, "SELECT lost FROM dbo.grows")
	c.fails(40517, "ALTER TABLE dbo.grows ADD late int NULL")
	c.exec("DELETE FROM dbo.grows")
	c.fails(2705, "CREATE TABLE dbo.twice (id int); ALTER TABLE dbo.twice ADD ID int NULL")
}
