package engine

import (
	"fmt"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

func (s *Session) runIf(f *frame, n *node) (flow, error) {
	is, err := s.runPlan(f, n, runIt)
	if err != nil {
		return goOn, err
	}
	switch {
	case is == 1:
		return s.runList(f, n.kids[0])
	case len(n.kids) > 1:
		return s.runList(f, n.kids[1])
	}
	return goOn, nil
}

func (s *Session) runWhile(f *frame, n *node) (flow, error) {
	for {
		if err := s.ctx.Err(); err != nil {
			return goOn, err
		}
		is, err := s.runPlan(f, n, runIt)
		if err != nil || is == 0 {
			return goOn, err
		}
		fl, err := s.runList(f, n.kids[0])
		switch {
		case err != nil:
			return goOn, err
		case fl == breakLoop:
			return goOn, nil
		case fl == returned:
			return fl, nil
		}
	}
}

// runSimple runs a statement that contains no statements.
func (s *Session) runSimple(f *frame, n *node) error {
	switch st := n.st.(type) {
	case *ast.SelectStatement:
		return s.runSelect(f, n)
	case *ast.InsertStatement, *ast.UpdateStatement, *ast.DeleteStatement:
		count, err := s.runPlan(f, n, runIt)
		if err != nil {
			s.rowcount = 0
			return err
		}
		s.rowcount = count
		if s.set.noCount && !hasOutput(n.st) {
			return nil
		}
		s.done(n, count, true)
		return nil
	case *ast.DeclareTableVariableStatement:
		return nil
	case *ast.DeclareVariableStatement, *ast.SetVariableStatement:
		if d, ok := st.(*ast.DeclareVariableStatement); ok && !initialises(d) {
			return nil
		}
		_, err := s.runPlan(f, n, runIt)
		if _, set := st.(*ast.SetVariableStatement); set && err == nil {
			s.rowcount = 1
		}
		return err
	case *ast.PrintStatement:
		v, t, err := s.evaluate(f, n)
		if err != nil {
			return err
		}
		text := " "
		if v[0] != nil {
			if text, err = toText(v[0], t[0], 0); err != nil {
				return err
			}
		}
		s.sentResult(s.out.Message(&sqltype.Error{Number: 0, State: 1, Class: 0, Message: text, Line: n.line, Proc: f.proc}))
		return nil
	case *ast.ThrowStatement:
		return s.throw(f, n, st)
	case *ast.WaitForStatement:
		return s.waitFor(f, n, st)
	case *ast.BeginTransactionStatement:
		s.beginUnseen()
		s.begin(nameOfTransaction(f, st.Name))
		return nil
	case *ast.CommitTransactionStatement:
		return s.commit()
	case *ast.RollbackTransactionStatement:
		return s.rollback(nameOfTransaction(f, st.Name))
	case *ast.SaveTransactionStatement:
		return s.save(nameOfTransaction(f, st.Name))
	case *ast.UseStatement:
		return s.use(st.DatabaseName.Value)
	case *ast.DeclareCursorStatement, *ast.OpenCursorStatement, *ast.FetchCursorStatement, *ast.CloseCursorStatement, *ast.DeallocateCursorStatement:
		return s.cursorStatement(f, n)
	}
	if done, err := s.setStatement(f, n); done {
		return err
	}
	return s.define(f, n)
}

func initialises(d *ast.DeclareVariableStatement) bool {
	for _, e := range d.Declarations {
		if e.Value != nil {
			return true
		}
	}
	return false
}

// commandOf returns the command in the DONE of a statement.
func commandOf(st ast.Statement) tds.Command {
	switch st.(type) {
	case *ast.SelectStatement:
		return tds.Select
	case *ast.InsertStatement:
		return tds.Insert
	case *ast.UpdateStatement:
		return tds.Update
	case *ast.DeleteStatement:
		return tds.Delete
	}
	name := fmt.Sprintf("%T", st)
	for _, verb := range []string{"Create", "Alter", "Drop"} {
		if strings.HasPrefix(name, "*ast."+verb) {
			return tds.Define
		}
	}
	return 0
}

func hasOutput(st ast.Statement) bool {
	switch st := st.(type) {
	case *ast.InsertStatement:
		return st.InsertSpecification.OutputClause != nil
	case *ast.UpdateStatement:
		return st.UpdateSpecification.OutputClause != nil
	case *ast.DeleteStatement:
		return st.DeleteSpecification.OutputClause != nil
	}
	return false
}

func (s *Session) runSelect(f *frame, n *node) error {
	assigns := false
	count, err := s.runPlan(f, n, func(x *exec, p plan) (int64, error) {
		assigns = p.(*selectPlan).assigns()
		return p.run(x)
	})
	if err != nil {
		s.rowcount = 0
		return err
	}
	s.rowcount = count
	if !assigns {
		s.done(n, count, true)
	}
	return nil
}

func (s *Session) throw(f *frame, n *node, st *ast.ThrowStatement) error {
	if st.ErrorNumber == nil {
		return s.throwAgain()
	}
	v, t, err := s.evaluate(f, n)
	if err != nil {
		return err
	}
	number, _ := convert(v[0], t[0], typeInt, 0)
	state, _ := convert(v[2], t[2], typeInt, 0)
	text, err := toText(v[1], t[1], 0)
	if err != nil {
		return err
	}
	code, ok := number.(int64)
	if !ok || code < 50000 {
		return sqlError(35100, "Error number %d in the THROW statement is outside the valid range. Specify an error number in the valid range of 50000 to 2147483647.", code)
	}
	st8, _ := state.(int64)
	return &sqltype.Error{Number: int32(code), State: uint8(st8), Class: 16, Message: text, Line: n.line, Proc: f.proc}
}

// waitFor waits on the server's clock.
func (s *Session) waitFor(f *frame, n *node, st *ast.WaitForStatement) error {
	if !strings.EqualFold(st.WaitForOption, "Delay") {
		return errUnsupported("WAITFOR " + st.WaitForOption)
	}
	v, t, err := s.evaluate(f, n)
	if err != nil {
		return err
	}
	text, ok := v[0].(string)
	if !ok {
		return errClash(t[0], typeDateTime)
	}
	d, err := parseDelay(text)
	if err != nil {
		return err
	}
	s.e.setWaiting(s.id, true)
	defer s.e.setWaiting(s.id, false)
	s.sentResult(s.out.Flush())
	expired, stop := s.e.clock.After(d)
	defer stop()
	select {
	case <-expired:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (e *Engine) setWaiting(id int, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if on {
		e.waitfor[id] = true
	} else {
		delete(e.waitfor, id)
	}
}
