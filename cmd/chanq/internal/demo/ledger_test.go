package demo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/tsqlcheck"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The statements are held to T-SQL's grammar and to the tables that they make.
func TestLedgerSpeaksTSQL(t *testing.T) {
	for _, schema := range []string{"", "it's [odd]"} {
		texts := newTexts(sqlserver.Dialect, schema)
		registry := sqlserver.Dialect.Migrations(sqlbatch.Names{Schema: schema, Queue: "files"})[0].Statements
		tables, err := tsqlcheck.Tables(append(registry, texts.create...))
		require.NoError(t, err)
		for name, text := range map[string]string{
			"state": texts.state, "foreign": texts.foreign, "begin": texts.begin, "forget": texts.forget, "reset": texts.reset,
			"number": texts.number, "listed": texts.listed, "insert": texts.insert(2), "record": texts.record,
			"sent": texts.sent, "done": texts.done, "all": texts.all,
		} {
			given := tsqlcheck.Given{Parameters: declare(text), Tables: tables}
			require.NoError(t, tsqlcheck.Check(text, given), "%s: %s", name, text)
		}
	}
}

// declare declares @p1 up to the highest in the text; the check says if one
// between is not used.
func declare(text string) string {
	var declared []string
	for n := 1; strings.Contains(text, fmt.Sprint("@p", n)); n++ {
		declared = append(declared, fmt.Sprintf("@p%d nvarchar(4000)", n))
	}
	return strings.Join(declared, ", ")
}

func TestInsertNumbersItsParametersInOrder(t *testing.T) {
	texts := newTexts(sqlite.Dialect, "")
	require.Equal(t, `INSERT INTO "main"."chanq_demo_files" (file_no, path, size, mtime, message_id, skipped) VALUES (?1, ?2, ?3, ?4, ?5, ?6), (?7, ?8, ?9, ?10, ?11, ?12);`, texts.insert(2))
}
