package engine

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/sqlc-dev/teesql/parser"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// unsupportedNumber is the number of the error with which Azure SQL refuses features that it does not support.
const unsupportedNumber = 40517

// errUnsupported refuses a construct that the server supports and this engine does not. The message gets the line where
// the error is reported, see located.
func errUnsupported(what string) error {
	return sqlError(unsupportedNumber, "not supported by mssqltest: %s", what)
}

// errUnsupportedAt is errUnsupported for a part of a tree.
func errUnsupportedAt(part any) error {
	return locatedAt(errUnsupported(construct(part)), part)
}

// locatedAt adds the line of a part of a tree to an error about a construct that has none.
func locatedAt(err error, part any) error {
	e, ok := err.(*sqltype.Error)
	if !ok || e.Number != unsupportedNumber {
		return err
	}
	if f, ok := part.(interface{ Frag() *ast.Fragment }); ok && f.Frag().StartLine > 0 {
		return located(e, int32(f.Frag().StartLine))
	}
	return err
}

// construct names the kind of a part of a tree: "merge" for a MergeStatement.
func construct(part any) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", part), "*ast.")
	for _, suffix := range []string{"Statement", "Reference", "Expression", "Definition"} {
		name = strings.TrimSuffix(name, suffix)
	}
	var words strings.Builder
	for i, r := range name {
		if i > 0 && 'A' <= r && r <= 'Z' {
			words.WriteByte(' ')
		}
		words.WriteRune(r)
	}
	return strings.ToLower(words.String())
}

// located adds the line to an error that has none. A message about a construct also ends with it, since most clients do
// not print the line of an error.
func located(err error, line int32) error {
	e, ok := err.(*sqltype.Error)
	if !ok || e.Line != 0 {
		return err
	}
	line = max(line, 1)
	e.Line = line
	if e.Number == unsupportedNumber {
		e.Message += fmt.Sprintf(", line %d", line)
	}
	return e
}

// checkWords refuses a text with a word that is in no part of its tree and not among the words of supported statements:
// the parser has passed over a construct.
func checkWords(text string, script *ast.Script) error {
	known := map[string]bool{}
	words(reflect.ValueOf(script), known)
	lexer := parser.NewLexer(text)
	for t := lexer.NextToken(); t.Type != parser.TokenEOF; t = lexer.NextToken() {
		if !isWord(t.Literal) {
			continue
		}
		if word := strings.ToLower(t.Literal); !known[word] && !grammar[word] {
			return located(errUnsupported(t.Literal), int32(1+strings.Count(text[:t.Pos], "\n")))
		}
	}
	return nil
}

func isWord(token string) bool {
	if token == "" || strings.Contains(token, "'") {
		return false
	}
	first := token[0] | 0x20
	return 'a' <= first && first <= 'z'
}

// words adds all strings of a tree: its names, and the words of options that keep their spelling.
func words(v reflect.Value, known map[string]bool) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			words(v.Elem(), known)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[ast.LeftFunctionCall]() {
			known["left"] = true
		}
		for i := range v.NumField() {
			words(v.Field(i), known)
		}
	case reflect.Slice:
		for i := range v.Len() {
			words(v.Index(i), known)
		}
	case reflect.String:
		known[strings.ToLower(strings.Trim(v.String(), `[]"`))] = true
	}
}

// grammar are the words of the statements that this engine runs, except those that a tree keeps as they are.
var grammar = wordSet(`
add after all allow_page_locks allow_row_locks allow_snapshot_isolation alter and ansi_defaults
ansi_null_dflt_off ansi_null_dflt_on ansi_nulls ansi_padding ansi_warnings apply arithabort arithignore as asc
authorization auto_close coalesce begin between break by cache case cast catch check close clustered collate commit
committed compatibility_level concat_null_yields_null constraint context_info continue convert create cross
current cursor cursor_close_on_commit database datefirst dateformat deadlock_priority deallocate declare
default delay delayed_durability delete desc drop else end exec execute exists fast_forward fetch fmtonly for
force forceplan forceseek forward_only from global grant holdlock identity iif if ignore_dup_key
implicit_transactions in increment index inner insensitive insert into is isolation join keepfixed key
language level like lock_escalation lock_timeout login loop maxvalue member minvalue next no nocount nolock
nonclustered not nowait null nullif numeric_roundabort off on open optimize option or order output pad_index password
plan primary print proc procedure query_governor_cost_limit quoted_identifier raiserror read
read_committed_snapshot read_only readcommitted readcommittedlock readpast readuncommitted repeatable
repeatableread return role rollback rowcount rowlock save schema select sequence serializable set snapshot
start static statistics_norecompute table tablock tablockx textsize then throw to top tran transaction trigger
try uncommitted union unique update updlock use user value values view waitfor when where while with without
work xact_abort xlock
`)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}
