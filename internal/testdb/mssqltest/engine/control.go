package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
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

func (s *Session) runReturn(f *frame, n *node) (flow, error) {
	st := n.st.(*ast.ReturnStatement)
	if st.Expression == nil {
		return returned, nil
	}
	v, t, err := s.evaluate(f, n)
	if err != nil {
		return goOn, err
	}
	out, err := convert(v[0], t[0], typeInt, 0)
	if err != nil {
		return goOn, err
	}
	if code, ok := out.(int64); ok {
		f.returned = code
	}
	return returned, nil
}

// runSimple runs a statement that has no statements inside.
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
		s.done(count, true)
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
		s.begin()
		return nil
	case *ast.CommitTransactionStatement:
		return s.commit()
	case *ast.RollbackTransactionStatement:
		return s.rollback()
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
		s.done(count, true)
	}
	return nil
}

func (s *Session) throw(f *frame, n *node, st *ast.ThrowStatement) error {
	if st.ErrorNumber == nil {
		return errUnsupported("THROW without a number")
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

// setStatement runs SET of an option; done is false for other statements.
func (s *Session) setStatement(f *frame, n *node) (done bool, _ error) {
	switch st := n.st.(type) {
	case *ast.PredicateSetStatement:
		for _, name := range strings.Split(st.Options, ",") {
			if err := s.setOption(strings.TrimSpace(name), st.IsOn); err != nil {
				return true, err
			}
		}
		return true, nil
	case *ast.SetTransactionIsolationLevelStatement:
		level, ok := map[string]isolation{
			"ReadUncommitted": readUncommitted, "ReadCommitted": readCommitted, "RepeatableRead": repeatableRead,
			"Serializable": serializable, "Snapshot": snapshot,
		}[st.Level]
		if !ok {
			return true, errSyntaxNear(st.Level)
		}
		s.set.level = level
		return true, nil
	case *ast.SetRowCountStatement:
		v, _, err := s.evaluate(f, n)
		if err != nil {
			return true, err
		}
		limit, ok := v[0].(int64)
		if !ok || limit < 0 {
			return true, severity(15, 1015, "An integer of 0 or more is needed after SET ROWCOUNT.")
		}
		s.set.rowCount = limit
		return true, nil
	case *ast.SetCommandStatement:
		v, t, err := s.evaluate(f, n)
		if err != nil {
			return true, err
		}
		at := 0
		for _, c := range st.Commands {
			g, ok := c.(*ast.GeneralSetCommand)
			if !ok {
				return true, errUnsupported(fmt.Sprintf("%T", c))
			}
			if err := s.setCommand(g.CommandType, v[at], t[at]); err != nil {
				return true, err
			}
			at++
		}
		return true, nil
	}
	return false, nil
}

func (s *Session) setOption(name string, on bool) error {
	switch name {
	case "NoCount":
		s.set.noCount = on
	case "XactAbort":
		s.set.xactAbort = on
	case "QuotedIdentifier":
		s.set.quotedIdentifier = on
	case "AnsiDefaults":
		s.set.quotedIdentifier, s.set.ansi, s.set.implicit = on, on, on
	case "AnsiNulls", "AnsiPadding", "AnsiWarnings", "ConcatNullYieldsNull", "ArithAbort":
		s.set.ansi = on
	case "NumericRoundAbort", "AnsiNullDfltOn", "AnsiNullDfltOff", "ArithIgnore", "CursorCloseOnCommit", "ForcePlan", "IO", "Time":
	case "ImplicitTransactions":
		s.set.implicit = on
	default:
		return errUnsupported("SET " + name)
	}
	return nil
}

func (s *Session) setCommand(name string, v sqltype.Value, t sqltype.Type) error {
	switch name {
	case "LockTimeout":
		n, err := convert(v, t, typeInt, 0)
		if err != nil {
			return err
		}
		s.set.lockTimeout = -1
		if ms, _ := n.(int64); ms >= 0 {
			s.set.lockTimeout = time.Duration(ms) * time.Millisecond
		}
	case "DeadlockPriority":
		if word, ok := v.(string); ok {
			p, known := map[string]int{"LOW": -5, "NORMAL": 0, "HIGH": 5}[strings.ToUpper(word)]
			if !known {
				return errSyntaxNear(word)
			}
			s.set.deadlockPriority = p
		} else if n, ok := v.(int64); ok && n >= -10 && n <= 10 {
			s.set.deadlockPriority = int(n)
		} else {
			return errSyntaxNear("DEADLOCK_PRIORITY")
		}
		if s.tx != nil {
			s.tx.owner.SetDeadlockPriority(s.set.deadlockPriority)
		}
	case "Language", "DateFormat", "DateFirst", "ContextInfo", "QueryGovernorCostLimit":
	default:
		return errUnsupported("SET " + name)
	}
	return nil
}

// checkFilteredIndex is error 1934: changes of a table with a filtered index
// need the ANSI settings.
func (s *Session) checkFilteredIndex(t *table, verb string) error {
	if s.set.quotedIdentifier && s.set.ansi {
		return nil
	}
	for _, ix := range t.indexes {
		if ix.filter != nil {
			return errWrongSet(verb)
		}
	}
	return nil
}
