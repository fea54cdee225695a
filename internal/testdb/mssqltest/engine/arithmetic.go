package engine

import (
	"math"
	"math/big"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

func (c *compiler) unary(e *ast.UnaryExpression) (*scalar, error) {
	a, err := c.scalar(e.Expression)
	if err != nil {
		return nil, err
	}
	switch e.UnaryExpressionType {
	case "Positive":
		return a, nil
	case "Negative":
		if isInteger(a.typ.Kind) {
			zero := constant(int64(0), a.typ)
			return arithmetic("Subtract", zero, a)
		}
		return arithmetic("Subtract", constant(new(big.Rat), sqltype.Type{Kind: sqltype.Decimal, Precision: 1}), a)
	case "BitwiseNot":
		return derive(a.typ, []*scalar{a}, func(x *exec) (sqltype.Value, error) {
			v, err := a.eval(x)
			if n, ok := v.(int64); ok {
				return ^n, err
			}
			return nil, err
		}), nil
	}
	return nil, errUnsupported(e.UnaryExpressionType)
}

func (c *compiler) arithmetic(e *ast.BinaryExpression) (*scalar, error) {
	a, err := c.scalar(e.FirstExpression)
	if err != nil {
		return nil, err
	}
	b, err := c.scalar(e.SecondExpression)
	if err != nil {
		return nil, err
	}
	return arithmetic(e.BinaryExpressionType, a, b)
}

// arithmetic compiles an operator of two operands: the one of lower precedence
// is converted first.
func arithmetic(op string, a, b *scalar) (*scalar, error) {
	t := common(a.typ, b.typ)
	if a.typ.Kind == sqltype.Invalid && b.typ.Kind == sqltype.Invalid {
		t = typeInt
	}
	switch {
	case isText(t.Kind) && (isBytes(a.typ.Kind) || isBytes(b.typ.Kind)):
		return nil, sqlError(402, "The data types %s and %s are incompatible in the %s operator.", kindName(a.typ.Kind), kindName(b.typ.Kind), strings.ToLower(op))
	case op == "Add" && isText(t.Kind) && t.Kind != sqltype.XML, op == "Add" && isBytes(t.Kind):
		return concat(t, a, b), nil
	case isTime(t.Kind) && (t.Kind == sqltype.DateTime || t.Kind == sqltype.SmallDateTime) && (op == "Add" || op == "Subtract"):
		return dateArithmetic(op, a, b)
	case isBytes(t.Kind) || isText(t.Kind) || isTime(t.Kind) || t.Kind == sqltype.UniqueIdentifier:
		return nil, sqlError(402, "The data types %s and %s are incompatible in the %s operator.", kindName(a.typ.Kind), kindName(b.typ.Kind), strings.ToLower(op))
	}
	switch t.Kind {
	case sqltype.Decimal:
		return decimalArithmetic(op, a, b)
	case sqltype.Float:
		return floatArithmetic(op, cast(a, typeFloat, 0), cast(b, typeFloat, 0))
	}
	if t.Kind == sqltype.Bit {
		t = typeInt
	}
	a, b = cast(a, t, 0), cast(b, t, 0)
	f := integerOps[op]
	if f == nil {
		return nil, errUnsupported(op)
	}
	return derive(t, []*scalar{a, b}, func(x *exec) (sqltype.Value, error) {
		va, err := a.eval(x)
		if err != nil {
			return nil, err
		}
		vb, err := b.eval(x)
		if err != nil || va == nil || vb == nil {
			return nil, err
		}
		n, ok := f(va.(int64), vb.(int64))
		switch {
		case !ok && vb.(int64) == 0 && (op == "Divide" || op == "Modulo"):
			return nil, errDivide()
		case !ok || !fitsInteger(n, t.Kind):
			return nil, errArithmetic(t)
		}
		return n, nil
	}), nil
}

var integerOps = map[string]func(a, b int64) (int64, bool){
	"Add": func(a, b int64) (int64, bool) { s := a + b; return s, (s > a) == (b > 0) },
	"Subtract": func(a, b int64) (int64, bool) {
		d := a - b
		return d, (d < a) == (b > 0)
	},
	"Multiply": func(a, b int64) (int64, bool) {
		if a == 0 || b == 0 {
			return 0, true
		}
		p := a * b
		return p, p/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
	},
	"Divide": func(a, b int64) (int64, bool) {
		if b == 0 || a == math.MinInt64 && b == -1 {
			return 0, false
		}
		return a / b, true
	},
	"Modulo": func(a, b int64) (int64, bool) {
		if b == 0 {
			return 0, false
		}
		if b == -1 {
			return 0, true
		}
		return a % b, true
	},
	"BitwiseAnd": func(a, b int64) (int64, bool) { return a & b, true },
	"BitwiseOr":  func(a, b int64) (int64, bool) { return a | b, true },
	"BitwiseXor": func(a, b int64) (int64, bool) { return a ^ b, true },
}

func concat(t sqltype.Type, a, b *scalar) *scalar {
	limit := 8000
	if isNational(t.Kind) {
		limit = 4000
	}
	t.Kind = map[sqltype.Kind]sqltype.Kind{sqltype.Char: sqltype.VarChar, sqltype.NChar: sqltype.NVarChar, sqltype.Binary: sqltype.VarBinary}[t.Kind]
	if t.Kind == sqltype.Invalid {
		t.Kind = common(a.typ, b.typ).Kind
	}
	switch {
	case a.typ.Size == sqltype.Max || b.typ.Size == sqltype.Max:
		t.Size = sqltype.Max
	default:
		t.Size = min(limit, max(1, a.typ.Size+b.typ.Size))
	}
	wide := t
	wide.Size = sqltype.Max
	a, b = cast(a, wide, 0), cast(b, wide, 0)
	return derive(t, []*scalar{a, b}, func(x *exec) (sqltype.Value, error) {
		va, err := a.eval(x)
		if err != nil {
			return nil, err
		}
		vb, err := b.eval(x)
		if err != nil || va == nil || vb == nil {
			return nil, err
		}
		var out sqltype.Value
		if s, ok := va.(string); ok {
			out = s + vb.(string)
		} else {
			out = append(append([]byte(nil), va.([]byte)...), vb.([]byte)...)
		}
		return convert(out, wide, t, 0)
	})
}

func floatArithmetic(op string, a, b *scalar) (*scalar, error) {
	return derive(typeFloat, []*scalar{a, b}, func(x *exec) (sqltype.Value, error) {
		va, err := a.eval(x)
		if err != nil {
			return nil, err
		}
		vb, err := b.eval(x)
		if err != nil || va == nil || vb == nil {
			return nil, err
		}
		f, g := va.(float64), vb.(float64)
		switch op {
		case "Add":
			return f + g, nil
		case "Subtract":
			return f - g, nil
		case "Multiply":
			return f * g, nil
		case "Divide":
			if g == 0 {
				return nil, errDivide()
			}
			return f / g, nil
		}
		return nil, errUnsupported(op)
	}), nil
}

// decimalArithmetic follows the documentation's table of precision and scale.
func decimalArithmetic(op string, a, b *scalar) (*scalar, error) {
	ta, tb := decimalOf(a.typ), decimalOf(b.typ)
	p1, s1, p2, s2 := int(ta.Precision), int(ta.Scale), int(tb.Precision), int(tb.Scale)
	var p, s int
	switch op {
	case "Add", "Subtract":
		s = max(s1, s2)
		p = s + max(p1-s1, p2-s2) + 1
	case "Multiply":
		p, s = p1+p2+1, s1+s2
	case "Divide":
		s = max(6, s1+p2+1)
		p = p1 - s1 + s2 + s
	case "Modulo":
		s = max(s1, s2)
		p = min(p1-s1, p2-s2) + s
	default:
		return nil, errUnsupported(op)
	}
	if p > 38 {
		whole := p - s
		s = max(min(s, 38-whole), min(s, 6))
		p = 38
	}
	t := sqltype.Type{Kind: sqltype.Decimal, Precision: uint8(p), Scale: uint8(s)}
	a, b = cast(a, ta, 0), cast(b, tb, 0)
	return derive(t, []*scalar{a, b}, func(x *exec) (sqltype.Value, error) {
		va, err := a.eval(x)
		if err != nil {
			return nil, err
		}
		vb, err := b.eval(x)
		if err != nil || va == nil || vb == nil {
			return nil, err
		}
		ra, rb, r := va.(*big.Rat), vb.(*big.Rat), new(big.Rat)
		switch op {
		case "Add":
			r.Add(ra, rb)
		case "Subtract":
			r.Sub(ra, rb)
		case "Multiply":
			r.Mul(ra, rb)
		default:
			if rb.Sign() == 0 {
				return nil, errDivide()
			}
			r.Quo(ra, rb)
			if op == "Modulo" {
				q := new(big.Int).Quo(r.Num(), r.Denom())
				r.Sub(ra, new(big.Rat).Mul(rb, new(big.Rat).SetInt(q)))
			}
		}
		return roundDecimal(r, t)
	}), nil
}

func decimalOf(t sqltype.Type) sqltype.Type {
	switch {
	case t.Kind == sqltype.Decimal:
		return t
	case isInteger(t.Kind):
		return sqltype.Type{Kind: sqltype.Decimal, Precision: uint8(integerDigits(t.Kind))}
	}
	return sqltype.Type{Kind: sqltype.Decimal, Precision: 38, Scale: 10}
}
