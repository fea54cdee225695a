package engine

import "github.com/sqlc-dev/teesql/ast"

// Compile compiles a text against the current catalog and runs nothing of it. Unlike a run, it reaches both branches of
// each IF, the bodies of loops, and CATCH. declaration declares the parameters, as for sp_executesql. Compile returns
// the first error that SQL Server would return for a name, a type, or a list of the wrong length. Statements that
// define objects, and names inside strings, are not checked.
func (e *Engine) Compile(text, declaration string) error {
	b, err := e.batch(text, declaration)
	if err != nil {
		return err
	}
	for _, v := range b.tables {
		if _, err := e.db.shape(v); err != nil {
			return err
		}
	}
	return e.compileList(b.body)
}

func (e *Engine) compileList(list []*node) error {
	for _, n := range list {
		if hasPlan(n.st) {
			if _, err := n.compilePlan(e.db); err != nil {
				return err
			}
		}
		for _, kids := range n.kids {
			if err := e.compileList(kids); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasPlan reports whether a statement is compiled before it runs.
func hasPlan(st ast.Statement) bool {
	switch st.(type) {
	case *ast.SelectStatement, *ast.InsertStatement, *ast.UpdateStatement, *ast.DeleteStatement,
		*ast.IfStatement, *ast.WhileStatement, *ast.SetVariableStatement, *ast.DeclareVariableStatement:
		return true
	}
	return expressionsOf(st) != nil
}
