package engine

import (
	"fmt"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// changePlan is a compiled UPDATE or DELETE.
type changePlan struct {
	c        *compiler
	action   string // update or delete
	target   *baseUse
	run1     iter
	slots    []int // of the rows that the statement finds
	top      *scalar
	sets     []setColumn
	inserted int
	deleted  int
	output   *outputPlan
}

type setColumn struct {
	col int
	val *scalar
}

// target compiles FROM and finds in it the table that the statement changes.
func (c *compiler) target(ref ast.TableReference, clause *ast.FromClause) (from, *source, error) {
	r, ok := ref.(*ast.NamedTableReference)
	if !ok {
		return from{}, nil, errUnsupported(fmt.Sprintf("UPDATE or DELETE of %T", ref))
	}
	hints, err := c.tableHints(r.TableHints)
	if err != nil {
		return from{}, nil, err
	}
	if err := checkTarget(hints, false, false); err != nil {
		return from{}, nil, err
	}
	if clause == nil {
		f, err := c.named(r, true)
		if err != nil {
			return f, nil, err
		}
		src := c.scope.sources[0]
		if src.target == nil {
			return f, nil, notUpdatable(src)
		}
		return f, src, nil
	}
	f, err := c.from(clause)
	if err != nil {
		return f, nil, err
	}
	schema, name := nameOf(r.SchemaObject)
	match := func(s *source) bool {
		if r.SchemaObject.SchemaIdentifier == nil && equalFold(s.alias, name) {
			return true
		}
		return s.target != nil && equalFold(s.target.table.name, name) && equalFold(s.target.table.schema, schema)
	}
	for _, src := range c.scope.sources {
		if !match(src) {
			continue
		}
		if src.target == nil {
			return f, nil, notUpdatable(src)
		}
		src.target.target = true
		src.target.hints = src.target.hints.merge(hints)
		return f, src, checkTarget(src.target.hints, true, false)
	}
	return f, nil, errNoObject(spelled(r.SchemaObject))
}

func notUpdatable(src *source) error {
	return sqlError(4405, "View or function '%s' is not updatable because the modification affects multiple base tables.", src.alias)
}

func (c *compiler) update(st *ast.UpdateStatement) (*changePlan, error) {
	spec := st.UpdateSpecification
	p := &changePlan{c: c, action: "update"}
	src, err := p.find(st.WithCtesAndXmlNamespaces, st.OptimizerHints, spec.Target, spec.FromClause, spec.WhereClause, spec.TopRowFilter, func(src *source) error {
		return p.compileSets(src, spec.SetClauses)
	})
	if err != nil {
		return nil, err
	}
	if p.inserted, err = c.newSlot(); err != nil {
		return nil, err
	}
	if p.deleted, err = c.newSlot(); err != nil {
		return nil, err
	}
	p.output, err = c.output(spec.OutputClause, spec.OutputIntoClause, src, p.inserted, p.deleted, p.action)
	return p, err
}

func (c *compiler) delete(st *ast.DeleteStatement) (*changePlan, error) {
	spec := st.DeleteSpecification
	p := &changePlan{c: c, action: "delete", inserted: -1}
	src, err := p.find(st.WithCtesAndXmlNamespaces, st.OptimizerHints, spec.Target, spec.FromClause, spec.WhereClause, spec.TopRowFilter, nil)
	if err != nil {
		return nil, err
	}
	if p.deleted, err = c.newSlot(); err != nil {
		return nil, err
	}
	p.output, err = c.output(spec.OutputClause, spec.OutputIntoClause, src, -1, p.deleted, p.action)
	return p, err
}

// find compiles the part that finds the rows.
func (p *changePlan) find(with *ast.WithCtesAndXmlNamespaces, hints []ast.OptimizerHintBase, ref ast.TableReference,
	clause *ast.FromClause, where *ast.WhereClause, top *ast.TopRowFilter, sets func(*source) error) (*source, error) {
	c := p.c
	if err := c.withCTEs(with); err != nil {
		return nil, err
	}
	if err := c.optimizerHints(hints); err != nil {
		return nil, err
	}
	c.scope = &scope{}
	f, src, err := c.target(ref, clause)
	if err != nil {
		return nil, err
	}
	if src.joined && p.action == "delete" {
		return nil, notUpdatable(src)
	}
	p.target = src.target
	if where != nil {
		if where.Cursor != nil {
			return nil, errUnsupported("WHERE CURRENT OF")
		}
		conds, err := c.conjuncts(where.SearchCondition)
		if err != nil {
			return nil, err
		}
		f.conds = append(f.conds, conds...)
	}
	if sets != nil {
		if err := sets(src); err != nil {
			return nil, err
		}
	}
	if top != nil {
		if p.top, err = c.limit(top, false); err != nil {
			return nil, err
		}
	}
	own := f.slots()
	for i := range maxSlots {
		if own.has(i) {
			p.slots = append(p.slots, i)
		}
	}
	p.run1, _, err = c.join(f, nil, nil)
	return src, err
}

func (p *changePlan) compileSets(src *source, clauses []ast.SetClause) error {
	for _, clause := range clauses {
		a, ok := clause.(*ast.AssignmentSetClause)
		if !ok {
			return errUnsupported(fmt.Sprintf("%T", clause))
		}
		if a.Column == nil || a.Variable != nil {
			return errUnsupported("UPDATE … SET @v")
		}
		parts := a.Column.MultiPartIdentifier.Identifiers
		name := parts[len(parts)-1].Value
		b := src.column(name)
		switch {
		case b == nil:
			return errNoColumn(name)
		case b.sc.col == nil || b.sc.col.slot != src.target.slot:
			return sqlError(4406, "Update or insert of view or function '%s' failed because it contains a derived or constant field.", src.alias)
		}
		at := b.sc.col.col
		col := src.target.table.cols[at]
		if col.identity {
			return sqlError(8102, "Cannot update identity column '%s'.", col.name)
		}
		for _, s := range p.sets {
			if s.col == at {
				return sqlError(264, "The column name '%s' is specified more than once in the SET clause or column list of an INSERT.", name)
			}
		}
		if a.AssignmentKind != "" && a.AssignmentKind != "Equals" {
			return errUnsupported("SET … " + a.AssignmentKind)
		}
		val, err := p.c.scalar(a.NewValue)
		if err != nil {
			return err
		}
		if err := checkImplicit(val.typ, col.typ); err != nil {
			return err
		}
		p.sets = append(p.sets, setColumn{col: at, val: val})
	}
	return nil
}

func (p *changePlan) tables() ([]*baseUse, []*table) { return p.c.uses, p.output.tables() }

// found is a row to change, with the state of all slots when it was found.
type found struct{ slots []slot }

// run finds and locks all rows first, and then changes them, so that it does not meet again a row that moves in the
// index.
func (p *changePlan) run(x *exec) (int64, error) {
	verb := map[string]string{"update": "UPDATE", "delete": "DELETE"}[p.action]
	t := x.tableOf(p.target)
	if !t.private {
		if err := x.s.checkFilteredIndex(t, verb); err != nil {
			return 0, err
		}
		if x.readings[p.target.at].table != lock.X {
			if err := x.lockTable(t, lock.IX, x.wait()); err != nil {
				return 0, err
			}
		}
	}
	if err := p.output.open(x); err != nil {
		return 0, err
	}
	limit := int64(-1)
	if p.top != nil {
		var err error
		if limit, err = topOf(x, p.top); err != nil {
			return 0, err
		}
	}
	if n := x.rowLimit(); n >= 0 && (limit < 0 || n < limit) {
		limit = n
	}
	rows, err := p.collect(x, limit)
	if err != nil {
		return 0, err
	}
	var made changes
	for i, row := range rows {
		if err := x.ctx.Err(); err != nil {
			return 0, err
		}
		x.restore(p.slots, row.slots)
		if err := p.change(x, t); err != nil {
			return int64(i), err
		}
		made.deleted = append(made.deleted, x.slots[p.deleted].row)
		if p.action == "update" {
			made.inserted = append(made.inserted, x.slots[p.inserted].row)
		}
	}
	return int64(len(rows)), x.fire(t, p.action, made)
}

func (p *changePlan) collect(x *exec, limit int64) ([]found, error) {
	if limit == 0 {
		return nil, nil
	}
	var rows []found
	seen := map[*record]bool{}
	r := x.readings[p.target.at]
	_, err := p.run1(x, func() (bool, error) {
		sl := &x.slots[p.target.slot]
		if sl.rec == nil || seen[sl.rec] {
			return true, nil
		}
		seen[sl.rec] = true
		rows = append(rows, found{x.save(p.slots)})
		if !r.keep && !r.ranges {
			x.atEnd = append(x.atEnd, sl.locks...)
		}
		return limit < 0 || int64(len(rows)) < limit, nil
	})
	return rows, err
}

// change applies the statement to the row in the target's slot.
func (p *changePlan) change(x *exec, t *table) error {
	sl := x.slots[p.target.slot]
	old := sl.ver
	if p.action == "delete" {
		if err := x.deleteRow(t, sl.rec, old); err != nil {
			return err
		}
		x.slots[p.deleted] = slot{row: old.row}
		return p.output.emit(x)
	}
	row := append(Row(nil), old.row...)
	for _, s := range p.sets {
		v, err := s.val.eval(x)
		if err != nil {
			return err
		}
		if row[s.col], err = storeColumn(t, s.col, v, s.val.typ); err != nil {
			return err
		}
		if row[s.col] == nil && !t.cols[s.col].nullable {
			return errNullColumn(t, t.cols[s.col].name, "UPDATE")
		}
	}
	if err := x.check(t, row, "UPDATE"); err != nil {
		return err
	}
	if err := x.updateRow(t, sl.rec, old, row); err != nil {
		return err
	}
	x.slots[p.inserted] = slot{row: row}
	x.slots[p.deleted] = slot{row: old.row}
	return p.output.emit(x)
}
