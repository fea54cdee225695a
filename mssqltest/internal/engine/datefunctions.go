package engine

import (
	"strings"
	"time"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// now returns one value for the whole statement, as on the server.
func now(t sqltype.Type) func(*compiler, []*scalar) (*scalar, error) {
	return func(*compiler, []*scalar) (*scalar, error) {
		return derive(t, nil, func(x *exec) (sqltype.Value, error) { return roundTime(x.now, t) }), nil
	}
}

// dateFunction compiles the functions that begin with a date part.
func (c *compiler) dateFunction(name string, params []ast.ScalarExpression) (*scalar, error) {
	if len(params) != 3 {
		return nil, sqlError(174, "The %s function requires 3 argument(s).", strings.ToLower(name))
	}
	ref, ok := params[0].(*ast.ColumnReferenceExpression)
	if !ok || ref.MultiPartIdentifier == nil {
		return nil, sqlError(1023, "Invalid parameter 1 specified for %s.", strings.ToLower(name))
	}
	word := ref.MultiPartIdentifier.Identifiers[0].Value
	unit, ok := ticksOf[strings.ToLower(word)]
	if !ok {
		return nil, sqlError(155, "'%s' is not a recognized %s option.", word, strings.ToLower(name))
	}
	args, err := c.scalars(params[1:])
	if err != nil {
		return nil, err
	}
	asTime := func(s *scalar) (*scalar, error) {
		switch {
		case isTime(s.typ.Kind):
			return s, nil
		case isText(s.typ.Kind) && name != "DATEADD":
			return cast(s, typeTime7, 0), nil
		}
		return castImplicit(s, typeDateTime)
	}
	last, err := asTime(args[len(args)-1])
	if err != nil {
		return nil, err
	}
	if name == "DATEADD" {
		// Before SQL Server 2025 the number is always converted to int.
		n := cast(args[0], typeInt, 0)
		t := last.typ
		return strict(t, []*scalar{n, last}, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
			at, ok := addDate(unit, v[0].(int64), v[1].(time.Time), t)
			if !ok {
				return nil, errDateAdd(kindName(t.Kind))
			}
			return roundTime(at, t)
		}), nil
	}
	first, err := asTime(args[0])
	if err != nil {
		return nil, err
	}
	t := typeInt
	if name == "DATEDIFF_BIG" {
		t = typeBigInt
	}
	return strict(t, []*scalar{first, last}, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		n := diffDate(unit, v[0].(time.Time), v[1].(time.Time))
		if !fitsInteger(n, t.Kind) {
			return nil, errDateDiff()
		}
		return n, nil
	}), nil
}
