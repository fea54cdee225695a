package engine

import (
	"fmt"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// destination is where rows are inserted: the target of INSERT or of OUTPUT INTO.
type destination struct {
	table *table
	param *int  // of a table variable
	cols  []int // the columns that have values
	vals  []*scalar
	verb  string
}

// destination compiles the target of an insertion; src has the names under which its columns are known.
func (c *compiler) destination(ref ast.TableReference, columns []*ast.ColumnReferenceExpression) (*destination, *source, error) {
	d := &destination{verb: "INSERT"}
	was := c.scope
	c.scope = &scope{}
	defer func() { c.scope = was }()
	first := len(c.uses)
	switch r := ref.(type) {
	case *ast.NamedTableReference:
		if _, err := c.named(r, true); err != nil {
			return nil, nil, err
		}
	case *ast.VariableTableReference:
		if _, err := c.tableVariable(r, true); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, errUnsupported(fmt.Sprintf("%T", ref))
	}
	src := c.scope.sources[0]
	u := src.target
	if u == nil || src.joined {
		return nil, nil, notUpdatable(src)
	}
	if err := checkTarget(u.hints, false, true); err != nil {
		return nil, nil, err
	}
	// The rows are not read.
	c.uses = c.uses[:first]
	d.table, d.param = u.table, u.param
	if len(columns) == 0 {
		for i, col := range d.table.cols {
			if !col.identity {
				d.cols = append(d.cols, i)
			}
		}
		return d, src, nil
	}
	for _, ref := range columns {
		parts := ref.MultiPartIdentifier.Identifiers
		name := parts[len(parts)-1].Value
		b := src.column(name)
		if b == nil || b.sc.col == nil {
			return nil, nil, errNoColumn(name)
		}
		for _, has := range d.cols {
			if has == b.sc.col.col {
				return nil, nil, sqlError(264, "The column name '%s' is specified more than once in the SET clause or column list of an INSERT.", name)
			}
		}
		d.cols = append(d.cols, b.sc.col.col)
	}
	return d, src, nil
}

// accept checks the types of the values to insert.
func (d *destination) accept(vals []*scalar) error {
	switch {
	case len(vals) < len(d.cols):
		return sqlError(120, "The select list for the INSERT statement contains fewer items than the insert list. The number of SELECT values must match the number of INSERT columns.")
	case len(vals) > len(d.cols):
		return sqlError(121, "The select list for the INSERT statement contains more items than the insert list. The number of SELECT values must match the number of INSERT columns.")
	}
	for i, v := range vals {
		if err := checkImplicit(v.typ, d.table.cols[d.cols[i]].typ); err != nil {
			return err
		}
	}
	d.vals = vals
	return nil
}

// open locks the table.
func (d *destination) open(x *exec) error {
	if d.param != nil {
		return nil
	}
	if err := x.s.checkFilteredIndex(d.table, d.verb); err != nil {
		return err
	}
	return x.lockTable(d.table, lock.IX, x.wait())
}

func (d *destination) tableIn(x *exec) *table {
	if d.param != nil {
		return x.f.tables[*d.param]
	}
	return d.table
}

// insert stores one row of the given values.
func (d *destination) insert(x *exec, vals []sqltype.Value) (Row, error) {
	t := d.tableIn(x)
	row := make(Row, len(t.cols))
	given := make([]bool, len(t.cols))
	for i, at := range d.cols {
		given[at] = true
		var err error
		if row[at], err = storeColumn(t, at, vals[i], d.vals[i].typ); err != nil {
			return nil, err
		}
	}
	for at, col := range t.cols {
		switch {
		case col.identity:
			if given[at] {
				return nil, sqlError(544, "Cannot insert explicit value for identity column in table '%s' when IDENTITY_INSERT is set to OFF.", t.name)
			}
			t.latch.Lock()
			row[at] = t.nextIdentity
			t.nextIdentity += t.increment
			t.latch.Unlock()
		case !given[at] && col.byDefault != nil:
			v, err := col.byDefault.eval(x)
			if err != nil {
				return nil, err
			}
			if row[at], err = storeColumn(t, at, v, col.byDefault.typ); err != nil {
				return nil, err
			}
		}
		if row[at] == nil && !col.nullable {
			return nil, errNullColumn(t, col.name, d.verb)
		}
	}
	if err := x.check(t, row, d.verb); err != nil {
		return nil, err
	}
	_, err := x.insertRow(t, row)
	return row, err
}

// storeColumn converts a value to a column's type; a value that is too long is error 2628.
func storeColumn(t *table, at int, v sqltype.Value, from sqltype.Type) (sqltype.Value, error) {
	col := t.cols[at]
	out, fits, err := store(v, from, col.typ)
	if err != nil {
		return nil, err
	}
	if !fits {
		return nil, errTruncated(t, col.name, display(v, from))
	}
	return out, nil
}

// insertPlan is a compiled INSERT.
type insertPlan struct {
	c      *compiler
	to     *destination
	slot   int // of inserted
	values [][]*scalar
	query  *queryPlan
	output *outputPlan
}

func (c *compiler) insert(st *ast.InsertStatement) (*insertPlan, error) {
	spec := st.InsertSpecification
	if err := c.withCTEs(st.WithCtesAndXmlNamespaces); err != nil {
		return nil, err
	}
	if err := c.optimizerHints(st.OptimizerHints); err != nil {
		return nil, err
	}
	if spec.TopRowFilter != nil {
		return nil, errUnsupported("INSERT TOP")
	}
	d, src, err := c.destination(spec.Target, spec.Columns)
	if err != nil {
		return nil, err
	}
	p := &insertPlan{c: c, to: d}
	switch s := spec.InsertSource.(type) {
	case *ast.ValuesInsertSource:
		err = p.compileValues(s, len(spec.Columns) > 0)
	case *ast.SelectInsertSource:
		if p.query, err = c.query(s.Select); err == nil {
			vals := make([]*scalar, len(p.query.cols))
			for i, col := range p.query.cols {
				vals[i] = &scalar{typ: col.typ}
			}
			err = d.accept(vals)
		}
	default:
		err = errUnsupported(fmt.Sprintf("%T", s))
	}
	if err != nil {
		return nil, err
	}
	if p.slot, err = c.newSlot(); err != nil {
		return nil, err
	}
	p.output, err = c.output(spec.OutputClause, spec.OutputIntoClause, src, p.slot, -1, "insert")
	return p, err
}

// compileValues compiles VALUES; listed reports whether the columns are named.
func (p *insertPlan) compileValues(s *ast.ValuesInsertSource, listed bool) error {
	if s.IsDefaultValues {
		return errUnsupported("DEFAULT VALUES")
	}
	if len(s.RowValues) > 1000 {
		return severity(15, 10738, "The number of row value expressions in the INSERT statement exceeds the maximum allowed number of 1000 row values.")
	}
	var typed []*scalar
	for _, r := range s.RowValues {
		row := make([]*scalar, len(r.ColumnValues))
		for i, e := range r.ColumnValues {
			var err error
			if row[i], err = p.c.scalar(e); err != nil {
				return err
			}
		}
		switch {
		case listed && len(row) < len(p.to.cols):
			return sqlError(109, "There are more columns in the INSERT statement than values specified in the VALUES clause. The number of values in the VALUES clause must match the number of columns specified in the INSERT statement.")
		case listed && len(row) > len(p.to.cols):
			return sqlError(110, "There are fewer columns in the INSERT statement than values specified in the VALUES clause. The number of values in the VALUES clause must match the number of columns specified in the INSERT statement.")
		case len(row) != len(p.to.cols):
			return sqlError(213, "Column name or number of supplied values does not match table definition.")
		}
		p.values = append(p.values, row)
		if err := p.to.accept(row); err != nil {
			return err
		}
		if typed == nil {
			typed = append([]*scalar(nil), row...)
			continue
		}
		// Rows of one VALUES have one type for each column.
		for i, v := range row {
			typed[i] = &scalar{typ: common(typed[i].typ, v.typ)}
		}
	}
	for _, row := range p.values {
		for i, v := range row {
			if typed[i].typ.Kind == sqltype.Invalid {
				continue
			}
			var err error
			if row[i], err = castImplicit(v, typed[i].typ); err != nil {
				return err
			}
		}
	}
	return p.to.accept(typed)
}

func (p *insertPlan) tables() ([]*baseUse, []*table) { return p.c.uses, p.output.tables(p.to) }

func (p *insertPlan) run(x *exec) (int64, error) {
	if err := p.to.open(x); err != nil {
		return 0, err
	}
	if err := p.output.open(x); err != nil {
		return 0, err
	}
	// All rows are computed before the first is inserted: the statement does not see its own changes.
	var rows []Row
	if p.query != nil {
		limit := x.rowLimit()
		if _, err := p.query.rows(x, func(row Row) (bool, error) {
			rows = append(rows, row)
			return int64(len(rows)) != limit, nil
		}); err != nil {
			return 0, err
		}
	}
	for _, exprs := range p.values {
		row := make(Row, len(exprs))
		for i, e := range exprs {
			var err error
			if row[i], err = e.eval(x); err != nil {
				return 0, err
			}
		}
		rows = append(rows, row)
	}
	if limit := x.rowLimit(); limit >= 0 && int64(len(rows)) > limit {
		rows = rows[:limit]
	}
	var made changes
	for i, vals := range rows {
		if err := x.ctx.Err(); err != nil {
			return 0, err
		}
		row, err := p.to.insert(x, vals)
		if err != nil {
			return int64(i), err
		}
		made.inserted = append(made.inserted, row)
		x.slots[p.slot] = slot{row: row}
		if err := p.output.emit(x); err != nil {
			return int64(i), err
		}
	}
	return int64(len(rows)), x.fire(p.to.table, "insert", made)
}
