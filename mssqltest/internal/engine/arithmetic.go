package engine

import (
	"math"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func (c *compiler) unary(e *ast.UnaryExpression) (*scalar, error) {
	a, err := c.scalar(e.Expression)
	if err != nil {
		return nil, err
	}
	if e.UnaryExpressionType != "Negative" {
		return nil, errUnsupported(e.UnaryExpressionType)
	}
	return arithmetic("Subtract", constant(int64(0), a.typ), a)
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

// arithmetic compiles an operator with two operands: the operand of lower precedence is converted first.
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
	case isBytes(t.Kind) || isText(t.Kind) || isTime(t.Kind) || t.Kind == sqltype.UniqueIdentifier:
		return nil, sqlError(402, "The data types %s and %s are incompatible in the %s operator.", kindName(a.typ.Kind), kindName(b.typ.Kind), strings.ToLower(op))
	}
	if !isInteger(t.Kind) {
		return nil, errUnsupported(op + " of " + kindName(t.Kind))
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
	"BitwiseXor": func(a, b int64) (int64, bool) { return a ^ b, true },
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
