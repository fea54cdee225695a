package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// compareValues orders two values of one type, neither of them NULL.
func compareValues(a, b sqltype.Value) int {
	switch a := a.(type) {
	case int64:
		return cmp.Compare(a, b.(int64))
	case []byte:
		return bytes.Compare(withoutZeros(a), withoutZeros(b.([]byte)))
	case string:
		return compareText(a, b.(string))
	case time.Time:
		return a.Compare(b.(time.Time))
	case sqltype.GUID:
		x, y := guidOrder(a), guidOrder(b.(sqltype.GUID))
		return bytes.Compare(x[:], y[:])
	}
	panic(fmt.Sprintf("engine: no order for %T", a))
}

// isOrdered reports whether the emulator compares and sorts values of a kind, and allows them in keys of indexes.
func isOrdered(k sqltype.Kind) bool {
	return k != sqltype.Bit && k != sqltype.Float && k != sqltype.Decimal
}

// operands converts two operands to the type in which they are compared.
func operands(a, b *scalar) (*scalar, *scalar, error) {
	t := common(a.typ, b.typ)
	if t.Kind == sqltype.XML {
		return nil, nil, sqlError(305, "The XML data type cannot be compared or sorted, except when using the IS NULL operator.")
	}
	if !isOrdered(t.Kind) {
		return nil, nil, errUnsupported("comparison of " + kindName(t.Kind))
	}
	for _, s := range []**scalar{&a, &b} {
		if sameClass((*s).typ.Kind, t.Kind) {
			continue
		}
		if implicit, _ := convertible((*s).typ, t); !implicit {
			return nil, nil, errClash(b.typ, a.typ)
		}
		to := t
		if isText(to.Kind) || isBytes(to.Kind) {
			to.Size = sqltype.Max
		}
		*s = cast(*s, to, 0)
	}
	return a, b, nil
}

// sameClass reports whether values of two kinds are compared without conversion.
func sameClass(a, b sqltype.Kind) bool {
	switch {
	case a == b, a == sqltype.Invalid:
		return true
	case a == sqltype.Bit || b == sqltype.Bit:
		return false
	case isInteger(a) && isInteger(b), isText(a) && isText(b), isBytes(a) && isBytes(b):
		return true
	}
	return isTime(a) && isTime(b) && a != sqltype.Time && b != sqltype.Time
}

func both(a, b *scalar) *cond {
	return &cond{refs: a.refs | b.refs, cols: append(append([]colUse(nil), a.cols...), b.cols...)}
}

var comparisons = map[string]string{
	"Equals": "=", "LessThan": "<", "GreaterThan": ">", "LessThanOrEqualTo": "<=", "GreaterThanOrEqualTo": ">=",
	"NotEqualToBrackets": "<>", "NotEqualToExclamation": "<>", "NotLessThan": ">=", "NotGreaterThan": "<=",
}

var mirrored = map[string]string{"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}

func (c *compiler) comparison(kind string, l, r ast.ScalarExpression) (*cond, error) {
	op, ok := comparisons[kind]
	if !ok {
		return nil, errUnsupported(kind)
	}
	a, err := c.scalar(l)
	if err != nil {
		return nil, err
	}
	b, err := c.scalar(r)
	if err != nil {
		return nil, err
	}
	return compareCond(op, a, b)
}

func compareCond(op string, a, b *scalar) (*cond, error) {
	ca, cb, err := operands(a, b)
	if err != nil {
		return nil, err
	}
	out := both(a, b)
	if m := mirrored[op]; m != "" {
		if a.col != nil && !b.refs.has(a.col.slot) {
			out.args = append(out.args, sarg{col: *a.col, op: op, val: b})
		}
		if b.col != nil && !a.refs.has(b.col.slot) {
			out.args = append(out.args, sarg{col: *b.col, op: m, val: a})
		}
	}
	out.eval = func(x *exec) (tri, error) {
		va, err := ca.eval(x)
		if err != nil {
			return isUnknown, err
		}
		vb, err := cb.eval(x)
		if err != nil || va == nil || vb == nil {
			return isUnknown, err
		}
		n := compareValues(va, vb)
		switch op {
		case "=":
			return triOf(n == 0), nil
		case "<":
			return triOf(n < 0), nil
		case ">":
			return triOf(n > 0), nil
		case "<=":
			return triOf(n <= 0), nil
		case ">=":
			return triOf(n >= 0), nil
		}
		return triOf(n != 0), nil
	}
	return out, nil
}

// cond compiles a predicate.
func (c *compiler) cond(e ast.BooleanExpression) (*cond, error) {
	switch e := e.(type) {
	case *ast.BooleanParenthesisExpression:
		return c.cond(e.Expression)
	case *ast.BooleanComparisonExpression:
		return c.comparison(e.ComparisonType, e.FirstExpression, e.SecondExpression)
	case *ast.BooleanBinaryExpression:
		return c.logical(e)
	case *ast.BooleanNotExpression:
		in, err := c.cond(e.Expression)
		if err != nil {
			return nil, err
		}
		return not(in), nil
	case *ast.BooleanIsNullExpression:
		return c.isNull(e)
	case *ast.BooleanInExpression:
		return c.in(e)
	case *ast.ExistsPredicate:
		return c.exists(e.Subquery)
	case *ast.BooleanLikeExpression:
		return c.like(e)
	}
	return nil, errUnsupported(fmt.Sprintf("%T", e))
}

func not(in *cond) *cond {
	return &cond{refs: in.refs, cols: in.cols, eval: func(x *exec) (tri, error) {
		v, err := in.eval(x)
		switch v {
		case isTrue:
			v = isFalse
		case isFalse:
			v = isTrue
		}
		return v, err
	}}
}

func (c *compiler) logical(e *ast.BooleanBinaryExpression) (*cond, error) {
	a, err := c.cond(e.FirstExpression)
	if err != nil {
		return nil, err
	}
	b, err := c.cond(e.SecondExpression)
	if err != nil {
		return nil, err
	}
	out := &cond{refs: a.refs | b.refs, cols: append(append([]colUse(nil), a.cols...), b.cols...)}
	decides, otherwise := isFalse, isTrue
	if strings.EqualFold(e.BinaryExpressionType, "Or") {
		decides, otherwise = isTrue, isFalse
	}
	out.eval = func(x *exec) (tri, error) {
		va, err := a.eval(x)
		if err != nil || va == decides {
			return va, err
		}
		vb, err := b.eval(x)
		if err != nil || vb == decides {
			return vb, err
		}
		if va == isUnknown || vb == isUnknown {
			return isUnknown, nil
		}
		return otherwise, nil
	}
	return out, nil
}

func (c *compiler) isNull(e *ast.BooleanIsNullExpression) (*cond, error) {
	a, err := c.scalar(e.Expression)
	if err != nil {
		return nil, err
	}
	want := !e.IsNot
	out := &cond{refs: a.refs, cols: a.cols, eval: func(x *exec) (tri, error) {
		v, err := a.eval(x)
		return triOf((v == nil) == want), err
	}}
	if a.col != nil {
		if want {
			out.args = []sarg{{col: *a.col, op: "null"}}
		} else {
			out.args = []sarg{{col: *a.col, op: "notnull"}}
		}
	}
	return out, nil
}

// like compiles LIKE of a text in a binary collation with a literal. Other collations compare letters in ways that the emulator does not
// support.
func (c *compiler) like(e *ast.BooleanLikeExpression) (*cond, error) {
	text, converts := e.FirstExpression.(*ast.ConvertCall)
	pattern, literal := e.SecondExpression.(*ast.StringLiteral)
	if !converts || !literal || e.EscapeExpression != nil || text.Collation == nil || !strings.HasSuffix(strings.ToUpper(text.Collation.Value), "_BIN2") {
		return nil, errUnsupported("LIKE, except CONVERT (…) COLLATE …_BIN2 LIKE and a literal,")
	}
	a, err := c.scalar(text)
	if err != nil {
		return nil, err
	}
	matches, err := regexp.Compile(likeExpression(pattern.Value))
	if err != nil {
		return nil, errUnsupported("LIKE " + pattern.Value)
	}
	out := &cond{refs: a.refs, cols: a.cols, eval: func(x *exec) (tri, error) {
		v, err := a.eval(x)
		if err != nil || v == nil {
			return isUnknown, err
		}
		return triOf(matches.MatchString(v.(string))), nil
	}}
	if e.NotDefined {
		return not(out), nil
	}
	return out, nil
}

// likeExpression returns a pattern of LIKE as a regular expression.
func likeExpression(pattern string) string {
	var b strings.Builder
	b.WriteString(`(?s)^`)
	for i := 0; i < len(pattern); i++ {
		set := strings.IndexByte(pattern[i:], ']')
		switch {
		case pattern[i] == '%':
			b.WriteString(`.*`)
		case pattern[i] == '_':
			b.WriteString(`.`)
		case pattern[i] == '[' && set > 0: // a set of characters and ranges, as in Go
			b.WriteString(strings.ReplaceAll(pattern[i:i+set+1], `\`, `\\`))
			i += set
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	return b.String() + `$`
}

// in compiles IN with a list.
func (c *compiler) in(e *ast.BooleanInExpression) (*cond, error) {
	if e.Subquery != nil {
		return nil, errUnsupported("IN (SELECT …)")
	}
	a, err := c.scalar(e.Expression)
	if err != nil {
		return nil, err
	}
	list, err := c.scalars(e.Values)
	if err != nil {
		return nil, err
	}
	out := &cond{refs: a.refs, cols: a.cols}
	conds := make([]*cond, len(list))
	free := a.col != nil
	for i, v := range list {
		if conds[i], err = compareCond("=", a, v); err != nil {
			return nil, err
		}
		out.refs |= v.refs
		out.cols = append(append([]colUse(nil), out.cols...), v.cols...)
		free = free && !v.refs.has(a.col.slot)
	}
	if free {
		out.args = []sarg{{col: *a.col, op: "in", list: list}}
	}
	out.eval = func(x *exec) (tri, error) {
		result := isFalse
		for _, k := range conds {
			v, err := k.eval(x)
			if err != nil || v == isTrue {
				return v, err
			}
			if v == isUnknown {
				result = isUnknown
			}
		}
		return result, nil
	}
	if e.NotDefined {
		return not(out), nil
	}
	return out, nil
}
