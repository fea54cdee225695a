package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReturnEndsABatchOrAProcedureAndSetsItsStatus(t *testing.T) {
	c := newServer(t).client()
	require.Equal(t, []any{int64(1)}, c.exec("SELECT 1; RETURN; SELECT 2").values())
	require.Equal(t, []any{int64(1)}, c.exec("IF 1 = 1\nBEGIN\n    SELECT 1\n    RETURN\nEND\nSELECT 2").values())
	c.exec("CREATE PROCEDURE dbo.p @n int AS\nIF @n = 1 RETURN\nIF @n = 2 RETURN 20\nIF @n = 3 RETURN @n * 10\nIF @n = 4 RETURN NULL\nSELECT N'end'")
	for n, status := range map[string]int64{"1": 0, "2": 20, "3": 30, "4": 0} {
		require.Equal(t, []any{status}, c.exec("DECLARE @r int = -1; EXEC @r = dbo.p "+n+"; SELECT @r").values(), n)
	}
	require.Equal(t, []any{"end", int64(0)}, c.exec("DECLARE @r int = -1; EXEC @r = dbo.p 5; SELECT @r").values())
	c.fails(178, "SELECT 1; RETURN 5")
}

func TestRaiserrorReportsAndGoesOn(t *testing.T) {
	c := withItems(t, 1).client()
	w := c.try("SET XACT_ABORT ON; BEGIN TRAN; RAISERROR (N'%s has %d of 100%%', 16, 7, N'it', 5); SELECT @@TRANCOUNT; ROLLBACK")
	require.Len(t, w.errors, 1)
	require.Equal(t, []any{int32(50000), uint8(7), uint8(16), "it has 5 of 100%", int32(1)},
		[]any{w.errors[0].Number, w.errors[0].State, w.errors[0].Class, w.errors[0].Message, w.errors[0].Line})
	require.Equal(t, []any{int64(1)}, w.values(), "it does not roll back, even under XACT_ABORT")
	c.exec("SET XACT_ABORT OFF")
	require.Equal(t, []string{"only a message"}, c.exec("RAISERROR ('only a message', 10, 1) WITH NOWAIT").messages)
	require.Equal(t, Row{int64(50000), "caught", int64(11), int64(3)}, c.exec(
		"BEGIN TRY RAISERROR ('caught', 11, 3); SELECT 0; END TRY BEGIN CATCH SELECT ERROR_NUMBER(), ERROR_MESSAGE(), ERROR_SEVERITY(), ERROR_STATE(); END CATCH").sets[0][0])
	for _, text := range []string{
		"RAISERROR (50005, 16, 1)", "RAISERROR ('x', 19, 1)", "RAISERROR ('%x', 16, 1, 5)", "RAISERROR ('x', 16, 1) WITH LOG",
		"SET XACT_ABORT ON; BEGIN TRAN; BEGIN TRY RAISERROR ('x', 16, 1); END TRY BEGIN CATCH SELECT 1; END CATCH",
	} {
		c.fails(40517, text)
	}
	c.fails(2786, "RAISERROR ('%d', 16, 1, N'no number')")
}

// What comes after an unsupported construct is not run, and no CATCH hides it.
func TestAnUnsupportedConstructEndsTheBatch(t *testing.T) {
	c := withItems(t, 3).client()
	for _, text := range []string{
		"SELECT UPPER('a'); DELETE dbo.items",
		"BEGIN TRY SELECT UPPER('a'); END TRY BEGIN CATCH DELETE dbo.items; END CATCH",
		"EXEC sp_executesql N'SELECT UPPER(''a'')'; DELETE dbo.items",
	} {
		w := c.try(text)
		require.Len(t, w.errors, 1, text)
		require.Equal(t, "not supported by mssqltest: the function UPPER, line 1", w.errors[0].Message)
		require.Equal(t, int64(3), c.scalar("SELECT COUNT(*) FROM dbo.items"), text)
	}
	c.exec("CREATE PROCEDURE dbo.p AS\nSELECT 1\nSELECT UPPER('a')")
	w := c.try("EXEC dbo.p; DELETE dbo.items")
	require.Equal(t, "not supported by mssqltest: the function UPPER, line 3", w.errors[0].Message)
	require.Equal(t, int64(3), c.scalar("SELECT COUNT(*) FROM dbo.items"))
}

func TestTheLineIsThatOfTheConstruct(t *testing.T) {
	c := withItems(t, 1).client()
	for text, line := range map[string]int32{
		"SELECT id\nFROM dbo.items\nWHERE id = LEN(note)":                              3,
		"SELECT id,\n    UPPER(note)\nFROM dbo.items":                                  2,
		"SELECT i.id\nFROM dbo.items AS i\nLEFT JOIN dbo.items AS j\nON i.id = j.id":   3,
		"SELECT id\nFROM sys.columns":                                                  2,
		"SELECT 1;\nUPDATE dbo.items\nSET due = 1,\n    note = REPLACE(note, 'a', '')": 4,
	} {
		require.Equal(t, line, c.fails(40517, text).Line, text)
	}
}

func TestExecuteIsFoundBehindAnyText(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE PROCEDURE dbo.p @s nvarchar(100) AS SELECT @s")
	for _, s := range []string{"plain", "Łódź", "😀", "a\r\nb\r\n", "é\u0301\u2028"} {
		require.Equal(t, s, c.scalar("EXEC dbo.p N'"+s+"'"), "%q", s)
		require.Equal(t, []any{s, s}, c.exec("SELECT N'"+s+"'; EXEC dbo.p N'"+s+"'").values(), "%q", s)
		require.Equal(t, []any{s}, c.exec("-- "+strings.ReplaceAll(s, "\r\n", " ")+"\r\nDECLARE @r int\r\nEXEC @r = dbo.p N'"+s+"'").values(), "%q", s)
	}
}
