package mssqltest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
)

// refusals are constructs of T-SQL that are not supported, and how the error names them. The parser refuses some texts
// with its own words, and without a line: those are here with "".
var refusals = []struct{ text, construct string }{
	{`MERGE dbo.t AS a USING dbo.u AS b ON a.id = b.id WHEN MATCHED THEN UPDATE SET n = 1;`, "MERGE"},
	{`SELECT * FROM (SELECT id, n FROM dbo.t) AS s PIVOT (SUM(n) FOR id IN ([1], [2])) AS p`, "PIVOT"},
	{`SELECT * FROM dbo.t UNPIVOT (v FOR c IN (id, n)) AS p`, "UNPIVOT"},
	{`SELECT * FROM OPENJSON(N'{"a": 1}')`, "OPENJSON"},
	{`SELECT t.id FROM dbo.t OUTER APPLY (SELECT u.id FROM dbo.u WHERE u.id = t.id) AS x`, "OUTER"},
	{`SELECT ROW_NUMBER() OVER (ORDER BY id) FROM dbo.t`, "OVER"},
	{`SELECT RANK() OVER (PARTITION BY n ORDER BY id) FROM dbo.t`, "OVER"},
	{`SELECT SUM(n) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) FROM dbo.t`, "OVER"},
	{`SELECT LAG(n) OVER (ORDER BY id) FROM dbo.t`, "OVER"},
	{`CREATE TABLE #x (id int)`, "temporary table or CREATE TABLE AS"},
	{`SELECT id INTO #x FROM dbo.t`, "SELECT INTO"},
	{`SELECT id INTO dbo.copy FROM dbo.t`, "SELECT INTO"},
	{`DECLARE c CURSOR KEYSET FOR SELECT id FROM dbo.t; OPEN c; CLOSE c; DEALLOCATE c`, "a cursor that is Keyset"},
	{`DECLARE c CURSOR SCROLL DYNAMIC FOR SELECT id FROM dbo.t; OPEN c; FETCH LAST FROM c; CLOSE c; DEALLOCATE c`, "a cursor that is Scroll"},
	{`DECLARE @c CURSOR; SET @c = CURSOR FOR SELECT id FROM dbo.t`, "the type of @c"},
	{`DECLARE c CURSOR LOCAL FAST_FORWARD FOR SELECT id FROM dbo.t; OPEN c; FETCH NEXT FROM c; CLOSE c; DEALLOCATE c`, "a cursor that is Local"},
	{`DECLARE @x xml = N'<a>1</a>'; SELECT @x.value('(/a)[1]', 'int')`, "the type of @x"},
	{`DECLARE @x xml = N'<a>1</a>'; SELECT @x.query('/a')`, ""},
	{`SELECT id FROM dbo.t FOR XML PATH`, "XML"},
	{`SELECT id FROM dbo.t FOR JSON PATH`, "JSON"},
	{`SELECT JSON_VALUE(N'{"a":1}', '$.a')`, "the function JSON_VALUE"},
	{`GOTO done; SELECT 1; done: SELECT 2`, "the label done"},
	{`CREATE SEQUENCE dbo.s AS int START WITH 1`, "CREATE SEQUENCE but AS bigint"},
	{`CREATE SEQUENCE dbo.s2 AS bigint START WITH 1 INCREMENT BY 2 CYCLE`, "INCREMENT but 1"},
	{`CREATE TRIGGER dbo.tr ON dbo.t INSTEAD OF INSERT AS SELECT 1`, "INSTEAD"},
	{`CREATE TRIGGER ddl ON DATABASE FOR CREATE_TABLE AS SELECT 1`, "CREATE_TABLE"},
	{`CREATE TYPE dbo.ids AS TABLE (id int)`, "TYPE"},
	{`CREATE TYPE dbo.name FROM nvarchar(50)`, "TYPE"},
	{`CREATE FUNCTION dbo.f (@a int) RETURNS int AS BEGIN RETURN @a END`, "create function"},
	{`CREATE FUNCTION dbo.tv () RETURNS TABLE AS RETURN SELECT id FROM dbo.t`, "create function"},
	{`SELECT n, COUNT(*) FROM dbo.t GROUP BY n`, "GROUP"},
	{`SELECT n, COUNT(*) FROM dbo.t GROUP BY n HAVING COUNT(*) > 0`, "GROUP"},
	{`SELECT n FROM dbo.t GROUP BY ROLLUP (n)`, "GROUP"},
	{`SELECT n FROM dbo.t GROUP BY GROUPING SETS ((n), ())`, "GROUP"},
	{`SELECT DISTINCT n FROM dbo.t`, "SELECT DISTINCT"},
	{`SELECT id FROM dbo.t ORDER BY id OFFSET 1 ROWS FETCH NEXT 1 ROWS ONLY`, "OFFSET"},
	{`SELECT TOP (50) PERCENT id FROM dbo.t ORDER BY id`, "PERCENT"},
	{`SELECT TOP (1) WITH TIES id FROM dbo.t ORDER BY n`, "TIES"},
	{`SELECT id FROM dbo.t UNION SELECT id FROM dbo.u`, "UNION, and UNION ALL with ORDER BY"},
	{`SELECT id FROM dbo.t EXCEPT SELECT id FROM dbo.u`, "EXCEPT, and UNION ALL with ORDER BY"},
	{`SELECT id FROM dbo.t INTERSECT SELECT id FROM dbo.u`, "INTERSECT, and UNION ALL with ORDER BY"},
	{`SELECT t.id FROM dbo.t RIGHT JOIN dbo.u ON u.id = t.id`, "RIGHT"},
	{`SELECT t.id FROM dbo.t FULL JOIN dbo.u ON u.id = t.id`, "FULL"},
	{`SELECT t.id FROM dbo.t LEFT JOIN dbo.u ON u.id = t.id`, "LEFT"},
	{`SELECT LEFT('ab', 1) FROM dbo.t LEFT JOIN dbo.u ON u.id = t.id`, "LeftOuter JOIN"},
	{`SELECT id FROM dbo.t WHERE id IN (SELECT id FROM dbo.u)`, "IN (SELECT …)"},
	{`SELECT id FROM dbo.t WHERE id NOT IN (SELECT id FROM dbo.u)`, "IN (SELECT …)"},
	{`SELECT id FROM dbo.t WHERE n > ALL (SELECT n FROM dbo.u)`, ""},
	{`SELECT id FROM dbo.t WHERE s LIKE N'a%'`, "LIKE but of CONVERT (…) COLLATE …_BIN2 and a literal"},
	{`SELECT id FROM dbo.t WHERE s LIKE N'[a-c]_%' ESCAPE '!'`, "ESCAPE"},
	{`SELECT id FROM dbo.t WHERE CONTAINS(s, N'x')`, "full text predicate"},
	{`SELECT id FROM dbo.t WHERE s = N'A' COLLATE Latin1_General_CI_AS`, ""},
	{`SELECT id FROM dbo.t TABLESAMPLE (10 PERCENT)`, "TABLESAMPLE"},
	{`SELECT id FROM dbo.t FOR SYSTEM_TIME AS OF '2020-01-01'`, "SYSTEM_TIME"},
	{`WITH r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r`, "the recursive common table expression r"},
	{`BULK INSERT dbo.t FROM 'x.csv'`, "BULK"},
	{`SELECT * FROM OPENROWSET(BULK 'x', SINGLE_BLOB) AS x`, "OPENROWSET"},
	{`SELECT * FROM OPENQUERY(other, 'SELECT 1')`, "OPENQUERY"},
	{`SELECT * FROM other.dbo.t`, "a name with a database, other.dbo.t"},
	{`SELECT * FROM srv.other.dbo.t`, "a name with a database, srv.other.dbo.t"},
	{`INSERT TOP (1) INTO dbo.t (id, n) SELECT 7, 7`, "INSERT TOP"},
	{`INSERT INTO dbo.t DEFAULT VALUES`, "DEFAULT VALUES"},
	{`INSERT INTO dbo.t EXEC dbo.p`, "execute insert source"},
	{`DECLARE @v int; UPDATE dbo.t SET @v = n = n + 1 WHERE id = 1; SELECT @v`, "UPDATE … SET @v"},
	{`DECLARE @v int; UPDATE dbo.t SET @v = n WHERE id = 1; SELECT @v`, "UPDATE … SET @v"},
	{`UPDATE dbo.t SET n |= 1 WHERE id = 1`, "SET … BitwiseOrEquals"},
	{`UPDATE dbo.t SET s.WRITE(N'x', 0, 1) WHERE id = 1`, "function call set clause"},
	{`DELETE FROM dbo.t WHERE CURRENT OF c`, "OF"},
	{`DELETE TOP (1) PERCENT FROM dbo.t`, "PERCENT"},
	{`TRUNCATE TABLE dbo.u`, "TRUNCATE"},
	{`CREATE TABLE dbo.a1 (id int, total AS id * 2)`, "computed column"},
	{`CREATE TABLE dbo.a3 (id int, INDEX ix (id))`, "INDEX in CREATE TABLE"},
	{`CREATE TABLE dbo.a4 (id int REFERENCES dbo.t (id))`, "REFERENCES"},
	{`CREATE TABLE dbo.a5 (id int, geo geography)`, "user data type"},
	{`CREATE TABLE dbo.a6 (id int, v sql_variant)`, "the type sql_variant"},
	{`CREATE TABLE dbo.a7 (id int, m money)`, "the type money"},
	{`CREATE TABLE dbo.a8 (id int, r rowversion)`, "the type rowversion"},
	{`CREATE TABLE dbo.b1 (id int, x text)`, "the type text"},
	{`CREATE TABLE dbo.b2 (id int) WITH (MEMORY_OPTIMIZED = ON)`, "MEMORY_OPTIMIZED"},
	{`ALTER TABLE dbo.t ADD CONSTRAINT FK FOREIGN KEY (n) REFERENCES dbo.u (id)`, "FOREIGN"},
	{`ALTER TABLE dbo.t ALTER COLUMN n bigint`, "COLUMN"},
	{`ALTER TABLE dbo.t DROP COLUMN n`, "alter table drop table element"},
	{`ALTER TABLE dbo.t REBUILD`, "REBUILD"},
	{`ALTER INDEX ALL ON dbo.t REBUILD`, "alter index"},
	{`CREATE INDEX ix ON dbo.t (n)`, "CREATE INDEX on a table that holds rows"},
	{`CREATE INDEX ix2 ON dbo.u (n) INCLUDE (id)`, "INCLUDE"},
	{`CREATE INDEX ix3 ON dbo.u (n DESC)`, "DESC, bit, float or decimal in the key of an index"},
	{`CREATE COLUMNSTORE INDEX ix4 ON dbo.u (n)`, "COLUMNSTORE"},
	{`CREATE XML INDEX ix6 ON dbo.u (n)`, "XML"},
	{`CREATE STATISTICS st ON dbo.t (n)`, "STATISTICS"},
	{`UPDATE STATISTICS dbo.t`, "STATISTICS"},
	{`CREATE SYNONYM dbo.syn FOR dbo.t`, "SYNONYM"},
	{`CREATE DATABASE other`, "create database"},
	{`BACKUP DATABASE test TO DISK = 'x'`, "BACKUP"},
	{`DBCC CHECKDB`, "DBCC"},
	{`KILL 51`, "KILL"},
	{`SHUTDOWN`, "SHUTDOWN"},
	{`CHECKPOINT`, "CHECKPOINT"},
	{`WAITFOR (RECEIVE * FROM dbo.q), TIMEOUT 100`, "RECEIVE"},
	{`SEND ON CONVERSATION '6F9619FF-8B86-D011-B42D-00C04FC964FF' (N'x')`, "SEND"},
	{`RECEIVE TOP (1) * FROM dbo.q`, "RECEIVE"},
	{`CREATE QUEUE dbo.q`, "QUEUE"},
	{`BEGIN DISTRIBUTED TRANSACTION`, "DISTRIBUTED"},
	{`RAISERROR (50005, 16, 1)`, "RAISERROR of a number"},
	{`EXEC (N'SELECT 1')`, "execute"},
	{`EXEC (N'SELECT 1') AT other`, "AT"},
	{`EXECUTE AS USER = 'x'`, "execute as"},
	{`SET IDENTITY_INSERT dbo.t ON`, "IDENTITY_INSERT"},
	{`SET ANSI_NULLS OFF; SELECT 1 WHERE NULL = NULL`, "a comparison with NULL under ANSI_NULLS OFF"},
	{`SET STATISTICS IO ON`, "STATISTICS"},
	{`SET SHOWPLAN_XML ON`, "SHOWPLAN_XML"},
	{`SET DATEFIRST 3`, "SET DATEFIRST 3"},
	{`SET LANGUAGE French`, "SET LANGUAGE French"},
	{`SET NOEXEC ON`, "SET NoExec"},
	{`SELECT STRING_AGG(s, ',') FROM dbo.t`, "the function STRING_AGG"},
	{`SELECT value FROM STRING_SPLIT('a,b', ',')`, "global function table"},
	{`SELECT FORMAT(SYSUTCDATETIME(), 'yyyy')`, "the function FORMAT"},
	{`SELECT TRY_CONVERT(int, 'x')`, "TRY_CONVERT"},
	{`SELECT CONVERT(varchar(10), SYSUTCDATETIME(), 103)`, "conversion of datetime2 to nvarchar"},
	{`SELECT CHOOSE(2, 'a', 'b')`, "the function CHOOSE"},
	{`SELECT AVG(n) FROM dbo.t`, "the function AVG"},
	{`SELECT STDEV(n) FROM dbo.t`, "the function STDEV"},
	{`SELECT COUNT(DISTINCT n) FROM dbo.t`, "COUNT DISTINCT"},
	{`SELECT CHECKSUM_AGG(n) FROM dbo.t`, "the function CHECKSUM_AGG"},
	{`SELECT HASHBYTES('SHA2_256', 'x')`, "the function HASHBYTES"},
	{`SELECT NEWSEQUENTIALID()`, "the function NEWSEQUENTIALID"},
	{`SELECT RAND()`, "the function RAND"},
	{`SELECT GETDATE() AT TIME ZONE 'UTC'`, "AT"},
	{`SELECT DATENAME(month, SYSUTCDATETIME())`, "the function DATENAME"},
	{`SELECT EOMONTH(SYSUTCDATETIME())`, "the function EOMONTH"},
	{`SELECT @@IDENTITY`, "@@IDENTITY"},
	{`SELECT @@DBTS`, "@@DBTS"},
	{`SELECT dbo.nope(1)`, "the function or method NOPE"},
	{`SELECT REPLACE('aba', 'a', 'c'), UPPER('a'), LTRIM(' x'), LEN('abc'), REVERSE('ab')`, "the function REPLACE"},
	{`SELECT $identity FROM dbo.t`, "PseudoColumnIdentity"},
	{`SELECT n % 2, n & 1, n | 1, n ^ 1, ~n FROM dbo.t`, "BitwiseAnd"},
	{`SELECT id FROM dbo.t WITH (SNAPSHOT)`, "the hint SNAPSHOT"},
	{`SELECT id FROM dbo.t WITH (PAGLOCK)`, "the hint PAGLOCK"},
	{`SELECT id FROM dbo.t WITH (NOWAIT)`, "the hint NOWAIT"},
	{`SELECT id FROM dbo.t WITH (NOEXPAND)`, "NOEXPAND"},
	{`SELECT id FROM dbo.t OPTION (MAXDOP 1)`, "literal optimizer hint"},
	{`SELECT id FROM dbo.t OPTION (HASH JOIN)`, "HASH"},
	{`SELECT id FROM dbo.t OPTION (USE HINT ('DISABLE_OPTIMIZER_ROWGOAL'))`, "HINT"},
	{`DECLARE @h hierarchyid = '/1/'`, "the type of @h"},
	{`SELECT * FROM sys.dm_os_wait_stats`, "sys.dm_os_wait_stats"},
	{`SELECT * FROM INFORMATION_SCHEMA.TABLES`, "INFORMATION_SCHEMA.TABLES"},
	{`SELECT * FROM sys.columns`, "sys.columns"},
	{`EXEC sp_rename 'dbo.t', 'x'`, "the procedure sp_rename"},
	{`EXEC sp_help`, "the procedure sp_help"},
	{`EXEC sp_who2`, "the procedure sp_who2"},
	{`EXEC xp_cmdshell 'dir'`, "the procedure xp_cmdshell"},
	{`GRANT SELECT ON dbo.t TO PUBLIC`, "permission for PUBLIC"},
	{`DENY SELECT ON dbo.t TO public`, "DENY"},
	{`REVOKE SELECT ON dbo.t FROM public`, "REVOKE"},
	{`CREATE LOGIN x FROM WINDOWS`, "WINDOWS"},
	{`ENABLE TRIGGER ALL ON dbo.t`, "enable disable trigger"},
	{`DROP INDEX ix ON dbo.t`, "drop index"},
	{`CREATE PROCEDURE dbo.q2 AS SELECT 1 FOR XML PATH`, ""},
	{`SELECT id FROM dbo.t ORDER BY 1`, "ORDER BY a position"},
	{`BEGIN TRY SELECT 1 / 0 END TRY BEGIN CATCH SELECT ERROR_NUMBER(), ERROR_MESSAGE(); THROW END CATCH`, ""},
	{`SELECT TRIM('x'), CONCAT('a', 1), CONCAT_WS(',', 'a', 'b'), TRANSLATE('a','a','b')`, "the function TRIM"},
	{`SELECT PATINDEX('%a%', 'ba'), CHARINDEX('a', 'ba'), STUFF('abc', 1, 1, 'x')`, "the function PATINDEX"},
	{`SELECT ISNULL(NULL, 1), ABS(-1), CEILING(1.5), ROUND(1.5, 0), POWER(2, 3), SIGN(-1)`, "the function ABS"},
}

func TestWhatIsNotSupportedIsRefusedByItsNameAndLine(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(refusals), 100)
	db := mssqltest.Start(t, mssqltest.Options{InMemory: true}).DB()
	for _, setup := range []string{
		`CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, n int NOT NULL DEFAULT 0, s nvarchar(20) NULL)`,
		`CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY, n int NOT NULL)`,
		`CREATE PROCEDURE dbo.p AS SELECT 7, 7, N'x'`,
		`INSERT dbo.t VALUES (1, 1, N'a'), (2, 1, N'b')`,
	} {
		_, err := db.Exec(setup)
		require.NoError(t, err)
	}
	for _, c := range refusals {
		rows, err := db.QueryContext(t.Context(), "\n\n"+c.text)
		for err == nil && (rows.Next() || rows.NextResultSet()) {
		}
		if err == nil {
			err = rows.Err()
			_ = rows.Close()
		}
		if c.construct == "" {
			require.Equal(t, int32(102), number(err), c.text)
			require.ErrorContains(t, err, "not supported by mssqltest", c.text)
			continue
		}
		require.Equal(t, int32(40517), number(err), c.text)
		require.Equal(t, fmt.Sprintf("mssql: not supported by mssqltest: %s, line 3 (40517)", c.construct), err.Error(), c.text)
	}
	var left int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM dbo.t").Scan(&left))
	require.Equal(t, 2, left, "they change nothing")
}
