package sqlbatch_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chanq/chanq/internal/testdb/tsqlcheck"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/stretchr/testify/require"
)

func TestCheckNamesAdmitsPlainQueueNamesOnly(t *testing.T) {
	for _, queue := range []string{"a", "orders", "a1_b", "dead", "done", strings.Repeat("q", 63)} {
		require.NoError(t, sqlbatch.CheckNames(sqlbatch.Names{Queue: queue}), queue)
	}
	for _, queue := range []string{"", "1a", "_a", "Orders", "a-b", "a b", "a]", "a'", "é", "a\n", strings.Repeat("q", 64), "orders_dead", "orders_done", "queues"} {
		require.Error(t, sqlbatch.CheckNames(sqlbatch.Names{Queue: queue}), queue)
	}
}

func TestCheckNamesBoundsTheSchema(t *testing.T) {
	for _, schema := range []string{"", "dbo", "we]ird 'name'; --", strings.Repeat("s", 63)} {
		require.NoError(t, sqlbatch.CheckNames(sqlbatch.Names{Schema: schema, Queue: "a"}), schema)
	}
	for _, schema := range []string{"a\x00b", strings.Repeat("s", 64), "a\nGO\nb", "a\rb", "a\tb", "\x1b[2J", "a\x7f", "a\u0085b", "a\u2028b", "a\u2029b", "\xff"} {
		err := sqlbatch.CheckNames(sqlbatch.Names{Schema: schema, Queue: "a"})
		require.ErrorContains(t, err, "without control characters and line breaks", "%q", schema)
		require.NotContains(t, err.Error(), "\n")
	}
}

var oddSchemas = []string{"dbo", "]", "]]", "a]b", "[", "'", "a'b", `"`, "a b", "{live}", "{rows}", "~", "--", "a\nb", "a;b", "é", "]; DROP TABLE t; --"}

func TestSQLServerQuotesOddSchemas(t *testing.T) {
	for _, schema := range oddSchemas {
		requireSchemaQuoted(t, schema)
	}
}

func FuzzSQLServerQuoting(f *testing.F) {
	for _, schema := range oddSchemas {
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

// requireSchemaQuoted checks that a statement says the same with any schema, save
// for that one name.
func requireSchemaQuoted(t *testing.T, schema string) {
	t.Helper()
	n := sqlbatch.Names{Schema: schema, Queue: "orders"}
	plain := sqlServerCalls(sqlbatch.SQLServer.Queue(orders))
	for name, call := range sqlServerCalls(sqlbatch.SQLServer.Queue(n)) {
		if strings.HasSuffix(name, "-512") {
			continue
		}
		require.Equal(t, words(textOf(t, plain[name]).text, "dbo", "\x00"), words(textOf(t, call).text, schema, "\x00"), name)
	}
	want := sqlbatch.SQLServer.Migrations(orders)[0].Statements
	for i, text := range sqlbatch.SQLServer.Migrations(n)[0].Statements {
		require.Equal(t, words(want[i], "dbo", "\x00"), words(text, schema, "\x00"))
	}
}

// words is a text's tokens with the schema, quoted as SQL Server wants it,
// replaced.
func words(text, schema, by string) []string {
	bracket := "[" + strings.ReplaceAll(schema, "]", "]]") + "]"
	var out []string
	for start, end := range tsqlcheck.TokensOf(text) {
		token := text[start:end]
		switch {
		case token == bracket || token == "N'"+strings.ReplaceAll(schema, "'", "''")+"'":
			token = by
		case strings.HasPrefix(token, "N'"):
			token = strings.ReplaceAll(token, strings.ReplaceAll(bracket, "'", "''"), by)
		}
		out = append(out, token)
	}
	return out
}
