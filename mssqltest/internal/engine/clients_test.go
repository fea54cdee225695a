package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// Requests of drivers other than go-mssqldb.

// rpc calls a procedure with parameters that may have names.
func (c *client) rpc(proc string, params ...tds.Param) *recorder {
	return c.run(context.Background(), &tds.Request{Kind: tds.RPC, Proc: proc, Params: params})
}

func text(name, value string) tds.Param { return tds.Param{Name: name, Type: typeText, Value: value} }

func number(name string, value any) tds.Param {
	return tds.Param{Name: name, Type: typeInt, Value: value, Output: value == nil}
}

func TestAPreparedStatementRunsByItsHandle(t *testing.T) {
	c := withItems(t, 3).client()
	w := c.rpc("sp_prepare", number("", nil), text("", "@a int"), text("", "SELECT id, note FROM dbo.items WHERE id >= @a; DELETE dbo.items WHERE id = @a"))
	require.Empty(t, w.errors)
	require.Equal(t, [][]string{{"id", "note"}}, w.columns, "the columns of its result")
	require.Empty(t, w.sets[0])
	require.Equal(t, []int{0}, w.places)
	handle := w.outputs[0].Value
	require.Equal(t, int64(3), c.scalar("SELECT COUNT(*) FROM dbo.items"), "and it has no effect")

	w = c.rpc("sp_execute", number("", handle), number("@a", int64(2)))
	require.Empty(t, w.errors)
	require.Equal(t, []any{int64(2), int64(3)}, w.values())
	require.Equal(t, []int64{2, 1}, w.counts)
	require.Equal(t, []any{int64(3)}, c.rpc("sp_execute", number("", handle), number("", int64(2))).values())
	require.Equal(t, int32(8178), c.rpc("sp_execute", number("", handle)).number(), "its parameter is missing")

	w = c.rpc("sp_prepexec", number("handle", nil), text("params", "@a int, @b int OUTPUT"), text("stmt", "SET @b = @a + 1; SELECT @a"),
		number("@a", int64(4)), tds.Param{Name: "@b", Type: typeInt, Output: true})
	require.Empty(t, w.errors)
	require.Equal(t, []any{int64(4)}, w.values())
	require.Equal(t, []int{0, 4}, w.places)
	require.Equal(t, int64(5), w.outputs[1].Value)
	second := w.outputs[0].Value
	require.NotEqual(t, handle, second)

	require.Empty(t, c.rpc("sp_unprepare", number("", handle)).errors)
	require.Equal(t, int32(8179), c.rpc("sp_execute", number("", handle), number("", int64(1))).number())
	require.Equal(t, int32(8179), c.rpc("sp_unprepare", number("", handle)).number())
	require.Equal(t, []any{int64(7)}, c.rpc("sp_execute", number("", second), number("", int64(7)), number("", int64(0))).values())

	// Handles belong to the session, and end with its reset.
	require.Equal(t, int32(8179), c.srv.client().rpc("sp_execute", number("", second)).number())
	c.run(t.Context(), &tds.Request{Kind: tds.Batch, Text: "SELECT 1", Reset: true})
	require.Equal(t, int32(8179), c.rpc("sp_execute", number("", second), number("", int64(1)), number("", int64(0))).number())
}

func TestAFailedPrepareReportsTwoErrors(t *testing.T) {
	c := withItems(t, 1).client()
	for _, proc := range []string{"sp_prepare", "sp_prepexec"} {
		w := c.rpc(proc, number("", nil), text("", ""), text("", "SELECT @nowhere"))
		require.Len(t, w.errors, 2)
		require.Equal(t, []int32{137, 8180}, []int32{w.errors[0].Number, w.errors[1].Number})
		require.Nil(t, w.outputs[0].Value)
	}
	w := c.rpc("sp_prepare", number("", nil), text("", ""), text("", "SELECT nothing FROM dbo.items"))
	require.Equal(t, int32(207), w.number())
	require.Equal(t, int32(201), c.rpc("sp_prepare", number("", nil)).number())
	require.Equal(t, int32(201), c.rpc("sp_execute").number())
}

func TestSystemProceduresTakeNamesWithoutTheirSign(t *testing.T) {
	c := withItems(t, 2).client()
	w := c.rpc("sp_executesql", text("stmt", "SELECT @P1"), text("params", "@P1 int"), number("@P1", int64(9)))
	require.Empty(t, w.errors)
	require.Equal(t, []any{int64(9)}, w.values())
	require.Equal(t, int32(8145), c.rpc("sp_executesql", text("statements", "SELECT 1")).number())
	c.exec("BEGIN TRAN")
	w = c.rpc("sp_getapplock", text("Resource", "r"), text("LockMode", "Exclusive"))
	require.Empty(t, w.errors)
	require.Equal(t, int32(0), *w.status)
}

func TestASavepointUndoesWhatCameAfterIt(t *testing.T) {
	s := withItems(t, 3)
	c := s.client()
	note := func() any { return c.scalar("SELECT note FROM dbo.items WHERE id = 1") }
	c.fails(628, "SAVE TRAN early")
	c.exec("BEGIN TRAN whole; UPDATE dbo.items SET note = 'a' WHERE id = 1; SAVE TRAN one; UPDATE dbo.items SET note = 'b' WHERE id = 1")
	c.exec("DECLARE @name nvarchar(32) = N'two'; SAVE TRANSACTION @name; UPDATE dbo.items SET note = 'c' WHERE id = 1; ROLLBACK TRAN two")
	require.Equal(t, "b", note())
	require.Equal(t, []string(nil), c.exec("ROLLBACK TRAN one").tx, "the transaction continues")
	require.Equal(t, "a", note())
	c.fails(6401, "ROLLBACK TRAN two")
	require.Equal(t, int64(1), c.scalar("SELECT @@TRANCOUNT"))
	other := s.client()
	waits := other.start("UPDATE dbo.items SET note = 'other' WHERE id = 1")
	other.blocked()
	require.Equal(t, []string{"rolled back"}, c.exec("ROLLBACK TRAN whole").tx)
	require.Empty(t, waits.result().errors)
	require.Equal(t, "other", note())
}

func TestTheTransactionManagerSavesAndNames(t *testing.T) {
	c := withItems(t, 1).client()
	ask := func(op tds.TxOp, name string) *recorder {
		return c.run(t.Context(), &tds.Request{Kind: tds.Transaction, Tx: tds.TxRequest{Op: op, Name: name}})
	}
	ask(tds.TxBegin, "whole")
	require.Empty(t, ask(tds.TxSave, "here").errors)
	c.exec("UPDATE dbo.items SET note = 'x' WHERE id = 1")
	require.Empty(t, ask(tds.TxRollback, "here").tx)
	require.Equal(t, "n1", c.scalar("SELECT note FROM dbo.items WHERE id = 1"))
	require.Equal(t, int32(6401), ask(tds.TxRollback, "there").number())
	require.Equal(t, []string{"rolled back"}, ask(tds.TxRollback, "whole").tx)
	require.Equal(t, int32(628), ask(tds.TxSave, "here").number())
}

func TestTextSizeCutsWhatHasNoBound(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE TABLE dbo.long (b varbinary(max) NOT NULL, n nvarchar(max) NOT NULL, v varchar(max) NOT NULL, short varbinary(8000) NOT NULL)")
	c.exec("INSERT dbo.long VALUES (0x0102030405060708, N'abcdefgh', 'abcdefgh', 0x0102030405060708)")
	all := "SELECT b, n, v, short FROM dbo.long"
	whole := Row{[]byte{1, 2, 3, 4, 5, 6, 7, 8}, "abcdefgh", "abcdefgh", []byte{1, 2, 3, 4, 5, 6, 7, 8}}
	require.Equal(t, whole, c.query(all)[0])
	require.Equal(t, Row{[]byte{1, 2, 3, 4}, "ab", "abcd", whole[3]}, c.query("SET TEXTSIZE 4; " + all)[0])
	require.Equal(t, int64(8), c.scalar("SELECT DATALENGTH(b) FROM dbo.long"), "only of returned values")
	require.Equal(t, whole, c.query("SET TEXTSIZE -1; " + all)[0])
	c.fails(102, "SET TEXTSIZE -2")

	c.exec("DECLARE @n int = 1; WHILE @n < 11 BEGIN UPDATE dbo.long SET b = b + b; SET @n = @n + 1; END")
	size := func() int { return len(c.query("SELECT b FROM dbo.long")[0][0].([]byte)) }
	require.Equal(t, 8192, size())
	c.exec("SET TEXTSIZE 0")
	require.Equal(t, 4096, size(), "0 is the default")
	older, err := c.srv.Login(t.Context(), tds.Login{User: "sa"})
	require.NoError(t, err)
	c.Session = older.(*Session)
	require.Equal(t, 4096, size(), "of clients that do not report themselves as ODBC")
}

func TestFmtOnlyReturnsColumnsAndRunsNothing(t *testing.T) {
	c := withItems(t, 3).client()
	c.exec("CREATE PROCEDURE dbo.pair AS SELECT id FROM dbo.items; DELETE dbo.items")
	c.exec("SET FMTONLY ON")
	w := c.exec(`DECLARE @n int = 1;
		IF @n = 1 BEGIN SELECT id AS yes FROM dbo.items END ELSE SELECT note AS no FROM dbo.items;
		WHILE @n = 2 SELECT @n AS again;
		SELECT @n = id FROM dbo.items;
		DELETE dbo.items OUTPUT deleted.id AS gone;
		INSERT dbo.items OUTPUT inserted.note AS come VALUES (9, 9, 'x');
		UPDATE dbo.items SET note = 'y';
		CREATE TABLE dbo.made (id int NOT NULL);
		EXEC dbo.pair;
		SET FMTONLY OFF;
		SELECT COUNT(*) AS really FROM dbo.items WHERE note <> 'y'`)
	require.Equal(t, [][]string{{"yes"}, {"no"}, {"again"}, {"gone"}, {"come"}, {"id"}, {"really"}}, w.columns)
	require.Equal(t, []any{int64(3)}, w.values())
	require.Nil(t, c.scalar("SELECT OBJECT_ID('dbo.made')"))
	c.exec("SET FMTONLY ON")
	c.fails(208, "SELECT id FROM dbo.nowhere")
}

func TestUseSendsTheDatabaseToTheClient(t *testing.T) {
	c := newServer(t).client()
	w := c.exec("USE master; USE test")
	require.Equal(t, []string{"master to master", "master to test"}, w.databases)
	require.Equal(t, []string{"Changed database context to 'master'.", "Changed database context to 'test'."}, w.messages)
	c.fails(911, "USE elsewhere")
	w = c.run(t.Context(), &tds.Request{Kind: tds.Batch, Text: "SELECT 1", Reset: true})
	require.Equal(t, []string{"test to master"}, w.databases, "a reset returns to the database of the login")
}

func TestTheEndOfAStatementHasItsKind(t *testing.T) {
	c := withItems(t, 3).client()
	w := c.exec(`SELECT id FROM dbo.items; INSERT dbo.items OUTPUT inserted.id VALUES (9, 9, ''); UPDATE dbo.items SET note = '';
		DELETE dbo.items; CREATE TABLE dbo.made (id int NOT NULL); DROP TABLE dbo.made`)
	require.Equal(t, []tds.Command{tds.Select, tds.Insert, tds.Update, tds.Delete, tds.Define, tds.Define}, w.commands)
}

func TestASettingThatAFilteredIndexMissesIsNamed(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE TABLE dbo.held (id int NOT NULL PRIMARY KEY CLUSTERED, due int NULL); CREATE INDEX IX_held ON dbo.held (due) WHERE due IS NOT NULL")
	insert := "INSERT dbo.held (id) VALUES (1)"
	reported := func(text string) string {
		_, rest, _ := strings.Cut(c.fails(1934, text).Message, "incorrect settings: '")
		names, _, _ := strings.Cut(rest, "'")
		return names
	}
	for option, wrong := range map[string]string{
		"QUOTED_IDENTIFIER": "OFF", "ANSI_NULLS": "OFF", "ANSI_PADDING": "OFF", "ANSI_WARNINGS": "OFF", "CONCAT_NULL_YIELDS_NULL": "OFF", "NUMERIC_ROUNDABORT": "ON",
	} {
		want := option
		if option == "ANSI_WARNINGS" {
			want += ", ARITHABORT" // ANSI_WARNINGS implies it
		}
		c.exec("SET " + option + " " + wrong)
		require.Equal(t, want, reported(insert))
		require.Equal(t, want, reported("DELETE dbo.held"))
		c.exec("SET " + option + " " + map[string]string{"OFF": "ON", "ON": "OFF"}[wrong])
		c.exec("BEGIN TRAN; " + insert + "; ROLLBACK")
	}
	c.exec("SET ARITHABORT ON; SET ANSI_WARNINGS OFF")
	require.Equal(t, "ANSI_WARNINGS", reported(insert))
	c.exec("SET ANSI_DEFAULTS ON; SET IMPLICIT_TRANSACTIONS OFF; " + insert)

	older, err := c.srv.Login(t.Context(), tds.Login{User: "sa"})
	require.NoError(t, err)
	c.Session = older.(*Session)
	require.Equal(t, "ANSI_NULLS, QUOTED_IDENTIFIER, CONCAT_NULL_YIELDS_NULL, ANSI_WARNINGS, ANSI_PADDING, ARITHABORT", reported("DELETE dbo.held"))
	require.Equal(t, int32(1934), c.try("CREATE INDEX IX_more ON dbo.held (id) WHERE id > 0").number())
	c.exec("SET ANSI_NULLS, QUOTED_IDENTIFIER, CONCAT_NULL_YIELDS_NULL, ANSI_WARNINGS, ANSI_PADDING ON; DELETE dbo.held")
}

func TestAProcedureKeepsTheSettingsOfItsCreation(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE TABLE dbo.held (id int NOT NULL PRIMARY KEY CLUSTERED, due int NULL); CREATE INDEX IX_held ON dbo.held (due) WHERE due IS NOT NULL")
	c.exec("CREATE PROCEDURE dbo.take @id int AS INSERT dbo.held (id) VALUES (@id)")
	c.exec("SET QUOTED_IDENTIFIER OFF; SET ANSI_NULLS OFF")
	c.fails(1934, "INSERT dbo.held (id) VALUES (1)")
	c.exec("EXEC dbo.take 2")
	c.fails(1934, "INSERT dbo.held (id) VALUES (1)")
	c.exec("CREATE PROCEDURE dbo.late @id int AS SET QUOTED_IDENTIFIER ON; SET ANSI_NULLS ON; INSERT dbo.held (id) VALUES (@id)")
	c.exec("SET QUOTED_IDENTIFIER ON; SET ANSI_NULLS ON; INSERT dbo.held (id) VALUES (1)")
	require.Contains(t, c.fails(1934, "EXEC dbo.late 3").Message, "'ANSI_NULLS, QUOTED_IDENTIFIER'")
	// The other options are those of the calling session.
	c.exec("SET ANSI_PADDING OFF")
	c.fails(1934, "EXEC dbo.take 4")
	require.Equal(t, int64(2), c.scalar("SELECT COUNT(*) FROM dbo.held"))
}

func TestGoIsNoStatement(t *testing.T) {
	c := withItems(t, 1).client()
	for _, text := range []string{"DELETE dbo.items\nGO", "DELETE dbo.items;\ngo\nSELECT 1", "GO", "EXEC dbo.p\nGO\n"} {
		c.fails(102, text)
	}
	require.Equal(t, int64(1), c.scalar("SELECT COUNT(*) AS [go] FROM dbo.items -- GO\n WHERE note <> 'GO'"))
}

func TestParametersMayBeOfTheTypesBeforeMax(t *testing.T) {
	c := newServer(t).client()
	long := func(k sqltype.Kind) sqltype.Type { return sqltype.Type{Kind: k, Size: sqltype.Max} }
	w := c.call("SELECT @a, @b, @c", "@a text, @b ntext, @c image",
		p{"a", long(sqltype.VarChar), "å"}, p{"b", long(sqltype.NVarChar), "😀"}, p{"c", long(sqltype.VarBinary), []byte{1}})
	require.Empty(t, w.errors)
	require.Equal(t, Row{"å", "😀", []byte{1}}, w.sets[0][0])
	c.fails(2715, "CREATE TABLE dbo.old (note text NULL)")
}

func TestABareWordIsAStringToAProcedure(t *testing.T) {
	c := newServer(t).client()
	c.exec("CREATE PROCEDURE dbo.say @what nvarchar(20) AS SELECT @what")
	require.Equal(t, []any{"hello"}, c.exec("EXEC dbo.say hello").values())
}

func TestAnUnknownDatabaseIsRefusedTwice(t *testing.T) {
	_, err := newServer(t).Login(t.Context(), tds.Login{User: "sa", Database: "elsewhere"})
	var numbers []int32
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		numbers = append(numbers, e.(*sqltype.Error).Number)
	}
	require.Equal(t, []int32{4060, 18456}, numbers)
}
