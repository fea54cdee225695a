// Package tsqlcheck checks the T-SQL that chanq sends, without a server: it checks the golden statements of sqlbatch.
//
// The parser that it uses accepts more than SQL Server does. Therefore a text counts as correct only if the parser's
// tree, written out again, is the text token by token: a token that the parser ignored is missing then, and a token
// that it misread differs. The writer supports the T-SQL that chanq uses and one spelling of it (AS before every alias,
// a semicolon after every statement, TOP in parentheses), and refuses everything else.
//
// The check proves that no word of a statement is lost or misspelt and that no two hints contradict each other. It does
// not look up names: the SQL Server emulator does that (engine.Compile in mssqltest), and it shows what a statement
// does. Neither proves that SQL Server accepts the text, which would need Microsoft's own parser.
package tsqlcheck

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sqlc-dev/teesql/parser"
)

// optimizeFor is the only form of this hint that is checked: with a token less, the parser does not return.
var optimizeFor = regexp.MustCompile(`OPTION \([A-Z ,]*OPTIMIZE FOR \(@[a-z]+ = [0-9]+\)\)`)

// Check returns what is wrong with a text, or nil.
func Check(text string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	source, err := tokens(text)
	if err != nil {
		return err
	}
	if n := strings.Count(text, "OPTIMIZE") + strings.Count(text, "FOR ("); n != 2*len(optimizeFor.FindAllString(text, -1)) {
		return errors.New("OPTIMIZE FOR")
	}
	script, err := parser.Parse(context.Background(), strings.NewReader(text))
	if err != nil {
		return err
	}
	if len(script.Batches) != 1 {
		return fmt.Errorf("%d batches, want one", len(script.Batches))
	}
	w := &writer{}
	for _, s := range script.Batches[0].Statements {
		w.statement(s)
	}
	understood, err := tokens(w.String())
	if err != nil {
		return fmt.Errorf("written out: %w", err)
	}
	for i := range max(len(source), len(understood)) {
		var a, b token
		if i < len(source) {
			a = source[i]
		}
		if i < len(understood) {
			b = understood[i]
		}
		if !strings.EqualFold(a.text, b.text) {
			return fmt.Errorf("line %d: has %q where the parser understood %q", a.line, a.text, b.text)
		}
	}
	return nil
}

// fail ends a check; Check turns it into an error.
func fail(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
