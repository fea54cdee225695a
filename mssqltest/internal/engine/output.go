package engine

import (
	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// outputPlan is what a change returns, and what it stores in another table: OUTPUT and OUTPUT INTO.
type outputPlan struct {
	cols []outCol // to the client
	into *destination
	vals []outCol // to the other table
}

// output compiles the clauses. src has the target's columns; inserted and deleted are the slots of the row after and
// before, or -1.
func (c *compiler) output(out *ast.OutputClause, into *ast.OutputIntoClause, src *source, inserted, deleted int, action string) (*outputPlan, error) {
	p := &outputPlan{}
	if out == nil && into == nil {
		return p, nil
	}
	was := c.scope
	c.scope = &scope{parent: was}
	defer func() { c.scope = was }()
	for name, slot := range map[string]int{"inserted": inserted, "deleted": deleted} {
		if slot < 0 {
			continue
		}
		pseudo := &source{alias: name}
		for _, b := range src.cols {
			if b.sc.col == nil || b.sc.col.slot != src.target.slot {
				continue
			}
			pseudo.cols = append(pseudo.cols, binding{b.name, columnOf(slot, b.sc.col.col, b.sc.typ, b.sc.nullable, b.name)})
		}
		c.scope.sources = append(c.scope.sources, pseudo)
	}
	list := func(elements []ast.SelectElement) ([]outCol, error) {
		b := &block{}
		if err := c.selectList(b, elements); err != nil {
			return nil, err
		}
		return b.cols, nil
	}
	var err error
	if out != nil {
		if src.target.table.hasTrigger(action) {
			return nil, errTrigger(src.target.table)
		}
		if p.cols, err = list(out.SelectColumns); err != nil {
			return nil, err
		}
	}
	if into != nil {
		if p.vals, err = list(into.SelectColumns); err != nil {
			return nil, err
		}
		if p.into, _, err = c.destination(into.IntoTable, into.IntoTableColumns); err != nil {
			return nil, err
		}
		if len(p.into.table.triggers) > 0 {
			return nil, sqlError(331, "The target table '%s' of the OUTPUT INTO clause cannot have any enabled triggers.", p.into.table.name)
		}
		if checks := p.into.table.checks; len(checks) > 0 && !p.into.table.private {
			return nil, sqlError(333, "The target table '%s' of the OUTPUT INTO clause cannot have any enabled check constraints or any enabled rules. Found check constraint or rule '%s'.", p.into.table.name, checks[0].name)
		}
		vals := make([]*scalar, len(p.vals))
		for i, v := range p.vals {
			vals[i] = v.sc
		}
		if err := p.into.accept(vals); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *outputPlan) tables(more ...*destination) (list []*table) {
	for _, d := range append(more, p.into) {
		if d != nil && d.param == nil {
			list = append(list, d.table)
		}
	}
	return list
}

func (p *outputPlan) open(x *exec) error {
	if p.into != nil {
		if err := p.into.open(x); err != nil {
			return err
		}
	}
	if p.cols != nil {
		return x.s.columns(p.cols)
	}
	return nil
}

// emit handles one changed row. Rows sent to the client cannot be recalled if the statement fails later.
func (p *outputPlan) emit(x *exec) error {
	if p.into != nil {
		vals := make([]sqltype.Value, len(p.vals))
		for i, v := range p.vals {
			var err error
			if vals[i], err = v.sc.eval(x); err != nil {
				return err
			}
		}
		if _, err := p.into.insert(x, vals); err != nil {
			return err
		}
	}
	if p.cols == nil {
		return nil
	}
	row := make(Row, len(p.cols))
	for i := range p.cols {
		var err error
		if row[i], err = p.cols[i].sc.eval(x); err != nil {
			return err
		}
	}
	return x.row(row)
}
