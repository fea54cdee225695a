package engine

import (
	"encoding/hex"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// scalar compiles an expression.
func (c *compiler) scalar(e ast.ScalarExpression) (*scalar, error) {
	sc, err := c.expression(e)
	return sc, locatedAt(err, e)
}

func (c *compiler) expression(e ast.ScalarExpression) (*scalar, error) {
	if c.agg != nil {
		if sc, done, err := c.agg.lookup(c, e); done || err != nil {
			return sc, err
		}
	}
	switch e := e.(type) {
	case *ast.IntegerLiteral:
		return integerLiteral(e.Value)
	case *ast.NumericLiteral:
		return numericLiteral(e.Value)
	case *ast.StringLiteral:
		k := sqltype.VarChar
		if e.IsNational {
			k = sqltype.NVarChar
		}
		text := inCodePage(e.Value, k)
		t := sqltype.Type{Kind: k, Size: max(1, units(text, k))}
		if t.Size > 8000 || isNational(k) && t.Size > 4000 {
			t.Size = sqltype.Max
		}
		return constant(text, t), nil
	case *ast.BinaryLiteral:
		digits := e.Value[2:]
		if len(digits)%2 == 1 {
			digits = "0" + digits
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			return nil, errSyntaxNear(e.Value)
		}
		return constant(b, sqltype.Type{Kind: sqltype.VarBinary, Size: max(1, len(b))}), nil
	case *ast.NullLiteral:
		return constant(nil, sqltype.Type{}), nil
	case *ast.ParenthesisExpression:
		return c.scalar(e.Expression)
	case *ast.VariableReference:
		return c.variable(e.Name)
	case *ast.GlobalVariableExpression:
		return globalVariable(e.Name)
	case *ast.ColumnReferenceExpression:
		return c.column(e)
	case *ast.UnaryExpression:
		return c.unary(e)
	case *ast.BinaryExpression:
		return c.arithmetic(e)
	case *ast.CastCall:
		return c.conversion(e.DataType, e.Parameter, nil)
	case *ast.ConvertCall:
		return c.conversion(e.DataType, e.Parameter, e.Style)
	case *ast.FunctionCall:
		return c.call(strings.ToUpper(e.FunctionName.Value), e.Parameters, e)
	case *ast.LeftFunctionCall:
		if len(e.Parameters) != 2 {
			return nil, sqlError(174, "The left function requires 2 argument(s).")
		}
		return c.call("SUBSTRING", []ast.ScalarExpression{e.Parameters[0], &ast.IntegerLiteral{Value: "1"}, e.Parameters[1]}, nil)
	case *ast.SearchedCaseExpression:
		return c.choice(e.WhenClauses, e.ElseExpression)
	case *ast.CoalesceExpression:
		last := len(e.Expressions) - 1
		whens := make([]*ast.SearchedWhenClause, last)
		for i, x := range e.Expressions[:last] {
			whens[i] = when(&ast.BooleanIsNullExpression{IsNot: true, Expression: x}, x)
		}
		return c.choice(whens, e.Expressions[last])
	case *ast.NullIfExpression:
		same := &ast.BooleanComparisonExpression{ComparisonType: "Equals", FirstExpression: e.FirstExpression, SecondExpression: e.SecondExpression}
		return c.choice([]*ast.SearchedWhenClause{when(same, &ast.NullLiteral{})}, e.FirstExpression)
	case *ast.IIfCall:
		return c.choice([]*ast.SearchedWhenClause{when(e.Predicate, e.ThenExpression)}, e.ElseExpression)
	case *ast.NextValueForExpression:
		return c.nextValue(e)
	case *ast.ScalarSubquery:
		return c.scalarSubquery(e.QueryExpression)
	}
	return nil, errUnsupportedAt(e)
}

func when(is ast.BooleanExpression, then ast.ScalarExpression) *ast.SearchedWhenClause {
	return &ast.SearchedWhenClause{WhenExpression: is, ThenExpression: then}
}

func integerLiteral(s string) (*scalar, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n <= math.MaxInt32 {
		return constant(n, typeInt), nil
	}
	return numericLiteral(s)
}

func numericLiteral(s string) (*scalar, error) {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, errSyntaxNear(s)
	}
	whole, frac, _ := strings.Cut(s, ".")
	t := sqltype.Type{Kind: sqltype.Decimal, Scale: uint8(len(frac))}
	t.Precision = uint8(max(1, len(strings.TrimLeft(whole, "0"))+len(frac)))
	return constant(r, t), nil
}

func (c *compiler) variable(name string) (*scalar, error) {
	v := c.batch.variable(name)
	if v == nil {
		return nil, errUndeclared(name)
	}
	if v.table != nil {
		return nil, errUndeclared(name)
	}
	at := v.at
	return &scalar{typ: v.typ, nullable: true, eval: func(x *exec) (sqltype.Value, error) { return x.f.vars[at], nil }}, nil
}

func (c *compiler) column(e *ast.ColumnReferenceExpression) (*scalar, error) {
	if e.MultiPartIdentifier == nil {
		return nil, errUnsupported(e.ColumnType)
	}
	sc, err := c.scope.resolve(e.MultiPartIdentifier.Identifiers)
	if err != nil {
		return nil, err
	}
	c.used(sc)
	if e.Collation != nil {
		return nil, errUnsupported("COLLATE")
	}
	return sc, nil
}

// used notes which columns of its tables a statement needs: an index that has all of them needs no look-up of the row.
func (c *compiler) used(sc *scalar) {
	for _, u := range sc.cols {
		for _, b := range c.uses {
			if b.slot == u.slot {
				b.need[u.col] = true
			}
		}
	}
}

func (c *compiler) conversion(ref ast.DataTypeReference, param, styleOf ast.ScalarExpression) (*scalar, error) {
	to, err := typeOf(ref, 30)
	if err != nil {
		return nil, err
	}
	a, err := c.scalar(param)
	if err != nil {
		return nil, err
	}
	if _, explicit := convertible(a.typ, to); !explicit {
		return nil, errExplicit(a.typ, to)
	}
	style := 0
	if styleOf != nil {
		s, err := c.scalar(styleOf)
		if err != nil {
			return nil, err
		}
		v, err := s.eval(&exec{})
		if err != nil {
			return nil, err
		}
		if n, ok := v.(int64); ok {
			style = int(n)
		}
	}
	return cast(a, to, style), nil
}

func (c *compiler) scalars(list []ast.ScalarExpression) ([]*scalar, error) {
	out := make([]*scalar, len(list))
	for i, e := range list {
		var err error
		if out[i], err = c.scalar(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// unify converts expressions to their common type.
func unify(list []*scalar) ([]*scalar, sqltype.Type, error) {
	var t sqltype.Type
	for _, s := range list {
		t = common(t, s.typ)
	}
	if t.Kind == sqltype.Invalid {
		t = typeInt
	}
	out := make([]*scalar, len(list))
	for i, s := range list {
		var err error
		if out[i], err = castImplicit(s, t); err != nil {
			return nil, t, err
		}
	}
	return out, t, nil
}

// choice compiles CASE.
func (c *compiler) choice(whens []*ast.SearchedWhenClause, otherwise ast.ScalarExpression) (*scalar, error) {
	conds := make([]*cond, len(whens))
	results := make([]*scalar, 0, len(whens)+1)
	all := []*scalar{}
	for i, w := range whens {
		var err error
		if conds[i], err = c.cond(w.WhenExpression); err != nil {
			return nil, err
		}
		all = append(all, &scalar{refs: conds[i].refs, cols: conds[i].cols})
		r, err := c.scalar(w.ThenExpression)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	last := constant(nil, sqltype.Type{})
	if otherwise != nil {
		var err error
		if last, err = c.scalar(otherwise); err != nil {
			return nil, err
		}
	}
	results, t, err := unify(append(results, last))
	if err != nil {
		return nil, err
	}
	return derive(t, append(all, results...), func(x *exec) (sqltype.Value, error) {
		for i, w := range conds {
			is, err := w.eval(x)
			if err != nil {
				return nil, err
			}
			if is == isTrue {
				return results[i].eval(x)
			}
		}
		return results[len(results)-1].eval(x)
	}), nil
}
