package tsqlcheck_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/tsqlcheck"
)

func TestTablesPass(t *testing.T) {
	require.NoError(t, tsqlcheck.Check(`CREATE TABLE [dbo].[q] (
    id binary(16) NOT NULL,
    due datetime2(3) NOT NULL,
    note nvarchar(200) NULL,
    CONSTRAINT [PK_q] PRIMARY KEY CLUSTERED (id) WITH (STATISTICS_NORECOMPUTE = ON)
);
CREATE NONCLUSTERED INDEX [IX_q] ON [dbo].[q] (due, id) WHERE note IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);`))
}

func TestCorrectStatementsPass(t *testing.T) {
	for _, text := range []string{
		"SET NOCOUNT, XACT_ABORT ON;",
		"DECLARE @now datetime2(3) = SYSUTCDATETIME();\nSET @now = DATEADD(day, -1, @now);",
		"SELECT COUNT(*) AS n FROM [dbo].[q] AS q WHERE q.id = @id; -- a comment; with 'quotes",
		"UPDATE TOP (@n) q SET fence = q.fence + 1 OUTPUT inserted.id, deleted.fence FROM [dbo].[q] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([IX_q]), FORCESEEK) WHERE q.due <= SYSUTCDATETIME() OPTION (KEEPFIXED PLAN);",
		"WITH c AS (SELECT TOP (@n) id, fence FROM [dbo].[q] ORDER BY due, id) UPDATE c SET fence = fence + 1 OUTPUT inserted.id OPTION (KEEPFIXED PLAN, OPTIMIZE FOR (@n = 1));",
		"DELETE q OUTPUT deleted.id, deleted.note INTO [dbo].[d] (id, note) OUTPUT deleted.id FROM [dbo].[q] AS q WHERE q.id = @id;",
		"INSERT INTO [dbo].[d] WITH (ROWLOCK) (id, note) SELECT v.i, v.n FROM (VALUES (@id, N'it''s')) AS v (i, n) WHERE NOT EXISTS (SELECT 1 FROM [dbo].[d] AS d WHERE d.id = v.i);",
		"IF @@ROWCOUNT = 0 BEGIN THROW 50001, N'no', 1; END;",
		"BEGIN TRANSACTION; COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);",
		"ALTER TABLE [dbo].[q] SET (LOCK_ESCALATION = DISABLE);",
		"SELECT p.i FROM (VALUES (1), (2)) AS p (i) CROSS APPLY (SELECT TOP (1) q.id FROM [dbo].[q] AS q WHERE q.fence = p.i ORDER BY q.due DESC) AS f;",
	} {
		require.NoError(t, tsqlcheck.Check(text), text)
	}
}

func TestBrokenStatementsFail(t *testing.T) {
	for name, text := range map[string]string{
		"misspelt verb":                     "DELTE FROM [dbo].[q];",
		"misspelt verb with a condition":    "UDPATE [dbo].[q] SET fence = 1;",
		"misspelt keyword":                  "SELECT id FORM [dbo].[q];",
		"misspelt hint":                     "SELECT q.id FROM [dbo].[q] AS q WITH (READPSAT, READCOMMITTEDLOCK);",
		"misspelt query hint":               "DELETE q FROM [dbo].[q] AS q OPTION (KEEPFIXD PLAN);",
		"OPTIMIZE FOR without a value":      "DELETE q FROM [dbo].[q] AS q OPTION (OPTIMIZE FOR (@n));",
		"unknown query hint":                "DELETE q FROM [dbo].[q] AS q OPTION (LOOP JOIN, QUICKLY);",
		"hints without parentheses":         "SELECT q.id FROM [dbo].[q] AS q WITH READPAST;",
		"hints not closed":                  "SELECT q.id FROM [dbo].[q] AS q WITH (UPDLOCK WHERE q.id = @id;",
		"hint twice":                        "SELECT q.id FROM [dbo].[q] AS q WITH (UPDLOCK, UPDLOCK);",
		"no parenthesis before a list":      "INSERT INTO [dbo].[d] id, note) SELECT @id, N'';",
		"no parenthesis after a call":       "SELECT SUBSTRING(@id, 1, 2 AS x;",
		"RETURNING":                         "DELETE q FROM [dbo].[q] AS q WHERE q.id = @id RETURNING id;",
		"LIMIT":                             "SELECT q.id FROM [dbo].[q] AS q ORDER BY q.due LIMIT 10;",
		"FOR UPDATE SKIP LOCKED":            "SELECT q.id FROM [dbo].[q] AS q FOR UPDATE SKIP LOCKED;",
		"ON CONFLICT":                       "INSERT INTO [dbo].[d] (id, note) SELECT @id, N'' ON CONFLICT DO NOTHING;",
		"missing comma in a list":           "SELECT q.id q.due FROM [dbo].[q] AS q;",
		"missing comma that makes an alias": "SELECT q.id due FROM [dbo].[q] AS q;",
		"comma at the end":                  "SELECT q.id, FROM [dbo].[q] AS q;",
		"CTE without AS":                    "WITH c (SELECT TOP (@n) id FROM [dbo].[q] ORDER BY id) DELETE c;",
		"CTE without parentheses":           "WITH c AS SELECT TOP (@n) id FROM [dbo].[q] DELETE c;",
		"string not closed":                 "SELECT q.id FROM [dbo].[q] AS q WHERE q.note = N'x;",
		"bracket not closed":                "SELECT q.id FROM [dbo].[q AS q;",
		"INTERVAL":                          "SELECT NOW() + INTERVAL '1 second' AS t;",
		"NOW":                               "SELECT NOW() AS t;",
		"TOP without parentheses":           "DELETE TOP @n q FROM [dbo].[q] AS q;",
		"ORDER BY in an UPDATE":             "UPDATE q SET fence = 1 FROM [dbo].[q] AS q ORDER BY q.due;",
		"OUTPUT after FROM":                 "DELETE q FROM [dbo].[q] AS q OUTPUT deleted.id WHERE q.id = @id;",
		"VALUES of uneven rows":             "SELECT v.i FROM (VALUES (1, 2), (3)) AS v (i, j);",
		"lock escalation NEVER":             "ALTER TABLE [dbo].[q] SET (LOCK_ESCALATION = NEVER);",
		"unknown durability":                "COMMIT TRANSACTION WITH (DELAYED_DURABILITY = MAYBE);",
		"unknown isolation":                 "SET TRANSACTION ISOLATION LEVEL READ COMITTED;",
		"unknown setting":                   "SET NOCOUNT, XACT_ABORTS ON;",
		"setting without ON":                "SET NOCOUNT;",
		"unknown function":                  "SELECT DATEDIF_BIG(day, @id, @id) AS d;",
		"function with too few":             "SELECT SUBSTRING(@id, 1) AS s;",
		"unknown part of a date":            "SELECT DATEADD(milisecond, 1, SYSUTCDATETIME()) AS t;",
		"unknown type":                      "DECLARE @x datetime3(3);",
		"type too long":                     "DECLARE @x varbinary(9000);",
		"type without its length":           "DECLARE @x varbinary;",
		"join without ON":                   "SELECT q.id FROM [dbo].[q] AS q INNER JOIN [dbo].[d] AS d;",
		"IF without THEN":                   "IF EXISTS (SELECT 1 FROM [dbo].[q] AS q);",
		"block not closed":                  "IF @n > 0 BEGIN DELETE q FROM [dbo].[q] AS q;",
		"empty block":                       "IF @n > 0 BEGIN END;",
		"no semicolon":                      "SET NOCOUNT, XACT_ABORT ON",
		"double equals":                     "SELECT q.id FROM [dbo].[q] AS q WHERE q.id == @id;",
		"label":                             "again: SELECT @n AS n;",
		"IS NUL":                            "SELECT q.id FROM [dbo].[q] AS q WHERE q.note IS NUL;",
		"INDEX at the target":               "UPDATE [dbo].[q] WITH (INDEX ([IX_q])) SET fence = 1;",
		"READCOMMITTEDLOCK at the target":   "INSERT INTO [dbo].[d] WITH (READCOMMITTEDLOCK) (id, note) SELECT @id, N'';",
		"READPAST with SERIALIZABLE":        "SELECT q.id FROM [dbo].[q] AS q WITH (UPDLOCK, READPAST, SERIALIZABLE);",
		"READPAST alone":                    "SELECT q.id FROM [dbo].[q] AS q WITH (READPAST);",
		"UPDLOCK with XLOCK":                "SELECT q.id FROM [dbo].[q] AS q WITH (UPDLOCK, XLOCK);",
		"two lock sizes":                    "SELECT q.id FROM [dbo].[q] AS q WITH (ROWLOCK, READCOMMITTEDLOCK);",
	} {
		require.Error(t, tsqlcheck.Check(text), "%s: %s", name, text)
	}
}
