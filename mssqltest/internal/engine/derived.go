package engine

import (
	"github.com/sqlc-dev/teesql/ast"
)

// derived compiles a query in FROM. A plain query is merged into the query around it. A query with TOP or ORDER BY runs
// separately but keeps its range variables. Any other query is a source of rows.
func (c *compiler) derived(q ast.QueryExpression, columns []*ast.Identifier, hints tableHints, lateral bool) (*source, from, error) {
	return c.derivedFor(q, columns, hints, lateral, false)
}

func (c *compiler) derivedFor(q ast.QueryExpression, columns []*ast.Identifier, hints tableHints, lateral, target bool) (*source, from, error) {
	for {
		p, ok := q.(*ast.QueryParenthesisExpression)
		if !ok {
			break
		}
		q = p.QueryExpression
	}
	outer, agg := c.scope, c.agg
	inner := &scope{parent: outer}
	if !lateral && outer != nil {
		inner.parent = outer.parent
	}
	c.scope, c.agg = inner, nil
	defer func() { c.scope, c.agg = outer, agg }()

	var src *source
	var f from
	spec, isSpec := q.(*ast.QuerySpecification)
	plain := isSpec && !isAggregate(spec) && !volatile(spec)
	switch {
	case plain && spec.TopRowFilter == nil && spec.OrderByClause == nil && spec.OffsetClause == nil:
		b, err := c.body(spec, hints, target)
		if err != nil {
			return nil, f, err
		}
		src, f = &source{target: b.target, joined: len(b.uses) > 1}, b.from
		for _, col := range b.cols {
			src.cols = append(src.cols, binding{col.name, col.sc})
		}
	case plain:
		b, err := c.block(spec, hints, target)
		if err != nil {
			return nil, f, err
		}
		src = &source{target: b.target, joined: len(b.uses) > 1}
		for _, col := range b.cols {
			src.cols = append(src.cols, binding{col.name, col.sc})
		}
		f.rels = []*rel{{slots: b.slots, deps: b.refs &^ b.slots, run: b.iterate}}
	default:
		plan, err := c.query(q)
		if err != nil {
			return nil, f, err
		}
		slot, err := c.newSlot()
		if err != nil {
			return nil, f, err
		}
		src = &source{}
		for i, col := range plan.cols {
			src.cols = append(src.cols, binding{col.name, columnOf(slot, i, col.typ, col.nullable, col.name)})
		}
		f.rels = []*rel{{slots: 1 << slot, deps: plan.refs, run: func(x *exec, yield func() (bool, error)) (bool, error) {
			return plan.rows(x, func(row Row) (bool, error) {
				x.slots[slot].row = row
				return yield()
			})
		}}}
	}
	if len(columns) > 0 {
		if len(columns) != len(src.cols) {
			return nil, f, sqlError(8158, "A derived table has %d columns but %d column names were specified.", len(src.cols), len(columns))
		}
		for i, id := range columns {
			src.cols[i].name = id.Value
		}
	}
	return src, f, nil
}

// inlineTable compiles VALUES in FROM.
func (c *compiler) inlineTable(r *ast.InlineDerivedTable) (from, error) {
	var rows [][]*scalar
	var refs slotSet
	for _, v := range r.RowValues {
		row, err := c.scalars(v.ColumnValues)
		if err != nil {
			return from{}, err
		}
		if len(rows) > 0 && len(row) != len(rows[0]) {
			return from{}, sqlError(10709, "The number of columns for each row in a table value constructor must be the same.")
		}
		rows = append(rows, row)
	}
	if len(r.Columns) != len(rows[0]) {
		return from{}, sqlError(8158, "'%s' has more columns than were specified in the column list.", aliasOf(r.Alias))
	}
	slot, err := c.newSlot()
	if err != nil {
		return from{}, err
	}
	src := &source{alias: aliasOf(r.Alias)}
	for i, id := range r.Columns {
		column := make([]*scalar, len(rows))
		for j := range rows {
			column[j] = rows[j][i]
		}
		column, t, err := unify(column)
		if err != nil {
			return from{}, err
		}
		for j := range rows {
			rows[j][i] = column[j]
			refs |= column[j].refs
		}
		src.cols = append(src.cols, binding{id.Value, columnOf(slot, i, t, true, id.Value)})
	}
	if err := c.scope.add(src); err != nil {
		return from{}, err
	}
	run := func(x *exec, yield func() (bool, error)) (bool, error) {
		for _, row := range rows {
			out := make(Row, len(row))
			for i, sc := range row {
				var err error
				if out[i], err = sc.eval(x); err != nil {
					return false, err
				}
			}
			x.slots[slot].row = out
			if more, err := yield(); err != nil || !more {
				return more, err
			}
		}
		return true, nil
	}
	return from{rels: []*rel{{slots: 1 << slot, deps: refs, run: run}}}, nil
}

// rowsSource returns a source of computed rows with the given columns.
func (c *compiler) rowsSource(cols []outCol, refs slotSet, rows func(*exec) ([]Row, error)) (*source, from, error) {
	slot, err := c.newSlot()
	if err != nil {
		return nil, from{}, err
	}
	src := &source{}
	for i, col := range cols {
		b := binding{col.name, columnOf(slot, i, col.typ, true, col.name)}
		src.cols = append(src.cols, b)
	}
	run := func(x *exec, yield func() (bool, error)) (bool, error) {
		all, err := rows(x)
		if err != nil {
			return false, err
		}
		for _, row := range all {
			x.slots[slot].row = row
			if more, err := yield(); err != nil || !more {
				return more, err
			}
		}
		return true, nil
	}
	return src, from{rels: []*rel{{slots: 1 << slot, deps: refs, run: run}}}, nil
}
