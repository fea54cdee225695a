package engine

import (
	"fmt"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// queryPlan is a compiled query expression: rows of computed columns.
type queryPlan struct {
	cols  []outCol
	rows  func(x *exec, emit func(Row) (bool, error)) (bool, error)
	refs  slotSet  // range variables of the queries around it
	outer []colUse // columns of these
	block *block   // of a single SELECT
}

// outCol is one column of a result.
type outCol struct {
	name     string
	typ      sqltype.Type
	nullable bool
	sc       *scalar
}

// query compiles a query expression in a new scope.
func (c *compiler) query(q ast.QueryExpression) (*queryPlan, error) {
	switch q := q.(type) {
	case *ast.QueryParenthesisExpression:
		return c.query(q.QueryExpression)
	case *ast.QuerySpecification:
		var b *block
		err := c.inner(func() (err error) {
			b, err = c.block(q, tableHints{}, false)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &queryPlan{cols: b.cols, rows: b.rows, refs: b.refs &^ b.slots, outer: b.outer(), block: b}, nil
	case *ast.BinaryQueryExpression:
		return c.union(q)
	}
	return nil, errUnsupported(fmt.Sprintf("%T", q))
}

// union compiles UNION ALL.
func (c *compiler) union(q *ast.BinaryQueryExpression) (*queryPlan, error) {
	if q.BinaryQueryExpressionType != "Union" || !q.All || q.OrderByClause != nil {
		return nil, errUnsupported(q.BinaryQueryExpressionType + " but UNION ALL without ORDER BY")
	}
	a, err := c.query(q.FirstQueryExpression)
	if err != nil {
		return nil, err
	}
	b, err := c.query(q.SecondQueryExpression)
	if err != nil {
		return nil, err
	}
	if len(a.cols) != len(b.cols) {
		return nil, sqlError(205, "All queries combined using a UNION, INTERSECT or EXCEPT operator must have an equal number of expressions in their target lists.")
	}
	out := &queryPlan{refs: a.refs | b.refs, outer: append(a.outer, b.outer...)}
	for i, col := range a.cols {
		t := common(col.typ, b.cols[i].typ)
		for _, from := range []sqltype.Type{col.typ, b.cols[i].typ} {
			if err := checkImplicit(from, t); err != nil {
				return nil, err
			}
		}
		out.cols = append(out.cols, outCol{name: col.name, typ: t, nullable: col.nullable || b.cols[i].nullable})
	}
	out.rows = func(x *exec, emit func(Row) (bool, error)) (bool, error) {
		for _, p := range []*queryPlan{a, b} {
			more, err := p.rows(x, func(row Row) (bool, error) {
				same := make(Row, len(row))
				for i, v := range row {
					var err error
					if same[i], err = convert(v, p.cols[i].typ, out.cols[i].typ, 0); err != nil {
						return false, err
					}
				}
				return emit(same)
			})
			if err != nil || !more {
				return more, err
			}
		}
		return true, nil
	}
	return out, nil
}

// outputColumn finds the column of the select list that an element of ORDER BY names; -1 is none.
func outputColumn(e ast.ScalarExpression, cols []outCol) int {
	ref, ok := e.(*ast.ColumnReferenceExpression)
	if ok && ref.MultiPartIdentifier != nil && len(ref.MultiPartIdentifier.Identifiers) == 1 {
		for i, col := range cols {
			if equalFold(col.name, ref.MultiPartIdentifier.Identifiers[0].Value) {
				return i
			}
		}
	}
	return -1
}

// exists compiles EXISTS.
func (c *compiler) exists(q ast.QueryExpression) (*cond, error) {
	plan, err := c.query(q)
	if err != nil {
		return nil, err
	}
	run := plan.rows
	if plan.block != nil {
		// The columns are irrelevant.
		run = func(x *exec, emit func(Row) (bool, error)) (bool, error) {
			return plan.block.iterate(x, func() (bool, error) { return emit(nil) })
		}
	}
	return &cond{refs: plan.refs, cols: plan.outer, eval: func(x *exec) (tri, error) {
		found := false
		_, err := run(x, func(Row) (bool, error) {
			found = true
			return false, nil
		})
		return triOf(found), err
	}}, nil
}

func (c *compiler) scalarSubquery(q ast.QueryExpression) (*scalar, error) {
	plan, err := c.query(q)
	if err != nil {
		return nil, err
	}
	if len(plan.cols) != 1 {
		return nil, sqlError(116, "Only one expression can be specified in the select list when the subquery is not introduced with EXISTS.")
	}
	col := plan.cols[0]
	return &scalar{typ: col.typ, nullable: true, refs: plan.refs, cols: plan.outer, eval: func(x *exec) (sqltype.Value, error) {
		var out sqltype.Value
		n := 0
		_, err := plan.rows(x, func(row Row) (bool, error) {
			if n++; n > 1 {
				return false, sqlError(512, "Subquery returned more than 1 value. This is not permitted when the subquery follows =, !=, <, <= , >, >= or when the subquery is used as an expression.")
			}
			out = row[0]
			return true, nil
		})
		return out, err
	}}, nil
}
