package engine

import (
	"runtime"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// checkHints refuses a table's hints if the parser has dropped an unknown one: each word of WITH (…) must be a hint of
// the tree.
func (b *batch) checkHints(r *ast.NamedTableReference) error {
	if len(r.TableHints) == 0 {
		return nil
	}
	words := hintWords(b.span(r.Frag()))
	if len(words) <= len(r.TableHints) {
		return nil
	}
	for _, w := range words {
		if err := new(tableHints).add(w); err != nil && !strings.EqualFold(w, "INDEX") {
			return err
		}
	}
	return errSyntaxNear(words[len(words)-1])
}

// span returns the text of a part of the tree. Offsets count characters.
func (b *batch) span(f *ast.Fragment) string {
	text := []rune(b.text)
	from, to := f.StartOffset, f.EndOffset()
	if from < 0 || from > to || to > len(text) {
		return ""
	}
	return string(text[from:to])
}

// hintWords returns the words between the parentheses of WITH, without those within inner parentheses.
func hintWords(text string) []string {
	at := strings.LastIndex(strings.ToUpper(text), "WITH")
	if at < 0 {
		return nil
	}
	depth := 0
	var words []string
	word := ""
	for _, r := range text[at+len("WITH"):] {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if depth == 1 && letter {
			word += string(r)
			continue
		}
		if word != "" {
			words = append(words, word)
			word = ""
		}
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return words
}

// whole runs f, which reads a tree. The parser leaves holes in the trees of some texts that it should refuse. A hole
// makes f panic, which is reported as the syntax error that the parser did not report.
func whole(near string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, hole := r.(runtime.Error); !hole {
				panic(r)
			}
			err = errSyntaxNear(near)
		}
	}()
	return f()
}

// opening returns the beginning of a text, for messages.
func opening(text string) string {
	return cutText(strings.Join(strings.Fields(text), " "), sqltype.NVarChar, 30)
}
