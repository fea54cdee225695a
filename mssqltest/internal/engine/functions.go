package engine

import (
	"hash/crc32"
	"math"
	"math/big"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// function compiles a call of a built-in function.
type function struct {
	min, max int
	compile  func(c *compiler, args []*scalar) (*scalar, error)
}

var functions map[string]function

func init() {
	functions = map[string]function{
		"SYSUTCDATETIME":    {0, 0, now(typeTime7)},
		"SYSDATETIME":       {0, 0, now(typeTime7)},
		"GETUTCDATE":        {0, 0, now(typeDateTime)},
		"GETDATE":           {0, 0, now(typeDateTime)},
		"NEWID":             {0, 0, newID},
		"SUBSTRING":         {3, 3, substring},
		"DATALENGTH":        {1, 1, dataLength},
		"ISNULL":            {2, 2, isNullFunc},
		"DB_NAME":           {0, 0, fromSession(typeSysname, func(s *Session) sqltype.Value { return s.e.db.name })},
		"DB_ID":             {0, 0, fromSession(typeSmallInt, func(*Session) sqltype.Value { return databaseID })},
		"OBJECT_ID":         {1, 2, objectID},
		"SCHEMA_ID":         {1, 1, schemaID},
		"CHECKSUM":          {1, 1, checksum},
		"CONCAT":            {2, 254, concatenate},
		"COL_LENGTH":        {2, 2, colLength},
		"INDEXPROPERTY":     {3, 3, indexProperty},
		"SERVERPROPERTY":    {1, 1, serverProperty},
		"HAS_PERMS_BY_NAME": {3, 3, hasPermsByName},
		"ERROR_NUMBER":      errorPart(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.Number) }),
		"ERROR_MESSAGE":     errorPart(typeText, func(e *sqltype.Error) sqltype.Value { return e.Message }),
		"ERROR_SEVERITY":    errorPart(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.Class) }),
		"ERROR_STATE":       errorPart(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.State) }),
		"ERROR_LINE":        errorPart(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.Line) }),
		"SCOPE_IDENTITY":    {0, 0, scopeIdentity},
		"XACT_STATE":        {0, 0, fromSession(typeSmallInt, xactState)},
	}
}

// scopeIdentity is SCOPE_IDENTITY(), a numeric(38, 0).
func scopeIdentity(*compiler, []*scalar) (*scalar, error) {
	return derive(sqltype.Type{Kind: sqltype.Decimal, Precision: 38}, nil, func(x *exec) (sqltype.Value, error) {
		if n, ok := (*x.s.scopeIdentity(x.f)).(int64); ok {
			return new(big.Rat).SetInt64(n), nil
		}
		return nil, nil
	}), nil
}

// databaseID is the number of the only database: the first after the server's own.
const databaseID = int64(5)

// call compiles a function of any kind: those whose first parameter is a date part, aggregates and all others.
func (c *compiler) call(name string, params []ast.ScalarExpression, e *ast.FunctionCall) (*scalar, error) {
	if e != nil && e.CallTarget != nil {
		return nil, errUnsupported("the function or method " + name)
	}
	if e != nil && e.OverClause != nil {
		return nil, errUnsupported(name + " OVER")
	}
	switch name {
	case "DATEADD", "DATEDIFF", "DATEDIFF_BIG":
		return c.dateFunction(name, params)
	case "COUNT", "COUNT_BIG", "MIN", "MAX":
		return nil, sqlError(147, "An aggregate may not appear in the WHERE clause unless it is in a subquery contained in a HAVING clause or a select list, and the column being aggregated is an outer reference.")
	}
	f, ok := functions[name]
	if !ok {
		return nil, errUnsupported("the function " + name)
	}
	if len(params) < f.min || len(params) > f.max {
		return nil, sqlError(174, "The %s function requires %d argument(s).", strings.ToLower(name), f.min)
	}
	args, err := c.scalars(params)
	if err != nil {
		return nil, err
	}
	return f.compile(c, args)
}

func newID(*compiler, []*scalar) (*scalar, error) {
	out := derive(typeGUID, nil, func(*exec) (sqltype.Value, error) { return sqltype.GUID(uuid.New()), nil })
	out.volatile = true
	return out, nil
}

func fromSession(t sqltype.Type, f func(*Session) sqltype.Value) func(*compiler, []*scalar) (*scalar, error) {
	return func(*compiler, []*scalar) (*scalar, error) {
		return derive(t, nil, func(x *exec) (sqltype.Value, error) { return f(x.s), nil }), nil
	}
}

// values evaluates args; ok is false if one is NULL.
func values(x *exec, args []*scalar) (out []sqltype.Value, ok bool, err error) {
	out = make([]sqltype.Value, len(args))
	ok = true
	for i, a := range args {
		if out[i], err = a.eval(x); err != nil {
			return nil, false, err
		}
		ok = ok && out[i] != nil
	}
	return out, ok, nil
}

// strict returns a function that is NULL if an argument is NULL.
func strict(t sqltype.Type, args []*scalar, f func(x *exec, v []sqltype.Value) (sqltype.Value, error)) *scalar {
	return derive(t, args, func(x *exec) (sqltype.Value, error) {
		v, ok, err := values(x, args)
		if err != nil || !ok {
			return nil, err
		}
		return f(x, v)
	})
}

// isNullFunc has the type of its first argument.
func isNullFunc(_ *compiler, args []*scalar) (*scalar, error) {
	t := args[0].typ
	if t.Kind == sqltype.Invalid {
		t = args[1].typ
	}
	b, err := castImplicit(args[1], t)
	if err != nil {
		return nil, err
	}
	a := cast(args[0], t, 0)
	return derive(t, []*scalar{a, b}, func(x *exec) (sqltype.Value, error) {
		if v, err := a.eval(x); err != nil || v != nil {
			return v, err
		}
		return b.eval(x)
	}), nil
}

func substring(_ *compiler, args []*scalar) (*scalar, error) {
	t := args[0].typ
	switch {
	case t.Kind == sqltype.Binary:
		t.Kind = sqltype.VarBinary
	case t.Kind == sqltype.Char:
		t.Kind = sqltype.VarChar
	case t.Kind == sqltype.NChar:
		t.Kind = sqltype.NVarChar
	case t.Kind == sqltype.VarBinary, t.Kind == sqltype.VarChar, t.Kind == sqltype.NVarChar:
	default:
		return nil, errUnsupported("SUBSTRING of " + kindName(t.Kind))
	}
	return strict(t, []*scalar{args[0], cast(args[1], typeBigInt, 0), cast(args[2], typeBigInt, 0)}, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		start, length := v[1].(int64)-1, v[2].(int64)
		if length < 0 {
			return nil, sqlError(537, "Invalid length parameter passed to the LEFT or SUBSTRING function.")
		}
		b, ok := v[0].([]byte)
		if ok {
			from, to := part(start, length, len(b))
			return b[from:to], nil
		}
		units := utf16.Encode([]rune(v[0].(string)))
		from, to := part(start, length, len(units))
		cut := string(utf16.Decode(units[from:to]))
		if strings.ContainsRune(cut, utf8.RuneError) && !strings.ContainsRune(v[0].(string), utf8.RuneError) {
			return nil, errUnsupported("SUBSTRING that ends in the middle of a character above U+FFFF")
		}
		return cut, nil
	}), nil
}

// part returns the bounds of what SUBSTRING takes of n units; positions outside of them count and have none.
func part(start, length int64, n int) (from, to int64) {
	start = min(start, int64(n))
	from = max(start, 0)
	return from, min(max(start+min(length, math.MaxInt32), from), int64(n))
}

// checksum is equal for texts that the collation treats as equal ("CHECKSUM (Transact-SQL)"). Its values are not SQL
// Server's.
func checksum(_ *compiler, args []*scalar) (*scalar, error) {
	if !isText(args[0].typ.Kind) {
		return nil, errUnsupported("CHECKSUM of " + kindName(args[0].typ.Kind))
	}
	return strict(typeInt, args, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		return int64(int32(crc32.ChecksumIEEE([]byte(sortKey(v[0].(string)))))), nil
	}), nil
}

// concatenate returns the text of all arguments, of which NULL is empty.
func concatenate(_ *compiler, args []*scalar) (*scalar, error) {
	t := sqltype.Type{Kind: sqltype.VarChar, Size: 8000}
	for _, a := range args {
		if isNational(a.typ.Kind) {
			t = sqltype.Type{Kind: sqltype.NVarChar, Size: 4000}
		}
	}
	for _, a := range args {
		if a.typ.Size == sqltype.Max {
			t.Size = sqltype.Max
		}
	}
	texts := make([]*scalar, len(args))
	for i, a := range args {
		texts[i] = cast(a, sqltype.Type{Kind: t.Kind, Size: sqltype.Max}, 0)
	}
	return derive(t, texts, func(x *exec) (sqltype.Value, error) {
		v, _, err := values(x, texts)
		all := ""
		for _, text := range v {
			if text != nil {
				all += text.(string)
			}
		}
		return all, err
	}), nil
}

func dataLength(_ *compiler, args []*scalar) (*scalar, error) {
	t := typeInt
	if args[0].typ.Size == sqltype.Max {
		t = typeBigInt
	}
	kind := args[0].typ.Kind
	if !isBytes(kind) && !isText(kind) {
		return nil, errUnsupported("DATALENGTH of " + kindName(kind))
	}
	return strict(t, args, func(_ *exec, v []sqltype.Value) (sqltype.Value, error) {
		switch v := v[0].(type) {
		case []byte:
			return int64(len(v)), nil
		case string:
			if isNational(kind) {
				return int64(2 * units(v, kind)), nil
			}
			return int64(units(v, kind)), nil
		}
		return nil, nil
	}), nil
}

func globalVariable(name string) (*scalar, error) {
	var t sqltype.Type
	var f func(*Session) sqltype.Value
	switch strings.ToUpper(name) {
	case "@@ROWCOUNT":
		t, f = typeInt, func(s *Session) sqltype.Value { return s.rowcount }
	case "@@LOCK_TIMEOUT": // -1: no timeout ("@@LOCK_TIMEOUT (Transact-SQL)")
		t, f = typeInt, func(s *Session) sqltype.Value {
			if s.set.lockTimeout < 0 {
				return int64(-1)
			}
			return s.set.lockTimeout.Milliseconds()
		}
	case "@@TRANCOUNT":
		t, f = typeInt, func(s *Session) sqltype.Value { return int64(s.trancount) }
	case "@@FETCH_STATUS":
		t, f = typeInt, func(s *Session) sqltype.Value { return s.fetchStatus }
	case "@@SPID":
		t, f = typeSmallInt, func(s *Session) sqltype.Value { return int64(s.id) }
	case "@@VERSION":
		t, f = sqltype.Type{Kind: sqltype.NVarChar, Size: 300}, func(*Session) sqltype.Value { return "Microsoft SQL Server 2022 - the emulator of chanq, for tests" }
	default:
		return nil, errUnsupported(name)
	}
	return derive(t, nil, func(x *exec) (sqltype.Value, error) { return f(x.s), nil }), nil
}
