// Package sqltype has the types that the wire and the engine of the SQL Server emulator share: column types, values and
// server errors.
package sqltype

import (
	"fmt"
	"math/big"
	"time"
)

// Kind is a T-SQL type without its length, precision and scale.
type Kind uint8

// The kinds that the emulator supports.
const (
	Invalid Kind = iota
	Bit
	TinyInt
	SmallInt
	Int
	BigInt
	Float
	Decimal
	Char
	VarChar
	NChar
	NVarChar
	Binary
	VarBinary
	Date
	Time
	DateTime
	SmallDateTime
	DateTime2
	DateTimeOffset
	UniqueIdentifier
	XML
)

// Max is the Size of a (max) type.
const Max = -1

// Type is a column's or a variable's declared type.
type Type struct {
	Kind      Kind
	Size      int   // bytes of binary and char types, characters of n-types; Max for (max)
	Precision uint8 // decimal
	Scale     uint8 // decimal, time, datetime2, datetimeoffset
}

// Value is one SQL value: nil for NULL, or
//
//	bool                bit
//	int64               tinyint, smallint, int, bigint
//	float64             float
//	*big.Rat            decimal
//	string              char, varchar, nchar, nvarchar, xml
//	[]byte              binary, varbinary
//	GUID                uniqueidentifier
//	time.Time           the date and time kinds; UTC, except datetimeoffset
//
// Values are never modified.
type Value any

var _ = (*big.Rat)(nil)
var _ = time.Time{}

// GUID is a uniqueidentifier in the byte order of the wire (the first three
// groups little-endian).
type GUID [16]byte

// Column describes one column of a result.
type Column struct {
	Name     string
	Type     Type
	Nullable bool
}

// Error is an error or message as SQL Server reports it. Class (severity) of 10 and below is information, 11 to 19 an
// error, 20 and above ends the connection.
type Error struct {
	Number  int32
	State   uint8
	Class   uint8
	Message string
	Proc    string
	Line    int32
}

func (e *Error) Error() string {
	return fmt.Sprintf("Msg %d, Level %d, State %d, Line %d: %s", e.Number, e.Class, e.State, e.Line, e.Message)
}
