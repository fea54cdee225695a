package engine

import (
	"fmt"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func lower(s string) string { return strings.ToLower(s) }

// flow is how a statement ended.
type flow uint8

const (
	goOn flow = iota
	breakLoop
	continueLoop
	returned
)

// plan is a compiled statement that reads or changes tables.
type plan interface {
	// tables returns the tables that the plan reads, and those that it only writes.
	tables() ([]*baseUse, []*table)
	run(x *exec) (int64, error)
}

// runFrame runs a batch or the body of a procedure.
func (s *Session) runFrame(f *frame) (flow, error) {
	was := s.frame
	s.frame = f
	defer func() { s.frame = was }()
	for i, v := range f.batch.tables {
		if f.tables[i] == nil {
			t, err := s.e.db.shape(v)
			if err != nil {
				return goOn, err
			}
			f.tables[i] = t.instance()
		}
	}
	return s.runList(f, f.batch.body)
}

func (s *Session) runList(f *frame, list []*node) (flow, error) {
	for _, n := range list {
		fl, err := s.runNode(f, n)
		if err != nil {
			stop, err := s.failed(f, n, err)
			if err != nil {
				return goOn, err
			}
			if stop {
				return returned, nil
			}
			continue
		}
		if fl != goOn {
			return fl, nil
		}
	}
	return goOn, nil
}

// failed reports an error and decides what it ends: nothing, the procedure, the batch, or also the transaction.
func (s *Session) failed(f *frame, n *node, err error) (stop bool, _ error) {
	if s.ctx.Err() != nil {
		// The client sent an attention: with XACT_ABORT ON the transaction is also rolled back.
		if s.set.xactAbort {
			s.rollbackAll()
		}
		return true, err
	}
	e, ok := err.(*sqltype.Error)
	if !ok {
		return true, err
	}
	if e.Line == 0 {
		e.Line, e.Proc = n.line, f.proc
	}
	if s.catches(e) {
		return true, caught{e}
	}
	s.report(e)
	s.done(n, 0, false)
	_, thrown := n.st.(*ast.ThrowStatement)
	switch {
	case s.set.xactAbort || rollsBack(e):
		s.rollbackAll()
		s.deallocateDeclared()
		return true, errAbort
	case endsBatch(e) || thrown:
		return true, errAbort
	}
	return endsScope(e), nil
}

func (s *Session) runNode(f *frame, n *node) (flow, error) {
	if err := s.ctx.Err(); err != nil {
		return goOn, err
	}
	if s.set.fmtOnly {
		return goOn, s.runFmtOnly(f, n)
	}
	switch st := n.st.(type) {
	case *ast.BeginEndBlockStatement:
		return s.runList(f, n.kids[0])
	case *ast.IfStatement:
		return s.runIf(f, n)
	case *ast.WhileStatement:
		return s.runWhile(f, n)
	case *ast.TryCatchStatement:
		return s.runTry(f, n)
	case *ast.BreakStatement:
		return breakLoop, nil
	case *ast.ContinueStatement:
		return continueLoop, nil
	case *ast.ExecuteStatement:
		return goOn, s.execute(f, n, st)
	}
	return goOn, s.runSimple(f, n)
}

// compilePlan returns the node's plan for the current catalog.
func (n *node) compilePlan(db *database) (*compiled, error) {
	version := db.version.Load()
	if p := n.plan.Load(); p != nil && p.version == version {
		return p, nil
	}
	c := &compiler{db: db, batch: n.batch, source: n.batch.text}
	var p plan
	err := whole(opening(n.text()), func() (err error) {
		p, err = c.statement(n.st)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, a := range c.paths {
		a.lookup = a.index.at > 0 && !a.index.covers(a.use)
	}
	out := &compiled{version: version, plan: p, c: c}
	n.plan.Store(out)
	return out, nil
}

// text returns the statement as it was written.
func (n *node) text() string {
	if f, ok := n.st.(interface{ Frag() *ast.Fragment }); ok {
		return n.batch.span(f.Frag())
	}
	return n.batch.text
}

func (c *compiler) statement(st ast.Statement) (plan, error) {
	switch st := st.(type) {
	case *ast.SelectStatement:
		return c.selectStatement(st)
	case *ast.InsertStatement:
		return c.insert(st)
	case *ast.UpdateStatement:
		return c.update(st)
	case *ast.DeleteStatement:
		return c.delete(st)
	case *ast.IfStatement:
		return c.predicate(st.Predicate)
	case *ast.WhileStatement:
		return c.predicate(st.Predicate)
	case *ast.SetVariableStatement:
		a, err := c.assignment(st.Variable, st.Expression, st.AssignmentKind)
		return &setPlan{c, []assignment{a}}, err
	case *ast.DeclareVariableStatement:
		p := &setPlan{c: c}
		for _, d := range st.Declarations {
			if d.Value == nil {
				continue
			}
			a, err := c.assignment(&ast.VariableReference{Name: d.VariableName.Value}, d.Value, "Equals")
			if err != nil {
				return nil, err
			}
			p.list = append(p.list, a)
		}
		return p, nil
	case *ast.DeclareCursorStatement:
		return c.selectStatement(st.CursorDefinition.Select)
	}
	if list := expressionsOf(st); list != nil {
		p := &exprPlan{c: c}
		for _, e := range list {
			if e == nil {
				p.list = append(p.list, nil)
				continue
			}
			sc, err := c.scalar(e)
			if err != nil {
				return nil, err
			}
			p.list = append(p.list, sc)
		}
		return p, nil
	}
	return nil, errUnsupported(strings.TrimPrefix(fmt.Sprintf("%T", st), "*ast."))
}

// expressionsOf returns the expressions of a statement that only evaluates some.
func expressionsOf(st ast.Statement) []ast.ScalarExpression {
	switch st := st.(type) {
	case *ast.PrintStatement:
		return []ast.ScalarExpression{st.Expression}
	case *ast.WaitForStatement:
		return []ast.ScalarExpression{st.Parameter}
	case *ast.ThrowStatement:
		return []ast.ScalarExpression{st.ErrorNumber, st.Message, st.State}
	case *ast.ExecuteStatement:
		if e, ok := st.ExecuteSpecification.ExecutableEntity.(*ast.ExecutableProcedureReference); ok {
			list := []ast.ScalarExpression{}
			for _, p := range e.Parameters {
				if word, ok := p.ParameterValue.(*ast.IdentifierLiteral); ok {
					list = append(list, &ast.StringLiteral{Value: word.Value, IsNational: true})
				} else {
					list = append(list, p.ParameterValue)
				}
			}
			return list
		}
	case *ast.SetRowCountStatement:
		return []ast.ScalarExpression{st.NumberRows}
	case *ast.SetTextSizeStatement:
		return []ast.ScalarExpression{st.TextSize}
	case *ast.SetCommandStatement:
		var list []ast.ScalarExpression
		for _, c := range st.Commands {
			if g, ok := c.(*ast.GeneralSetCommand); ok {
				if id, ok := g.Parameter.(*ast.IdentifierLiteral); ok {
					list = append(list, &ast.StringLiteral{Value: id.Value})
				} else {
					list = append(list, g.Parameter)
				}
			}
		}
		return list
	}
	return nil
}

// runPlan runs a statement in the open transaction or in a separate one. A statement that fails leaves only locks.
func (s *Session) runPlan(f *frame, n *node, then func(x *exec, p plan) (int64, error)) (int64, error) {
	own := false
	var tx *txn
	mark := 0
	finish := func(err error) error {
		if tx == nil || s.tx != tx { // otherwise a trigger has ended it
			return err
		}
		if err != nil {
			tx.rollbackTo(mark)
		}
		if !own {
			return err
		}
		s.tx = nil
		if err != nil {
			tx.rollback(s.e.db)
			return err
		}
		tx.commit(s.e.db)
		return nil
	}
	for {
		p, err := n.compilePlan(s.e.db)
		if err != nil {
			return 0, finish(err)
		}
		uses, writes := p.plan.tables()
		if err := s.allowed(n, uses, writes); err != nil {
			return 0, finish(err)
		}
		if len(uses)+len(writes) > 0 {
			s.beginUnseen()
		}
		if tx == nil && (s.tx != nil || len(uses)+len(writes) > 0) {
			if own = s.tx == nil; own {
				s.tx = s.newTxn()
			}
			tx = s.tx
			mark = tx.mark()
		}
		x := &exec{
			s: s, f: f, ctx: s.ctx, tx: tx, now: s.e.clock.Now(),
			slots: make([]slot, p.c.slots), spools: make([]*spool, p.c.spools),
		}
		if err := x.open(uses); err != nil {
			x.close()
			return 0, finish(err)
		}
		if s.e.db.version.Load() != p.version {
			// The catalog changed while this statement waited for its table locks.
			x.close()
			continue
		}
		count, err := s.hooked(f, n, p, x, then)
		if x.local != nil {
			if err != nil {
				x.local.rollback(s.e.db)
			} else {
				x.local.commit(s.e.db)
			}
		}
		x.close()
		n.batch.stats.add(x.cost)
		return count, finish(err)
	}
}

func (s *Session) hooked(f *frame, n *node, p *compiled, x *exec, then func(x *exec, p plan) (int64, error)) (int64, error) {
	s.now = Statement{Session: s.id, Text: n.batch.text, Line: int(n.line), Kind: strings.TrimPrefix(fmt.Sprintf("%T", n.st), "*ast.")}
	if n.batch.stats != nil {
		s.now.Declaration = n.batch.stats.all.Declaration
	}
	h := s.e.hooksNow()
	if h.Before != nil {
		if err := h.Before(s.ctx, s.now); err != nil {
			return 0, err
		}
	}
	count, err := then(x, p.plan)
	if err == nil && h.Applied != nil {
		err = h.Applied(s.ctx, s.now)
	}
	return count, err
}

// predicatePlan is the condition of IF and WHILE.
type predicatePlan struct {
	c *compiler
	k *cond
}

func (c *compiler) predicate(e ast.BooleanExpression) (plan, error) {
	k, err := c.cond(e)
	return &predicatePlan{c, k}, err
}

func (p *predicatePlan) tables() ([]*baseUse, []*table) { return p.c.uses, nil }

func (p *predicatePlan) run(x *exec) (int64, error) {
	v, err := p.k.eval(x)
	if v == isTrue {
		return 1, err
	}
	return 0, err
}

// setPlan assigns variables.
type setPlan struct {
	c    *compiler
	list []assignment
}

func (p *setPlan) tables() ([]*baseUse, []*table) { return p.c.uses, nil }

func (p *setPlan) run(x *exec) (int64, error) {
	for _, a := range p.list {
		v, err := a.val.eval(x)
		if err != nil {
			return 0, err
		}
		x.f.vars[a.at] = v
	}
	return 0, nil
}

// exprPlan evaluates expressions for a statement.
type exprPlan struct {
	c    *compiler
	list []*scalar
}

func (p *exprPlan) tables() ([]*baseUse, []*table) { return p.c.uses, nil }

func (p *exprPlan) run(*exec) (int64, error) { return 0, nil }

func runIt(x *exec, p plan) (int64, error) { return p.run(x) }

// evaluate runs the expressions of a simple statement.
func (s *Session) evaluate(f *frame, n *node) (vals []sqltype.Value, types []sqltype.Type, err error) {
	_, err = s.runPlan(f, n, func(x *exec, p plan) (int64, error) {
		for _, sc := range p.(*exprPlan).list {
			if sc == nil {
				vals, types = append(vals, nil), append(types, sqltype.Type{})
				continue
			}
			v, err := sc.eval(x)
			if err != nil {
				return 0, err
			}
			vals, types = append(vals, v), append(types, sc.typ)
		}
		return 0, nil
	})
	return vals, types, err
}
