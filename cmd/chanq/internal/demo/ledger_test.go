package demo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb/tsqlcheck"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The statements are checked against T-SQL's grammar, and by the SQL Server emulator against
// the tables that they create.
func TestStatementsOfTheLedgerAreValidTSQL(t *testing.T) {
	for _, schema := range []string{"", "it's [odd]"} {
		texts := newTexts(sqlserver.Dialect, schema)
		srv := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped(), InMemory: true})
		create := texts.create
		if schema != "" {
			create = append([]string{"CREATE SCHEMA [" + strings.ReplaceAll(schema, "]", "]]") + "]"}, create...)
		}
		for _, text := range append(create, sqlserver.Dialect.Migrations(sqlbatch.Names{Schema: schema, Queue: "files"})[0].Statements...) {
			_, err := srv.DB().Exec(text)
			require.NoError(t, err, text)
		}
		for _, text := range texts.create {
			require.NoError(t, tsqlcheck.Check(text), text)
		}
		for name, text := range map[string]string{
			"state": texts.state, "foreign": texts.foreign, "begin": texts.begin, "forget": texts.forget, "reset": texts.reset,
			"number": texts.number, "listed": texts.listed, "insert": texts.insert(2), "record": texts.record,
			"sent": texts.sent, "done": texts.done, "all": texts.all,
		} {
			require.NoError(t, tsqlcheck.Check(text), "%s: %s", name, text)
			types := map[string][]string{
				"insert": {"int", "nvarchar(4000)", "bigint", "bigint", "binary(16)", "nvarchar(400)"},
				"record": {"varbinary(32)", "nvarchar(400)", "int", "binary(16)"},
			}[name]
			require.NoError(t, srv.Compile(text, declare(text, types)), "%s: %s", name, text)
		}
	}
}

// declare declares the parameters of the text from @p1 on, of the given types in turn or all of
// nvarchar(4000). It stops at the first missing number.
func declare(text string, types []string) string {
	if len(types) == 0 {
		types = []string{"nvarchar(4000)"}
	}
	var declared []string
	for n := 1; strings.Contains(text, fmt.Sprint("@p", n)); n++ {
		declared = append(declared, fmt.Sprintf("@p%d %s", n, types[(n-1)%len(types)]))
	}
	return strings.Join(declared, ", ")
}

func TestInsertNumbersItsParametersInOrder(t *testing.T) {
	texts := newTexts(sqlite.Dialect, "")
	require.Equal(t, `INSERT INTO "main"."chanq_demo_files" (file_no, path, size, mtime, message_id, skipped) VALUES (?1, ?2, ?3, ?4, ?5, ?6), (?7, ?8, ?9, ?10, ?11, ?12);`, texts.insert(2))
}
