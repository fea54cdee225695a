package engine

import (
	"strings"
	"time"
	"unicode/utf16"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

func textFunc(t sqltype.Type, f func(string) sqltype.Value) func(*compiler, []*scalar) (*scalar, error) {
	return func(_ *compiler, args []*scalar) (*scalar, error) {
		out := t
		if out.Kind == sqltype.Invalid {
			out = textType(args[0].typ)
		}
		return strict(out, []*scalar{cast(args[0], typeText, 0)}, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
			return f(v[0].(string)), nil
		}), nil
	}
}

// textType is the type of a string function's result: without padding.
func textType(t sqltype.Type) sqltype.Type {
	switch t.Kind {
	case sqltype.Char:
		t.Kind = sqltype.VarChar
	case sqltype.NChar:
		t.Kind = sqltype.NVarChar
	case sqltype.VarChar, sqltype.NVarChar:
	default:
		return sqltype.Type{Kind: sqltype.VarChar, Size: 8000}
	}
	return t
}

func substring(_ *compiler, args []*scalar) (*scalar, error) {
	start, length := cast(args[1], typeBigInt, 0), cast(args[2], typeBigInt, 0)
	cut := func(v []sqltype.Value, n int) (from, to int, err error) {
		if v[2].(int64) < 0 {
			return 0, 0, sqlError(537, "Invalid length parameter passed to the LEFT or SUBSTRING function.")
		}
		first, last := v[1].(int64)-1, v[1].(int64)-1+v[2].(int64)
		return int(min(max(first, 0), int64(n))), int(min(max(last, 0), int64(n))), nil
	}
	t := args[0].typ
	if isBytes(t.Kind) {
		t.Kind = sqltype.VarBinary
		return strict(t, []*scalar{args[0], start, length}, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
			b := v[0].([]byte)
			from, to, err := cut(v, len(b))
			if err != nil {
				return nil, err
			}
			return b[from:max(from, to)], nil
		}), nil
	}
	return strict(textType(t), []*scalar{cast(args[0], typeText, 0), start, length}, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		u := utf16.Encode([]rune(v[0].(string)))
		from, to, err := cut(v, len(u))
		if err != nil {
			return nil, err
		}
		return string(utf16.Decode(u[from:max(from, to)])), nil
	}), nil
}

func leftRight(left bool) func(*compiler, []*scalar) (*scalar, error) {
	return func(_ *compiler, args []*scalar) (*scalar, error) {
		text := []*scalar{cast(args[0], typeText, 0), cast(args[1], typeBigInt, 0)}
		return strict(textType(args[0].typ), text, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
			u := utf16.Encode([]rune(v[0].(string)))
			n := v[1].(int64)
			if n < 0 {
				return nil, sqlError(537, "Invalid length parameter passed to the LEFT or SUBSTRING function.")
			}
			n = min(n, int64(len(u)))
			if left {
				return string(utf16.Decode(u[:n])), nil
			}
			return string(utf16.Decode(u[int64(len(u))-n:])), nil
		}), nil
	}
}

func dataLength(_ *compiler, args []*scalar) (*scalar, error) {
	t := typeInt
	if args[0].typ.Size == sqltype.Max {
		t = typeBigInt
	}
	kind := args[0].typ.Kind
	return strict(t, args, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		switch v := v[0].(type) {
		case []byte:
			return int64(len(v)), nil
		case string:
			if isNational(kind) {
				return int64(2 * units(v, kind)), nil
			}
			return int64(units(v, kind)), nil
		case bool:
			return int64(1), nil
		case sqltype.GUID:
			return int64(16), nil
		case time.Time, float64:
			return int64(8), nil
		}
		switch kind {
		case sqltype.TinyInt:
			return int64(1), nil
		case sqltype.SmallInt:
			return int64(2), nil
		case sqltype.Int:
			return int64(4), nil
		}
		return int64(8), nil
	}), nil
}

func replace(_ *compiler, args []*scalar) (*scalar, error) {
	text := []*scalar{cast(args[0], typeText, 0), cast(args[1], typeText, 0), cast(args[2], typeText, 0)}
	t := textType(args[0].typ)
	if t.Size != sqltype.Max {
		t.Size = 8000
		if isNational(t.Kind) {
			t.Size = 4000
		}
	}
	return strict(t, text, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		if v[1].(string) == "" {
			return v[0], nil
		}
		return strings.ReplaceAll(v[0].(string), v[1].(string), v[2].(string)), nil
	}), nil
}

func replicate(_ *compiler, args []*scalar) (*scalar, error) {
	t := textType(args[0].typ)
	if t.Size != sqltype.Max {
		t.Size = 8000
		if isNational(t.Kind) {
			t.Size = 4000
		}
	}
	text := []*scalar{cast(args[0], typeText, 0), cast(args[1], typeBigInt, 0)}
	return strict(t, text, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		n := v[1].(int64)
		if n < 0 {
			return nil, nil
		}
		if size := int64(len(v[0].(string))); size > 0 {
			limit := int64(1 << 31 / size)
			if t.Size != sqltype.Max {
				limit = int64(t.Size) / size
			}
			n = min(n, limit)
		}
		return strings.Repeat(v[0].(string), int(n)), nil
	}), nil
}

func concatAll(_ *compiler, args []*scalar) (*scalar, error) {
	t := sqltype.Type{Kind: sqltype.VarChar}
	text := make([]*scalar, len(args))
	for i, a := range args {
		text[i] = cast(a, typeText, 0)
		if isNational(a.typ.Kind) {
			t.Kind = sqltype.NVarChar
		}
		switch {
		case t.Size == sqltype.Max || a.typ.Size == sqltype.Max:
			t.Size = sqltype.Max
		case isText(a.typ.Kind):
			t.Size += a.typ.Size
		default:
			t.Size += 40
		}
	}
	if t.Size > 8000 || isNational(t.Kind) && t.Size > 4000 {
		t.Size = map[bool]int{true: 4000, false: 8000}[isNational(t.Kind)]
	}
	return derive(t, text, func(x *exec) (sqltype.Value, error) {
		var b strings.Builder
		for _, a := range text {
			v, err := a.eval(x)
			if err != nil {
				return nil, err
			}
			if s, ok := v.(string); ok {
				b.WriteString(s)
			}
		}
		return b.String(), nil
	}), nil
}

func charIndex(_ *compiler, args []*scalar) (*scalar, error) {
	text := []*scalar{cast(args[0], typeText, 0), cast(args[1], typeText, 0)}
	if len(args) == 3 {
		text = append(text, cast(args[2], typeBigInt, 0))
	}
	return strict(typeInt, text, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		in := utf16.Encode([]rune(strings.ToLower(v[1].(string))))
		from := 0
		if len(v) == 3 {
			from = int(min(max(v[2].(int64)-1, 0), int64(len(in))))
		}
		head, _, ok := strings.Cut(string(utf16.Decode(in[from:])), strings.ToLower(v[0].(string)))
		if !ok {
			return int64(0), nil
		}
		return int64(from + units(head, sqltype.NVarChar) + 1), nil
	}), nil
}
