package tsqlcheck

import (
	"slices"

	"github.com/sqlc-dev/teesql/ast"
)

func hintsOf(t *ast.NamedTableReference) []string {
	var names []string
	for _, h := range t.TableHints {
		switch h := h.(type) {
		case *ast.TableHint:
			names = append(names, spell(hintNames, h.HintKind))
		case *ast.ForceSeekTableHint:
			names = append(names, "FORCESEEK")
		case *ast.IndexTableHint:
			names = append(names, "INDEX")
		}
	}
	return names
}

// tableHints checks which hints of a table in FROM are compatible.
func tableHints(t *ast.NamedTableReference) {
	hints := hintsOf(t)
	has := func(name string) bool { return slices.Contains(hints, name) }
	sorted := slices.Sorted(slices.Values(hints))
	if len(slices.Compact(sorted)) != len(hints) {
		fail("a hint twice: %v", hints)
	}
	for _, group := range [][]string{
		{"READUNCOMMITTED", "READCOMMITTEDLOCK", "ROWLOCK", "TABLOCK", "TABLOCKX"},
		{"READUNCOMMITTED", "HOLDLOCK", "SERIALIZABLE"},
		{"UPDLOCK", "XLOCK"},
	} {
		var of []string
		for _, h := range group {
			if has(h) {
				of = append(of, h)
			}
		}
		if len(of) > 1 {
			fail("%v: the documentation allows one of them", of)
		}
	}
	if has("READPAST") && has("SERIALIZABLE") {
		fail("READPAST with SERIALIZABLE: error 650")
	}
	locks := has("UPDLOCK") || has("XLOCK")
	if has("READPAST") && !locks && !has("READCOMMITTEDLOCK") {
		fail("READPAST alone does nothing where READ_COMMITTED_SNAPSHOT is on")
	}
	if locks && has("READCOMMITTEDLOCK") {
		fail("READCOMMITTEDLOCK is ignored with UPDLOCK and XLOCK")
	}
}

// targetHints checks the hints written at the target of a statement.
func targetHints(t *ast.NamedTableReference) {
	for _, h := range hintsOf(t) {
		switch h {
		case "INDEX", "FORCESEEK":
			fail("%s at a target: error 1069, the hint belongs into FROM", h)
		case "READCOMMITTEDLOCK":
			fail("READCOMMITTEDLOCK at a target: error 4140")
		}
	}
}
