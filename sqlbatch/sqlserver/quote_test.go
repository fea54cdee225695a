package sqlserver_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/tsqlcheck"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestQuotesOddSchemas(t *testing.T) {
	for _, schema := range suite.OddSchemas {
		requireSchemaQuoted(t, schema)
	}
}

func FuzzQuoting(f *testing.F) {
	for _, schema := range suite.OddSchemas {
		f.Add(schema)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		n := sqlbatch.Names{Schema: schema, Queue: "orders"}
		if schema == "" || !utf8.ValidString(schema) || sqlbatch.CheckNames(n) != nil {
			t.Skip()
		}
		requireSchemaQuoted(t, schema)
	})
}

// requireSchemaQuoted checks that a statement is the same with any schema, except for that name.
func requireSchemaQuoted(t *testing.T, schema string) {
	t.Helper()
	n := sqlbatch.Names{Schema: schema, Queue: "orders"}
	plain, odd := sqlserver.Dialect.Queue(suite.Orders), sqlserver.Dialect.Queue(n)
	calls := suite.Calls(plain, "a")
	for name, call := range suite.Calls(odd, "a") {
		require.Equal(t, words(textOf(t, calls[name]).text, schema), words(textOf(t, call).text, "dbo"), name)
	}
	for i, st := range odd.Drop() {
		require.Equal(t, words(textOf(t, plain.Drop()[i]).text, schema), words(textOf(t, st).text, "dbo"), "drop")
	}
	want := sqlserver.Dialect.Migrations(suite.Orders)[0].Statements
	for i, text := range sqlserver.Dialect.Migrations(n)[0].Statements {
		require.Equal(t, words(want[i], schema), words(text, "dbo"))
	}
}

// words returns a text's tokens, with schema in the place of dbo, quoted as SQL Server requires. If schema is dbo, they
// are unchanged.
func words(text, schema string) []string {
	bracket := "[" + strings.ReplaceAll(schema, "]", "]]") + "]"
	var out []string
	for start, end := range tsqlcheck.TokensOf(text) {
		token := text[start:end]
		switch {
		case token == "[dbo]":
			token = bracket
		case token == "N'dbo'":
			token = "N'" + strings.ReplaceAll(schema, "'", "''") + "'"
		case strings.HasPrefix(token, "N'"):
			token = strings.ReplaceAll(token, "[dbo]", strings.ReplaceAll(bracket, "'", "''"))
		}
		out = append(out, token)
	}
	return out
}
