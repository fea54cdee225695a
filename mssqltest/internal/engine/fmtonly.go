package engine

import "github.com/sqlc-dev/teesql/ast"

// runFmtOnly runs a statement under FMTONLY, and when it is prepared: it returns only the columns of the result.
// Nothing is read or changed, no condition is evaluated, both branches of an IF are walked, and settings are set.
func (s *Session) runFmtOnly(f *frame, n *node) error {
	switch st := n.st.(type) {
	case *ast.SelectStatement, *ast.InsertStatement, *ast.UpdateStatement, *ast.DeleteStatement:
		p, err := n.compilePlan(s.e.db)
		if err != nil {
			return err
		}
		uses, writes := p.plan.tables()
		if err := s.allowed(n, uses, writes); err != nil {
			return err
		}
		if cols := resultOf(p.plan); len(cols) > 0 {
			if err := s.columns(cols); err != nil {
				return err
			}
			s.done(n, 0, false)
		}
		return nil
	case *ast.ExecuteStatement:
		return s.execute(f, n, st)
	case *ast.BeginEndBlockStatement, *ast.IfStatement, *ast.WhileStatement:
		for _, list := range n.kids {
			if _, err := s.runList(f, list); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := s.setStatement(f, n)
	return err
}

// resultOf returns the columns that a statement returns to the client.
func resultOf(p plan) []outCol {
	switch p := p.(type) {
	case *selectPlan:
		if !p.assigns() {
			return p.query.cols
		}
	case *insertPlan:
		return p.output.cols
	case *changePlan:
		return p.output.cols
	}
	return nil
}
