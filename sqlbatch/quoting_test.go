package sqlbatch_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/stretchr/testify/require"
)

// FuzzQuoting builds the statements of PostgreSQL and SQLite with a schema's name and reads them
// with its own lexer: the name must be one identifier, and the rest of the text must not have
// changed. FuzzQuoting of the package sqlserver does this for SQL Server.
func FuzzQuoting(f *testing.F) {
	for _, schema := range append(suite.OddSchemas, `a"b`, "C", `""`, "$$", "$chanq$", "$chanq_$", "/*", "?1", "\\", "'; --", "main") {
		f.Add(schema)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		n := sqlbatch.Names{Schema: schema, Queue: "orders"}
		if schema == "" || !utf8.ValidString(schema) || sqlbatch.CheckNames(n) != nil {
			t.Skip()
		}
		for dialect, standard := range map[sqlbatch.Dialect]string{postgres.Dialect: "public", sqlite.Dialect: "main"} {
			for _, slots := range []int{0, 4} {
				n.Slots = slots
				plain, odd := standardTexts(dialect, sqlbatch.Names{Queue: "orders", Slots: slots}), standardTexts(dialect, n)
				require.Len(t, odd, len(plain))
				for i := range plain {
					if strings.Contains(plain[i], "'"+schema+"'") {
						continue // a string of the statement itself, which cannot be distinguished from an equal name
					}
					require.Equal(t, standardTokens(plain[i], standard), standardTokens(odd[i], schema), odd[i])
				}
			}
		}
	})
}

// standardTexts returns every text of a dialect that quotes as the standard does, in a fixed order.
func standardTexts(d sqlbatch.Dialect, n sqlbatch.Names) []string {
	var texts []string
	for _, m := range d.Migrations(n) {
		for _, f := range m.Formers {
			texts = slices.Concat(texts, []string{f.Ask}, f.Add)
		}
		texts = append(texts, m.Statements...)
	}
	q := d.Queue(n)
	calls := suite.Calls(q, "a")
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		for _, prior := range calls[name].Prior {
			texts = append(texts, prior.Text)
		}
		texts = append(texts, calls[name].Text)
	}
	for _, st := range q.Drop() {
		texts = append(texts, st.Text)
	}
	return texts
}

// standardTokens splits a text into quoted identifiers, strings, dollar-quoted strings and the text
// between them. Names are shown unquoted; the name of the schema, before a dot, is shown as
// <schema>, also inside strings.
func standardTokens(text, schema string) []string {
	var tokens []string
	for text != "" {
		switch c := text[0]; {
		case c == '"' || c == '\'':
			value, rest := quoted(text)
			if c == '"' && value == schema && strings.HasPrefix(rest, ".") {
				value = "<schema>"
			} else if c == '\'' && value == schema && isValue(tokens) {
				value = "<schema>"
			} else if c == '\'' {
				value = strings.Join(inner(value, schema), "")
			}
			tokens, text = append(tokens, string(c)+value), rest
		case c == '$' && dollarTag(text) != "":
			tag := dollarTag(text)
			body, rest, found := strings.Cut(text[len(tag):], tag)
			if !found {
				return append(tokens, "unterminated", text)
			}
			tokens, text = append(append(tokens, "$$"), standardTokens(body, schema)...), rest
			tokens = append(tokens, "$$")
		default:
			n := 1 + max(0, strings.IndexAny(text[1:]+"'", `"'$`))
			tokens, text = append(tokens, text[:n]), text[n:]
		}
	}
	return tokens
}

// isValue reports whether the next token is an argument or is compared: there the name of a schema
// can be a string.
func isValue(before []string) bool {
	last := ""
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	return strings.HasSuffix(last, ", ") || strings.HasSuffix(last, "= ") || strings.HasSuffix(last, "(")
}

// inner returns the tokens of a string that holds a name, as for regclass.
func inner(value, schema string) []string {
	if strings.HasPrefix(value, `"`) {
		return standardTokens(value, schema)
	}
	return []string{value}
}

// quoted reads a quoted token, in which the quote is doubled.
func quoted(text string) (value, rest string) {
	quote := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] == quote {
			if i+1 == len(text) || text[i+1] != quote {
				return b.String(), text[i+1:]
			}
			i++
		}
		b.WriteByte(text[i])
	}
	return "unterminated " + b.String(), ""
}

// dollarTag returns the $tag$ at the beginning of text, or "" if there is none, as in $1.
func dollarTag(text string) string {
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '$':
			return text[:i+1]
		case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 1 && c >= '0' && c <= '9':
		default:
			return ""
		}
	}
	return ""
}
