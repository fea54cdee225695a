package engine

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// kindNames maps the names of T-SQL to kinds.
var kindNames = map[string]sqltype.Kind{
	"bit": sqltype.Bit, "tinyint": sqltype.TinyInt, "smallint": sqltype.SmallInt, "int": sqltype.Int,
	"integer": sqltype.Int, "bigint": sqltype.BigInt, "float": sqltype.Float, "real": sqltype.Float,
	"decimal": sqltype.Decimal, "numeric": sqltype.Decimal, "char": sqltype.Char, "varchar": sqltype.VarChar,
	"nchar": sqltype.NChar, "nvarchar": sqltype.NVarChar,
	"binary": sqltype.Binary, "varbinary": sqltype.VarBinary,
	"date": sqltype.Date, "time": sqltype.Time, "datetime": sqltype.DateTime, "smalldatetime": sqltype.SmallDateTime,
	"datetime2": sqltype.DateTime2, "datetimeoffset": sqltype.DateTimeOffset,
	"uniqueidentifier": sqltype.UniqueIdentifier, "xml": sqltype.XML,
}

func kindName(k sqltype.Kind) string {
	return [...]string{"invalid", "bit", "tinyint", "smallint", "int", "bigint", "float", "decimal", "char", "varchar",
		"nchar", "nvarchar", "binary", "varbinary", "date", "time", "datetime", "smalldatetime", "datetime2",
		"datetimeoffset", "uniqueidentifier", "xml"}[k]
}

// typeName returns a type as sys.columns and error 206 write it.
func typeName(t sqltype.Type) string {
	switch t.Kind {
	case sqltype.Char, sqltype.VarChar, sqltype.NChar, sqltype.NVarChar, sqltype.Binary, sqltype.VarBinary:
		if t.Size == sqltype.Max {
			return kindName(t.Kind) + "(max)"
		}
		return fmt.Sprintf("%s(%d)", kindName(t.Kind), t.Size)
	}
	return kindName(t.Kind)
}

// The most frequent types of expressions.
var (
	typeBit      = sqltype.Type{Kind: sqltype.Bit}
	typeInt      = sqltype.Type{Kind: sqltype.Int}
	typeSmallInt = sqltype.Type{Kind: sqltype.SmallInt}
	typeTinyInt  = sqltype.Type{Kind: sqltype.TinyInt}
	typeBigInt   = sqltype.Type{Kind: sqltype.BigInt}
	typeSysname  = sqltype.Type{Kind: sqltype.NVarChar, Size: 128}
	typeText     = sqltype.Type{Kind: sqltype.NVarChar, Size: sqltype.Max}
	typeDateTime = sqltype.Type{Kind: sqltype.DateTime}
	typeGUID     = sqltype.Type{Kind: sqltype.UniqueIdentifier}
	typeTime7    = sqltype.Type{Kind: sqltype.DateTime2, Scale: 7}
)

// typeOf reads a data type. The default length is 1 in a declaration and 30 in CAST and CONVERT.
func typeOf(ref ast.DataTypeReference, unwritten int) (sqltype.Type, error) {
	var name *ast.SchemaObjectName
	var params []ast.ScalarExpression
	switch r := ref.(type) {
	case *ast.SqlDataTypeReference:
		name, params = r.Name, r.Parameters
	case *ast.XmlDataTypeReference:
		return sqltype.Type{Kind: sqltype.XML, Size: sqltype.Max}, nil
	default:
		return sqltype.Type{}, errUnsupported(fmt.Sprintf("%T", ref))
	}
	if name == nil || name.BaseIdentifier == nil {
		return sqltype.Type{}, errSyntaxNear("data type")
	}
	return namedType(name.BaseIdentifier.Value, params, unwritten)
}

func namedType(name string, params []ast.ScalarExpression, unwritten int) (sqltype.Type, error) {
	kind, ok := kindNames[strings.ToLower(name)]
	if !ok {
		return sqltype.Type{}, sqlError(2715, "Column, parameter, or variable: Cannot find data type %s.", name)
	}
	var n []int
	for _, p := range params {
		switch p := p.(type) {
		case *ast.MaxLiteral:
			n = append(n, sqltype.Max)
		case *ast.IntegerLiteral:
			v, err := strconv.Atoi(p.Value)
			if err != nil {
				return sqltype.Type{}, errSyntaxNear(p.Value)
			}
			n = append(n, v)
		default:
			return sqltype.Type{}, errSyntaxNear(name)
		}
	}
	t := sqltype.Type{Kind: kind}
	switch kind {
	case sqltype.Char, sqltype.VarChar, sqltype.NChar, sqltype.NVarChar, sqltype.Binary, sqltype.VarBinary:
		t.Size = unwritten
		if len(n) > 0 {
			t.Size = n[0]
		}
		limit := 8000
		if isNational(kind) {
			limit = 4000
		}
		if t.Size > limit || t.Size == 0 {
			return t, sqlError(131, "The size (%d) given to the type '%s' exceeds the maximum allowed for any data type (8000).", t.Size, name)
		}
	case sqltype.Time, sqltype.DateTime2, sqltype.DateTimeOffset:
		t.Scale = 7
		if len(n) > 0 {
			t.Scale = uint8(n[0])
		}
		if t.Scale > 7 {
			return t, sqlError(1002, "Specified scale %d is invalid.", t.Scale)
		}
	case sqltype.Decimal:
		t.Precision = 18
		if len(n) > 0 {
			t.Precision = uint8(n[0])
		}
		if len(n) > 1 {
			t.Scale = uint8(n[1])
		}
	}
	return t, nil
}

func isInteger(k sqltype.Kind) bool { return k >= sqltype.Bit && k <= sqltype.BigInt }

func isNumber(k sqltype.Kind) bool { return k >= sqltype.Bit && k <= sqltype.Decimal }

func isText(k sqltype.Kind) bool {
	return k >= sqltype.Char && k <= sqltype.NVarChar || k == sqltype.XML
}

func isNational(k sqltype.Kind) bool {
	return k == sqltype.NChar || k == sqltype.NVarChar || k == sqltype.XML
}

func isBytes(k sqltype.Kind) bool { return k == sqltype.Binary || k == sqltype.VarBinary }

func isTime(k sqltype.Kind) bool { return k >= sqltype.Date && k <= sqltype.DateTimeOffset }

// precedence orders kinds as the documentation's "Data type precedence" does: of two operands the operand of lower
// precedence is converted.
var precedence = map[sqltype.Kind]int{
	sqltype.XML: 20, sqltype.DateTimeOffset: 19, sqltype.DateTime2: 18, sqltype.DateTime: 17, sqltype.SmallDateTime: 16,
	sqltype.Date: 15, sqltype.Time: 14, sqltype.Float: 13, sqltype.Decimal: 12, sqltype.BigInt: 11, sqltype.Int: 10,
	sqltype.SmallInt: 9, sqltype.TinyInt: 8, sqltype.Bit: 7, sqltype.UniqueIdentifier: 6, sqltype.NVarChar: 5,
	sqltype.NChar: 4, sqltype.VarChar: 3, sqltype.Char: 2, sqltype.VarBinary: 1, sqltype.Binary: 0,
}

// common returns the type of CASE, COALESCE, UNION and comparison over a and b.
func common(a, b sqltype.Type) sqltype.Type {
	if a.Kind == sqltype.Invalid {
		return b
	}
	if b.Kind == sqltype.Invalid {
		return a
	}
	hi, lo := a, b
	if precedence[b.Kind] > precedence[a.Kind] {
		hi, lo = b, a
	}
	switch {
	case isText(hi.Kind) && isText(lo.Kind) || isBytes(hi.Kind) && isBytes(lo.Kind):
		if lo.Size == sqltype.Max || hi.Size != sqltype.Max && lo.Size > hi.Size {
			hi.Size = lo.Size
		}
	case hi.Kind == sqltype.Decimal && lo.Kind == sqltype.Decimal:
		whole := max(int(hi.Precision)-int(hi.Scale), int(lo.Precision)-int(lo.Scale))
		hi.Scale = max(hi.Scale, lo.Scale)
		hi.Precision = uint8(min(38, whole+int(hi.Scale)))
	case hi.Kind == lo.Kind && isTime(hi.Kind):
		hi.Scale = max(hi.Scale, lo.Scale)
	}
	return hi
}

func pow10(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}
