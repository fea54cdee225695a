package engine

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAssignmentWithAnOperation(t *testing.T) {
	c := withItems(t, 2).client()
	c.exec("UPDATE dbo.items SET due += 5, note = N'a' WHERE id = 1; UPDATE dbo.items SET note += N'b', due *= 2 - 1 WHERE id = 1")
	require.Equal(t, "ab", c.scalar("SELECT note FROM dbo.items WHERE id = 1"))
	require.Equal(t, int64(7), c.scalar("DECLARE @n int = 10; SET @n -= 3; SELECT @n"))
	require.Equal(t, int64(20), c.scalar("DECLARE @n int = 10; SET @n *= 1 + 1; SELECT @n"))
	require.Equal(t, int64(1), c.scalar("DECLARE @n int = 10; SET @n %= 3; SELECT @n"))
	c.fails(40517, "DECLARE @n int = 10; SET @n |= 3; SELECT @n")
}

func TestShortFormsOfCase(t *testing.T) {
	c := newServer(t).client()
	for text, want := range map[string]any{
		"COALESCE(NULL, NULL, 3)": int64(3), "COALESCE(1, 2)": int64(1), "NULLIF(1, 1)": nil, "NULLIF(1, 2)": int64(1),
		"IIF(1 = 2, N'a', N'b')": "b", "COALESCE(NULLIF(1, 1), 5)": int64(5),
	} {
		require.Equal(t, want, c.scalar("SELECT "+text), text)
	}
}

func TestScopeIdentityIsOfTheBatchOrTheProcedure(t *testing.T) {
	s := newServer(t)
	c := s.client()
	c.exec("CREATE TABLE dbo.a (id int IDENTITY(10, 5) PRIMARY KEY, n int NOT NULL); CREATE TABLE dbo.b (id int IDENTITY PRIMARY KEY, n int NOT NULL)")
	require.Nil(t, c.scalar("SELECT SCOPE_IDENTITY()"))
	require.Equal(t, big.NewRat(15, 1), c.scalar("INSERT dbo.a (n) VALUES (1), (2); SELECT SCOPE_IDENTITY()"))
	c.exec("CREATE TRIGGER dbo.tr ON dbo.a AFTER INSERT AS INSERT dbo.b (n) SELECT n FROM inserted")
	require.Equal(t, big.NewRat(20, 1), c.scalar("INSERT dbo.a (n) VALUES (3); SELECT SCOPE_IDENTITY()"), "not that of the trigger")
	require.Equal(t, big.NewRat(20, 1), c.scalar("EXEC sp_executesql N'INSERT dbo.b (n) VALUES (1)'; SELECT SCOPE_IDENTITY()"))
	require.Equal(t, int64(25), c.scalar("EXEC sp_executesql N'INSERT dbo.a (n) VALUES (1); SELECT CONVERT(int, SCOPE_IDENTITY())'"))
	require.Nil(t, s.client().scalar("SELECT SCOPE_IDENTITY()"))
}
