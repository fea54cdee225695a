package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASequenceGivesEachNumberOnce(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE SEQUENCE dbo.n AS bigint START WITH 5 INCREMENT BY 1 MINVALUE 0 MAXVALUE 8 NO CACHE;")
	const current = "SELECT CONVERT(bigint, s.current_value) AS v FROM sys.sequences AS s WHERE s.object_id = OBJECT_ID(N'dbo.n', N'SO');"
	require.Equal(t, []any{int64(5)}, c.exec(current).values(), "before the first draw it is the first number")
	const draw = "DECLARE @n bigint; SET @n = NEXT VALUE FOR dbo.n; SELECT @n AS n;"
	require.Equal(t, []any{int64(5)}, c.exec(draw).values())
	require.Equal(t, []any{int64(5)}, c.exec(current).values())
	c.exec("BEGIN TRANSACTION;")
	require.Equal(t, []any{int64(6)}, c.exec(draw).values())
	c.exec("ROLLBACK TRANSACTION;")
	c.exec("CREATE TABLE dbo.t (n bigint NOT NULL DEFAULT (NEXT VALUE FOR dbo.n * 10), b int NOT NULL);")
	c.exec("INSERT INTO dbo.t (b) VALUES (1), (2);")
	require.Equal(t, []any{int64(70), int64(80)}, c.exec("SELECT n FROM dbo.t ORDER BY b;").values(), "one number per row, and a rollback returns none")
	c.fails(11728, draw)
	c.exec("DROP TABLE dbo.t; DROP SEQUENCE dbo.n;")
	c.fails(208, draw)
}
