package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// block is one SELECT … FROM … WHERE …: its rows are states of its slots.
type block struct {
	from   from
	target *baseUse // the only table that has columns in the select list
	cols   []outCol

	run     iter
	slots   slotSet // the slots that distinguish its rows
	refs    slotSet // of all its expressions
	colUses []colUse
	uses    []*baseUse
	top     *scalar
	order   []orderKey
	ordered bool         // run yields in that order
	assign  []assignment // SELECT @v = …
}

// assignment is one element of SELECT @v = … or SET.
type assignment struct {
	at  int
	val *scalar
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

// body compiles FROM, WHERE and the select list of a SELECT without planning it, so that it can be merged into the query around
// it.
func (c *compiler) body(spec *ast.QuerySpecification, hints tableHints, target bool) (*block, error) {
	switch {
	case spec.UniqueRowFilter == "Distinct":
		return nil, errUnsupported("SELECT DISTINCT")
	case spec.GroupByClause != nil || spec.HavingClause != nil:
		return nil, errUnsupported("GROUP BY")
	case spec.OffsetClause != nil:
		return nil, errUnsupported("OFFSET")
	case spec.ForClause != nil || spec.WindowClause != nil:
		return nil, errUnsupported("FOR or WINDOW")
	}
	b := &block{}
	first := len(c.uses)
	f, err := c.from(spec.FromClause)
	if err != nil {
		return nil, err
	}
	b.uses = c.uses[first:len(c.uses):len(c.uses)]
	for _, u := range b.uses {
		u.hints = u.hints.merge(hints)
	}
	if len(b.uses) == 1 {
		b.target = b.uses[0]
		if target {
			b.target.target = true
		}
	}
	if spec.WhereClause != nil {
		if spec.WhereClause.Cursor != nil {
			return nil, errUnsupported("WHERE CURRENT OF")
		}
		conds, err := c.conjuncts(spec.WhereClause.SearchCondition)
		if err != nil {
			return nil, err
		}
		f.conds = append(f.conds, conds...)
	}
	b.from = f
	if !isAggregate(spec) {
		if err := c.selectList(b, spec.SelectElements); err != nil {
			return nil, err
		}
	}
	if len(b.uses) > 1 {
		b.target = only(b.uses, b.cols)
		if b.target != nil && target {
			b.target.target = true
		}
	}
	return b, nil
}

// only returns the table of all columns, or nil.
func only(uses []*baseUse, cols []outCol) *baseUse {
	var found *baseUse
	for _, col := range cols {
		at := slices.IndexFunc(uses, func(u *baseUse) bool { return col.sc.col != nil && col.sc.col.slot == u.slot })
		if at < 0 || found != nil && found != uses[at] {
			return nil
		}
		found = uses[at]
	}
	return found
}

// block compiles a whole SELECT.
func (c *compiler) block(spec *ast.QuerySpecification, hints tableHints, target bool) (*block, error) {
	b, err := c.body(spec, hints, target)
	if err != nil {
		return nil, err
	}
	if isAggregate(spec) {
		return b, c.aggregate(b, spec)
	}
	if err := c.limits(b, spec); err != nil {
		return nil, err
	}
	b.slots = b.from.slots()
	if b.run, b.ordered, err = c.join(b.from, b.order, nil); err != nil {
		return nil, err
	}
	b.note()
	return b, nil
}

// limit compiles TOP. Only a constant in a SELECT may omit its parentheses ("TOP (Transact-SQL)", Compatibility Support).
func (c *compiler) limit(t *ast.TopRowFilter, bare bool) (*scalar, error) {
	if _, in := t.Expression.(*ast.ParenthesisExpression); !in && !bare {
		return nil, errSyntaxNear("TOP")
	}
	if t.Percent || t.WithTies {
		return nil, errUnsupported("TOP … PERCENT or WITH TIES")
	}
	return c.count(t.Expression)
}

// limits compiles TOP and ORDER BY.
func (c *compiler) limits(b *block, spec *ast.QuerySpecification) error {
	var err error
	if t := spec.TopRowFilter; t != nil {
		_, number := t.Expression.(*ast.IntegerLiteral)
		if b.top, err = c.limit(t, number); err != nil {
			return err
		}
	}
	if spec.OrderByClause != nil {
		for _, e := range spec.OrderByClause.OrderByElements {
			if _, ok := e.Expression.(*ast.IntegerLiteral); ok {
				return errUnsupported("ORDER BY a position")
			}
			key := orderKey{desc: e.SortOrder == "Descending"}
			if at := outputColumn(e.Expression, b.cols); at >= 0 {
				key.sc = b.cols[at].sc
			} else if key.sc, err = c.scalar(e.Expression); err != nil {
				return err
			}
			if !isOrdered(key.sc.typ.Kind) {
				return errUnsupported("ORDER BY " + kindName(key.sc.typ.Kind))
			}
			b.order = append(b.order, key)
		}
	}
	return nil
}

func (c *compiler) count(e ast.ScalarExpression) (*scalar, error) {
	sc, err := c.scalar(e)
	if err != nil {
		return nil, err
	}
	return castImplicit(sc, typeBigInt)
}

// selectList compiles the columns or assignments of a SELECT.
func (c *compiler) selectList(b *block, list []ast.SelectElement) error {
	for _, e := range list {
		switch e := e.(type) {
		case *ast.SelectStarExpression:
			if e.Qualifier != nil {
				return errUnsupported("name.* in a SELECT list")
			}
			if len(c.scope.sources) == 0 {
				return sqlError(263, "Must specify table to select from.")
			}
			for _, src := range c.scope.sources {
				for _, col := range src.cols {
					c.used(col.sc)
					b.cols = append(b.cols, resultColumn(col.name, col.sc))
				}
			}
		case *ast.SelectScalarExpression:
			sc, err := c.scalar(e.Expression)
			if err != nil {
				return err
			}
			name := sc.name
			if _, isColumn := e.Expression.(*ast.ColumnReferenceExpression); !isColumn {
				name = ""
			}
			if e.ColumnName != nil {
				name = e.ColumnName.Value
			}
			if sc.typ.Kind == sqltype.Invalid {
				sc = cast(sc, typeInt, 0)
			}
			b.cols = append(b.cols, resultColumn(name, sc))
		case *ast.SelectSetVariable:
			a, err := c.assignment(e.Variable, e.Expression, e.AssignmentKind)
			if err != nil {
				return err
			}
			b.assign = append(b.assign, a)
		default:
			return errUnsupported(fmt.Sprintf("%T", e))
		}
	}
	if len(b.assign) > 0 && len(b.cols) > 0 {
		return sqlError(141, "A SELECT statement that assigns a value to a variable must not be combined with data-retrieval operations.")
	}
	return nil
}

func resultColumn(name string, sc *scalar) outCol {
	return outCol{name: name, typ: sc.typ, nullable: sc.nullable, sc: sc}
}

// assignment compiles @v = e.
func (c *compiler) assignment(v *ast.VariableReference, e ast.ScalarExpression, kind string) (assignment, error) {
	to := c.batch.variable(v.Name)
	if to == nil || to.table != nil {
		return assignment{}, errUndeclared(v.Name)
	}
	if kind != "" && kind != "Equals" {
		return assignment{}, errUnsupported("SET … " + kind)
	}
	sc, err := c.scalar(e)
	if err != nil {
		return assignment{}, err
	}
	sc, err = castImplicit(sc, to.typ)
	return assignment{at: to.at, val: sc}, err
}

// note collects the columns of outer queries that the block needs.
func (b *block) note() {
	add := func(s *scalar) {
		if s != nil {
			b.refs |= s.refs
			b.colUses = append(b.colUses, s.cols...)
		}
	}
	for _, k := range b.from.conds {
		b.refs |= k.refs
		b.colUses = append(b.colUses, k.cols...)
	}
	for _, r := range b.from.rels {
		b.refs |= r.deps
	}
	for _, col := range b.cols {
		add(col.sc)
	}
	for _, a := range b.assign {
		add(a.val)
	}
	for _, o := range b.order {
		add(o.sc)
	}
	add(b.top)
	b.refs &^= b.from.slots()
}

func (b *block) outer() []colUse {
	own := b.slots | b.from.slots()
	var out []colUse
	for _, u := range b.colUses {
		if !own.has(u.slot) {
			out = append(out, u)
		}
	}
	return out
}

// limit evaluates TOP: the number of rows to pass; -1 is all.
func (b *block) limit(x *exec) (int64, error) {
	if b.top == nil {
		return -1, nil
	}
	return topOf(x, b.top)
}

func topOf(x *exec, top *scalar) (int64, error) {
	v, err := top.eval(x)
	if err != nil {
		return 0, err
	}
	n, ok := v.(int64)
	if !ok || n < 0 {
		return 0, sqlError(1060, "The number of rows provided for a TOP or FETCH clauses row count parameter must be an integer.")
	}
	return n, nil
}

// iterate yields the block's rows in order and within its limits.
func (b *block) iterate(x *exec, yield func() (bool, error)) (bool, error) {
	limit, err := b.limit(x)
	if err != nil || limit == 0 {
		return true, err
	}
	if len(b.order) > 0 && !b.ordered {
		return b.sorted(x, limit, yield)
	}
	if limit < 0 {
		return b.run(x, yield)
	}
	var n int64
	more := true
	_, err = b.run(x, func() (_ bool, err error) {
		n++
		more, err = yield()
		return more && n < limit, err
	})
	return more && err == nil, err
}

// rows computes the select list for each row.
func (b *block) rows(x *exec, emit func(Row) (bool, error)) (bool, error) {
	return b.iterate(x, func() (bool, error) {
		row := make(Row, len(b.cols))
		for i := range b.cols {
			var err error
			if row[i], err = b.cols[i].sc.eval(x); err != nil {
				return false, err
			}
		}
		return emit(row)
	})
}

// isAggregate reports whether a SELECT has aggregates.
func isAggregate(spec *ast.QuerySpecification) bool {
	for _, e := range spec.SelectElements {
		if mentions(reflect.ValueOf(e), func(f *ast.FunctionCall) bool {
			return aggregates[strings.ToUpper(f.FunctionName.Value)] && f.OverClause == nil
		}) {
			return true
		}
	}
	return false
}

// volatile reports whether the select list makes new identifiers: it must not be evaluated twice.
func volatile(spec *ast.QuerySpecification) bool {
	for _, e := range spec.SelectElements {
		if mentions(reflect.ValueOf(e), func(f *ast.FunctionCall) bool {
			name := strings.ToUpper(f.FunctionName.Value)
			return name == "NEWID" || name == "NEWSEQUENTIALID"
		}) {
			return true
		}
	}
	return false
}

// mentions looks for a function call in an expression, not in its subqueries.
func mentions(v reflect.Value, is func(*ast.FunctionCall) bool) bool {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return false
		}
		if v.Kind() == reflect.Pointer {
			switch n := v.Interface().(type) {
			case *ast.FunctionCall:
				if is(n) {
					return true
				}
			case *ast.ScalarSubquery, *ast.QuerySpecification, *ast.BinaryQueryExpression:
				return false
			}
		}
		return mentions(v.Elem(), is)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && mentions(v.Field(i), is) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if mentions(v.Index(i), is) {
				return true
			}
		}
	}
	return false
}
