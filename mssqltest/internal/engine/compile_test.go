package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func TestCompileFindsErrorsThatARunWouldNotReach(t *testing.T) {
	s := newServer(t)
	c := s.client()
	c.exec(`CREATE TABLE dbo.q (id int NOT NULL, due int NOT NULL, note nvarchar(200) NULL, CONSTRAINT PK_q PRIMARY KEY CLUSTERED (id));
		CREATE INDEX IX_q ON dbo.q (due, id);
		CREATE TABLE dbo.d (id int NOT NULL, note nvarchar(200) NULL);
		CREATE TABLE dbo.checked (id int NOT NULL, CONSTRAINT positive CHECK (id > 0))`)
	c.exec("CREATE SCHEMA other")
	c.exec("CREATE TABLE other.t (id int NOT NULL)")
	const declaration = "@n int, @id int"
	for _, text := range []string{
		"SELECT @n; DELETE q OUTPUT deleted.id, deleted.note INTO dbo.d (id, note) FROM dbo.q AS q WHERE q.id = @id",
		"WITH c AS (SELECT TOP (@n) id, due FROM dbo.q ORDER BY due) UPDATE c SET due = due + 1 OUTPUT inserted.id",
		"DECLARE @t TABLE (id int NOT NULL PRIMARY KEY CLUSTERED); INSERT INTO @t (id) SELECT @id; SELECT t.id FROM @t AS t",
		"IF @n = 1 BEGIN EXEC sys.sp_getapplock @Resource = N'r', @LockMode = N'Shared'; THROW 50001, N'no', 1; END; WAITFOR DELAY '00:00:01'",
	} {
		require.NoError(t, s.Compile(text, declaration), text)
	}
	require.Zero(t, c.scalar("SELECT COUNT(*) FROM dbo.d"), "nothing ran")
	for text, want := range map[string]int32{
		"SELECT @m":                           137,
		"SET @m = 1":                          137,
		"EXEC @m = sys.sp_releaseapplock 'r'": 137,
		"INSERT INTO @t (id) SELECT 1":        1087,
		"DECLARE @t TABLE (id int NOT NULL); INSERT INTO @t (ids) SELECT 1":                   207,
		"DECLARE @t TABLE (id int NOT NULL, PRIMARY KEY CLUSTERED (ids))":                     1911,
		"SELECT q.dues FROM dbo.q AS q":                                                       207,
		"UPDATE dbo.q SET dues = 1":                                                           207,
		"INSERT INTO dbo.d (id, notes) SELECT 1, N''":                                         207,
		"DELETE q OUTPUT deleted.dues FROM dbo.q AS q":                                        207,
		"DELETE q OUTPUT deleted.id INTO dbo.d (ids) FROM dbo.q AS q":                         207,
		"SELECT c.due FROM (SELECT id FROM dbo.q) AS c":                                       207,
		"WITH c AS (SELECT id FROM dbo.q) SELECT due FROM c":                                  207,
		"IF EXISTS (SELECT 1 FROM dbo.q AS q WHERE q.dues = 1) SELECT 1":                      207,
		"IF 1 = 0 SELECT 1 ELSE DELETE q FROM dbo.q AS q WHERE q.dues = 1":                    207,
		"WHILE 1 = 0 BEGIN SELECT q.dues FROM dbo.q AS q; END":                                207,
		"BEGIN TRY SELECT 1; END TRY BEGIN CATCH SELECT q.dues FROM dbo.q AS q; END CATCH":    207,
		"DECLARE @x int = (SELECT MAX(q.dues) FROM dbo.q AS q)":                               207,
		"SELECT r.id FROM dbo.q AS q":                                                         4104,
		"SELECT q.id FROM dbo.qs AS q":                                                        208,
		"SELECT t.id FROM t":                                                                  208,
		"DELETE p FROM dbo.q AS q":                                                            208,
		"SELECT NEXT VALUE FOR dbo.s":                                                         208,
		"SELECT name FROM sys.tablets":                                                        208,
		"SELECT id FROM dbo.q AS q INNER JOIN dbo.d AS d ON d.id = q.id":                      209,
		"SELECT q.id FROM dbo.q AS q INNER JOIN dbo.d AS q ON 1 = 1":                          1011,
		"SELECT q.id FROM dbo.q AS q WITH (INDEX (IX_p))":                                     308,
		"DELETE q OUTPUT deleted.id INTO dbo.checked (id) FROM dbo.q AS q":                    333,
		"INSERT INTO dbo.d (id, id) SELECT 1, 2":                                              264,
		"INSERT INTO dbo.d (id, note) SELECT 1":                                               120,
		"INSERT INTO dbo.d (id, note) SELECT 1, N'', 2":                                       121,
		"INSERT INTO dbo.d (id, note) VALUES (1)":                                             109,
		"INSERT INTO dbo.d (id, note) VALUES (1, N'', 2)":                                     110,
		"INSERT INTO dbo.d VALUES (1)":                                                        213,
		"DELETE q OUTPUT deleted.id INTO dbo.d (id, note) FROM dbo.q AS q":                    120,
		"SELECT x.a FROM (SELECT id FROM dbo.q UNION ALL SELECT id, due FROM dbo.q) AS x (a)": 205,
		"SELECT v.a FROM (VALUES (1, 2)) AS v (a)":                                            8158,
		"SELECT v.a FROM (SELECT id + 1 FROM dbo.q) AS v":                                     8155,
		"DECLARE @n int": 134,
	} {
		var e *sqltype.Error
		require.ErrorAs(t, s.Compile(text, declaration), &e, text)
		require.Equal(t, want, e.Number, "%s: %s", text, e.Message)
	}
}
