package engine

import (
	"math/big"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

var aggregates = map[string]bool{"COUNT": true, "COUNT_BIG": true, "SUM": true, "MIN": true, "MAX": true, "AVG": true}

// aggregation is the GROUP BY of one SELECT while what comes after it is
// compiled: columns of groups and aggregates are columns of a slot of its own.
type aggregation struct {
	slot   int
	inner  slotSet
	groups []*scalar
	calls  []aggregateCall
}

// aggregateCall is one aggregate function.
type aggregateCall struct {
	name     string
	arg      *scalar // nil for COUNT(*)
	distinct bool
	typ      sqltype.Type
}

// lookup compiles what is special after GROUP BY: aggregates and the columns of
// groups.
func (a *aggregation) lookup(c *compiler, e ast.ScalarExpression) (*scalar, bool, error) {
	switch e := e.(type) {
	case *ast.FunctionCall:
		name := strings.ToUpper(e.FunctionName.Value)
		if !aggregates[name] || e.OverClause != nil {
			return nil, false, nil
		}
		call := aggregateCall{name: name, distinct: e.UniqueRowFilter == "Distinct"}
		if len(e.Parameters) != 1 {
			return nil, true, sqlError(174, "The %s function requires 1 argument(s).", name)
		}
		if col, ok := e.Parameters[0].(*ast.ColumnReferenceExpression); !ok || col.ColumnType != "Wildcard" {
			was := c.agg
			c.agg = nil
			arg, err := c.scalar(e.Parameters[0])
			c.agg = was
			if err != nil {
				return nil, true, err
			}
			call.arg = arg
		}
		if err := call.setType(); err != nil {
			return nil, true, err
		}
		a.calls = append(a.calls, call)
		coll := caseInsensitive
		if call.arg != nil {
			coll = call.arg.coll
		}
		return columnOf(a.slot, len(a.groups)+len(a.calls)-1, call.typ, coll, true, ""), true, nil
	case *ast.ColumnReferenceExpression:
		sc, err := c.column(e)
		if err != nil {
			return nil, true, err
		}
		if sc.refs&a.inner == 0 {
			return sc, true, nil
		}
		for i, g := range a.groups {
			if g.col != nil && sc.col != nil && *g.col == *sc.col {
				return columnOf(a.slot, i, g.typ, g.coll, g.nullable, g.name), true, nil
			}
		}
		return nil, true, sqlError(8120, "Column '%s' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.", sc.name)
	}
	return nil, false, nil
}

func (k *aggregateCall) setType() error {
	switch k.name {
	case "COUNT":
		k.typ = typeInt
	case "COUNT_BIG":
		k.typ = typeBigInt
	case "MIN", "MAX":
		k.typ = k.arg.typ
	default:
		switch t := k.arg.typ; {
		case t.Kind == sqltype.BigInt, t.Kind == sqltype.Float:
			k.typ = t
		case isInteger(t.Kind) && t.Kind != sqltype.Bit:
			k.typ = typeInt
		case t.Kind == sqltype.Decimal:
			k.typ = sqltype.Type{Kind: sqltype.Decimal, Precision: 38, Scale: t.Scale}
		default:
			return sqlError(8117, "Operand data type %s is invalid for %s operator.", kindName(t.Kind), strings.ToLower(k.name))
		}
	}
	return nil
}

// aggregate compiles the rest of a SELECT that groups.
func (c *compiler) aggregate(b *block, spec *ast.QuerySpecification) error {
	slot, err := c.newSlot()
	if err != nil {
		return err
	}
	agg := &aggregation{slot: slot, inner: b.from.slots()}
	if spec.GroupByClause != nil {
		for _, g := range spec.GroupByClause.GroupingSpecifications {
			e, ok := g.(*ast.ExpressionGroupingSpecification)
			if !ok {
				return errUnsupported("GROUP BY of sets")
			}
			sc, err := c.scalar(e.Expression)
			if err != nil {
				return err
			}
			agg.groups = append(agg.groups, sc)
		}
	}
	c.agg = agg
	if err := c.selectList(b, spec.SelectElements); err != nil {
		return err
	}
	var having []*cond
	if spec.HavingClause != nil {
		if having, err = c.conjuncts(spec.HavingClause.SearchCondition); err != nil {
			return err
		}
	}
	if err := c.limits(b, spec); err != nil {
		return err
	}
	c.agg = nil
	run, _, err := c.join(b.from, nil, nil)
	if err != nil {
		return err
	}
	for _, g := range agg.groups {
		b.refs |= g.refs
		b.colUses = append(b.colUses, g.cols...)
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
	b.run = filtered(agg.iterate(run, len(spec.SelectElements) > 0 && spec.GroupByClause == nil), having)
	return nil
}

// iterate gathers the groups, in the order of their first rows. Without GROUP
// BY there is one group even of no rows.
func (a *aggregation) iterate(run iter, one bool) iter {
	return func(x *exec, yield func() (bool, error)) (bool, error) {
		index := map[string]*group{}
		var all []*group
		start := func(keys []sqltype.Value) *group {
			g := &group{keys: keys, state: make([]accumulator, len(a.calls))}
			all = append(all, g)
			return g
		}
		if one {
			index[""] = start(nil)
		}
		if _, err := run(x, func() (bool, error) {
			keys := make([]sqltype.Value, len(a.groups))
			var id []byte
			for i, g := range a.groups {
				var err error
				if keys[i], err = g.eval(x); err != nil {
					return false, err
				}
				id = appendKey(id, keys[i], g.coll, false)
			}
			g := index[string(id)]
			if g == nil {
				g = start(keys)
				index[string(id)] = g
			}
			for i := range a.calls {
				if err := g.state[i].add(x, &a.calls[i]); err != nil {
					return false, err
				}
			}
			return true, nil
		}); err != nil {
			return false, err
		}
		for _, g := range all {
			row := append(make(Row, 0, len(a.groups)+len(a.calls)), g.keys...)
			for i := range a.calls {
				v, err := g.state[i].result(&a.calls[i])
				if err != nil {
					return false, err
				}
				row = append(row, v)
			}
			x.slots[a.slot].row = row
			if more, err := yield(); err != nil || !more {
				return more, err
			}
		}
		return true, nil
	}
}

type group struct {
	keys  []sqltype.Value
	state []accumulator
}

// accumulator is one aggregate of one group.
type accumulator struct {
	count int64
	sum   *big.Rat
	float float64
	best  sqltype.Value
	seen  map[string]bool
}

func (s *accumulator) add(x *exec, k *aggregateCall) error {
	if k.arg == nil {
		s.count++
		return nil
	}
	v, err := k.arg.eval(x)
	if err != nil || v == nil {
		return err
	}
	if k.distinct {
		id := string(appendKey(nil, v, k.arg.coll, false))
		if s.seen[id] {
			return nil
		}
		if s.seen == nil {
			s.seen = map[string]bool{}
		}
		s.seen[id] = true
	}
	s.count++
	switch k.name {
	case "MIN", "MAX":
		if s.best == nil {
			s.best = v
		} else if n := compareValues(v, s.best, k.arg.coll); k.name == "MIN" && n < 0 || k.name == "MAX" && n > 0 {
			s.best = v
		}
	case "SUM", "AVG":
		if f, ok := v.(float64); ok {
			s.float += f
			return nil
		}
		r, err := toDecimal(v, sqltype.Type{Kind: sqltype.Decimal, Precision: 38, Scale: k.arg.typ.Scale})
		if err != nil {
			return err
		}
		if s.sum == nil {
			s.sum = new(big.Rat)
		}
		s.sum.Add(s.sum, r.(*big.Rat))
	}
	return nil
}

func (s *accumulator) result(k *aggregateCall) (sqltype.Value, error) {
	switch k.name {
	case "COUNT":
		if !fitsInteger(s.count, sqltype.Int) {
			return nil, errArithmetic(typeInt)
		}
		return s.count, nil
	case "COUNT_BIG":
		return s.count, nil
	case "MIN", "MAX":
		return s.best, nil
	}
	if s.count == 0 {
		return nil, nil
	}
	if k.typ.Kind == sqltype.Float {
		if k.name == "AVG" {
			return s.float / float64(s.count), nil
		}
		return s.float, nil
	}
	sum := s.sum
	if k.name == "AVG" {
		sum = new(big.Rat).Quo(sum, new(big.Rat).SetInt64(s.count))
	}
	return convert(sum, sqltype.Type{Kind: sqltype.Decimal, Precision: 38, Scale: k.typ.Scale}, k.typ, 0)
}
