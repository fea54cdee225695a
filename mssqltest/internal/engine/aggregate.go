package engine

import (
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

var aggregates = map[string]bool{"COUNT": true, "COUNT_BIG": true, "MIN": true, "MAX": true}

// aggregation is a SELECT of aggregates while its select list is compiled: they are columns of a separate slot. GROUP
// BY is not supported: all rows are one group.
type aggregation struct {
	slot  int
	inner slotSet
	calls []aggregateCall
}

// aggregateCall is one aggregate function.
type aggregateCall struct {
	name string
	arg  *scalar // nil for COUNT(*)
	typ  sqltype.Type
}

// lookup compiles the special parts of such a SELECT: aggregates, and columns, which may only belong to the queries
// around it.
func (a *aggregation) lookup(c *compiler, e ast.ScalarExpression) (*scalar, bool, error) {
	switch e := e.(type) {
	case *ast.FunctionCall:
		name := strings.ToUpper(e.FunctionName.Value)
		if !aggregates[name] || e.OverClause != nil {
			return nil, false, nil
		}
		if e.UniqueRowFilter == "Distinct" {
			return nil, true, errUnsupported(name + " DISTINCT")
		}
		sc, err := a.call(c, name, e.Parameters)
		return sc, true, err
	case *ast.ColumnReferenceExpression:
		sc, err := c.column(e)
		if err == nil && sc.refs&a.inner != 0 {
			err = sqlError(8120, "Column '%s' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.", sc.name)
		}
		return sc, true, err
	}
	return nil, false, nil
}

func (a *aggregation) call(c *compiler, name string, params []ast.ScalarExpression) (*scalar, error) {
	if len(params) != 1 {
		return nil, sqlError(174, "The %s function requires 1 argument(s).", name)
	}
	call := aggregateCall{name: name}
	if col, ok := params[0].(*ast.ColumnReferenceExpression); !ok || col.ColumnType != "Wildcard" {
		was := c.agg
		c.agg = nil
		arg, err := c.scalar(params[0])
		c.agg = was
		if err != nil {
			return nil, err
		}
		call.arg = arg
	}
	switch name {
	case "COUNT":
		call.typ = typeInt
	case "COUNT_BIG":
		call.typ = typeBigInt
	default:
		call.typ = call.arg.typ
		if !isOrdered(call.typ.Kind) {
			return nil, errUnsupported(name + " of " + kindName(call.typ.Kind))
		}
	}
	a.calls = append(a.calls, call)
	return columnOf(a.slot, len(a.calls)-1, call.typ, true, ""), nil
}

// aggregate compiles the rest of a SELECT of aggregates.
func (c *compiler) aggregate(b *block, spec *ast.QuerySpecification) error {
	slot, err := c.newSlot()
	if err != nil {
		return err
	}
	agg := &aggregation{slot: slot, inner: b.from.slots()}
	c.agg = agg
	if err := c.selectList(b, spec.SelectElements); err != nil {
		return err
	}
	if err := c.limits(b, spec); err != nil {
		return err
	}
	c.agg = nil
	run, _, err := c.join(b.from, nil, nil)
	if err != nil {
		return err
	}
	for _, k := range agg.calls {
		if k.arg != nil {
			b.refs |= k.arg.refs
			b.colUses = append(b.colUses, k.arg.cols...)
		}
	}
	b.note()
	b.slots = 1 << slot
	b.refs &^= b.slots
	b.run = agg.iterate(run)
	return nil
}

// iterate yields one row, even if there are no rows.
func (a *aggregation) iterate(run iter) iter {
	return func(x *exec, yield func() (bool, error)) (bool, error) {
		counts := make([]int64, len(a.calls))
		best := make(Row, len(a.calls))
		if _, err := run(x, func() (bool, error) {
			for i := range a.calls {
				k := &a.calls[i]
				if k.arg == nil {
					counts[i]++
					continue
				}
				v, err := k.arg.eval(x)
				if err != nil {
					return false, err
				}
				if v == nil {
					continue
				}
				counts[i]++
				if best[i] == nil {
					best[i] = v
				} else if n := compareValues(v, best[i]); k.name == "MIN" && n < 0 || k.name == "MAX" && n > 0 {
					best[i] = v
				}
			}
			return true, nil
		}); err != nil {
			return false, err
		}
		row := make(Row, len(a.calls))
		for i, k := range a.calls {
			row[i] = best[i]
			if k.name == "COUNT" || k.name == "COUNT_BIG" {
				row[i] = counts[i]
			}
			if k.name == "COUNT" && !fitsInteger(counts[i], sqltype.Int) {
				return false, errArithmetic(typeInt)
			}
		}
		x.slots[a.slot].row = row
		return yield()
	}
}
