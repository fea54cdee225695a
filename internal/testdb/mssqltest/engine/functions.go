package engine

import (
	"strings"

	"github.com/google/uuid"
	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

// function compiles a call of a built-in function.
type function struct {
	min, max int
	compile  func(c *compiler, args []*scalar) (*scalar, error)
}

var functions map[string]function

func init() {
	functions = map[string]function{
		"SYSUTCDATETIME": {0, 0, now(typeTime7)},
		"SYSDATETIME":    {0, 0, now(typeTime7)},
		"GETUTCDATE":     {0, 0, now(typeDateTime)},
		"GETDATE":        {0, 0, now(typeDateTime)},
		"SYSDATETIMEOFFSET": {0, 0, now(sqltype.Type{
			Kind: sqltype.DateTimeOffset, Scale: 7})},
		"NEWID":           {0, 0, newID},
		"NEWSEQUENTIALID": {0, 0, newID},
		"SUBSTRING":       {3, 3, substring},
		"LEFT":            {2, 2, leftRight(true)},
		"RIGHT":           {2, 2, leftRight(false)},
		"DATALENGTH":      {1, 1, dataLength},
		"LEN":             {1, 1, textFunc(typeInt, func(s string) sqltype.Value { return int64(units(strings.TrimRight(s, " "), sqltype.NVarChar)) })},
		"UPPER":           {1, 1, textFunc(sqltype.Type{}, func(s string) sqltype.Value { return strings.ToUpper(s) })},
		"LOWER":           {1, 1, textFunc(sqltype.Type{}, func(s string) sqltype.Value { return strings.ToLower(s) })},
		"LTRIM":           {1, 1, textFunc(sqltype.Type{}, func(s string) sqltype.Value { return strings.TrimLeft(s, " ") })},
		"RTRIM":           {1, 1, textFunc(sqltype.Type{}, func(s string) sqltype.Value { return strings.TrimRight(s, " ") })},
		"TRIM":            {1, 1, textFunc(sqltype.Type{}, func(s string) sqltype.Value { return strings.Trim(s, " ") })},
		"QUOTENAME":       {1, 1, textFunc(typeSysname, func(s string) sqltype.Value { return "[" + strings.ReplaceAll(s, "]", "]]") + "]" })},
		"REPLACE":         {3, 3, replace},
		"REPLICATE":       {2, 2, replicate},
		"CONCAT":          {2, 254, concatAll},
		"CHARINDEX":       {2, 3, charIndex},
		"ISNULL":          {2, 2, isNullFunc},
		"ABS":             {1, 1, abs},
		"CHECKSUM":        {1, 99, checksum},
		"ERROR_NUMBER":    {0, 0, caught(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.Number) })},
		"ERROR_MESSAGE":   {0, 0, caught(sqltype.Type{Kind: sqltype.NVarChar, Size: 4000}, func(e *sqltype.Error) sqltype.Value { return e.Message })},
		"ERROR_SEVERITY":  {0, 0, caught(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.Class) })},
		"ERROR_STATE":     {0, 0, caught(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.State) })},
		"ERROR_LINE":      {0, 0, caught(typeInt, func(e *sqltype.Error) sqltype.Value { return int64(e.Line) })},
		"ERROR_PROCEDURE": {0, 0, caught(typeSysname, func(e *sqltype.Error) sqltype.Value {
			if e.Proc == "" {
				return nil
			}
			return e.Proc
		})},
		"XACT_STATE": {0, 0, fromSession(typeSmallInt, func(s *Session) sqltype.Value {
			switch {
			case s.trancount == 0:
				return int64(0)
			case s.tx != nil && s.tx.doomed:
				return int64(-1)
			}
			return int64(1)
		})},
		"SCOPE_IDENTITY": {0, 0, fromSession(sqltype.Type{Kind: sqltype.Decimal, Precision: 38}, func(s *Session) sqltype.Value {
			v, _ := convert(s.identity, typeBigInt, sqltype.Type{Kind: sqltype.Decimal, Precision: 38}, 0)
			return v
		})},
		"ROWCOUNT_BIG":  {0, 0, fromSession(typeBigInt, func(s *Session) sqltype.Value { return s.rowcount })},
		"DB_NAME":       {0, 1, fromSession(typeSysname, func(s *Session) sqltype.Value { return s.e.db.name })},
		"DB_ID":         {0, 1, fromSession(typeSmallInt, func(*Session) sqltype.Value { return int64(5) })},
		"USER_NAME":     {0, 1, fromSession(typeSysname, func(s *Session) sqltype.Value { return s.user })},
		"SUSER_SNAME":   {0, 1, fromSession(typeSysname, func(s *Session) sqltype.Value { return s.login.User })},
		"HOST_NAME":     {0, 0, fromSession(typeSysname, func(s *Session) sqltype.Value { return s.login.HostName })},
		"APP_NAME":      {0, 0, fromSession(typeSysname, func(s *Session) sqltype.Value { return s.login.AppName })},
		"OBJECT_ID":     {1, 2, objectID},
		"OBJECT_NAME":   {1, 2, objectName},
		"SCHEMA_ID":     {0, 1, schemaID},
		"SCHEMA_NAME":   {0, 1, schemaName},
		"COL_LENGTH":    {2, 2, colLength},
		"TYPE_ID":       {1, 1, typeID},
		"INDEXPROPERTY": {3, 3, indexProperty},
	}
}

// call compiles a function of any kind: those whose first parameter is a date
// part, aggregates and the rest.
func (c *compiler) call(name string, params []ast.ScalarExpression, e *ast.FunctionCall) (*scalar, error) {
	if e != nil && (e.OverClause != nil || e.CallTarget != nil) {
		return nil, errUnsupported(name + " OVER")
	}
	switch name {
	case "DATEADD", "DATEDIFF", "DATEDIFF_BIG", "DATEPART":
		return c.dateFunction(name, params)
	case "COUNT", "COUNT_BIG", "SUM", "MIN", "MAX", "AVG":
		return nil, sqlError(147, "An aggregate may not appear in the WHERE clause unless it is in a subquery contained in a HAVING clause or a select list, and the column being aggregated is an outer reference.")
	}
	f, ok := functions[name]
	if !ok {
		return nil, sqlError(195, "'%s' is not a recognized built-in function name.", name)
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

func (c *compiler) parameterless(kind string) (*scalar, error) {
	switch kind {
	case "CurrentTimestamp":
		return c.call("GETDATE", nil, nil)
	case "CurrentUser", "User", "SessionUser":
		return c.call("USER_NAME", nil, nil)
	case "SystemUser":
		return c.call("SUSER_SNAME", nil, nil)
	}
	return nil, errUnsupported(kind)
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

func caught(t sqltype.Type, f func(*sqltype.Error) sqltype.Value) func(*compiler, []*scalar) (*scalar, error) {
	return fromSession(t, func(s *Session) sqltype.Value {
		if n := len(s.caught); n > 0 {
			return f(s.caught[n-1])
		}
		return nil
	})
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

// strict is a function that is NULL if an argument is.
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

func abs(_ *compiler, args []*scalar) (*scalar, error) {
	negative, err := arithmetic("Subtract", constant(int64(0), typeInt), args[0])
	if err != nil {
		return nil, err
	}
	below, err := compareCond("<", args[0], constant(int64(0), typeInt))
	if err != nil {
		return nil, err
	}
	t := args[0].typ
	return derive(t, args, func(x *exec) (sqltype.Value, error) {
		is, err := below.eval(x)
		if err != nil {
			return nil, err
		}
		if is != isTrue {
			return args[0].eval(x)
		}
		v, err := negative.eval(x)
		if err != nil {
			return nil, err
		}
		return convert(v, negative.typ, t, 0)
	}), nil
}

func checksum(_ *compiler, args []*scalar) (*scalar, error) {
	return derive(typeInt, args, func(x *exec) (sqltype.Value, error) {
		h := uint32(2166136261)
		for _, a := range args {
			v, err := a.eval(x)
			if err != nil {
				return nil, err
			}
			for _, c := range appendKey(nil, v, a.coll, false) {
				h = (h ^ uint32(c)) * 16777619
			}
		}
		return int64(int32(h)), nil
	}), nil
}

func globalVariable(name string) (*scalar, error) {
	var t sqltype.Type
	var f func(*Session) sqltype.Value
	switch strings.ToUpper(name) {
	case "@@ROWCOUNT":
		t, f = typeInt, func(s *Session) sqltype.Value { return s.rowcount }
	case "@@TRANCOUNT":
		t, f = typeInt, func(s *Session) sqltype.Value { return int64(s.trancount) }
	case "@@FETCH_STATUS":
		t, f = typeInt, func(s *Session) sqltype.Value { return s.fetchStatus }
	case "@@SPID":
		t, f = typeSmallInt, func(s *Session) sqltype.Value { return int64(s.id) }
	case "@@ERROR":
		t, f = typeInt, func(s *Session) sqltype.Value { return int64(s.lastError) }
	case "@@IDENTITY":
		t, f = sqltype.Type{Kind: sqltype.Decimal, Precision: 38}, func(s *Session) sqltype.Value {
			v, _ := convert(s.identity, typeBigInt, sqltype.Type{Kind: sqltype.Decimal, Precision: 38}, 0)
			return v
		}
	case "@@VERSION":
		t, f = sqltype.Type{Kind: sqltype.NVarChar, Size: 300}, func(*Session) sqltype.Value { return "Stand-in for Microsoft SQL Server, for tests" }
	case "@@SERVERNAME":
		t, f = typeSysname, func(*Session) sqltype.Value { return "stand-in" }
	case "@@LOCK_TIMEOUT":
		t, f = typeInt, func(s *Session) sqltype.Value {
			if s.set.lockTimeout < 0 {
				return int64(-1)
			}
			return s.set.lockTimeout.Milliseconds()
		}
	case "@@NESTLEVEL":
		t, f = typeInt, func(s *Session) sqltype.Value { return int64(s.nest) }
	case "@@PROCID":
		t, f = typeInt, func(*Session) sqltype.Value { return int64(0) }
	default:
		return nil, errUndeclared(name)
	}
	return derive(t, nil, func(x *exec) (sqltype.Value, error) { return f(x.s), nil }), nil
}
