package pgxtx

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// formats are the types that the server sends in the binary format. All others come as text.
var formats = pgx.QueryResultFormatsByOID{
	pgtype.BoolOID: pgx.BinaryFormatCode, pgtype.ByteaOID: pgx.BinaryFormatCode,
	pgtype.Int2OID: pgx.BinaryFormatCode, pgtype.Int4OID: pgx.BinaryFormatCode, pgtype.Int8OID: pgx.BinaryFormatCode,
	pgtype.OIDOID: pgx.BinaryFormatCode, pgtype.XIDOID: pgx.BinaryFormatCode, pgtype.CIDOID: pgx.BinaryFormatCode,
	pgtype.Float4OID: pgx.BinaryFormatCode, pgtype.Float8OID: pgx.BinaryFormatCode,
	pgtype.DateOID: pgx.BinaryFormatCode, pgtype.TimestampOID: pgx.BinaryFormatCode, pgtype.TimestamptzOID: pgx.BinaryFormatCode,
}

// rows are the rows of a query as database/sql reads them.
type rows struct {
	pgx.Rows
	more  bool // the first row was read, and is next
	first bool
	into  []driver.Valuer // a variable of each column, for pgx to scan into
	any   []any           // the same
}

// open reads the first row, since an error of the query comes with it.
func open(of pgx.Rows) (*rows, error) {
	r := &rows{Rows: of, first: true, more: of.Next()}
	if err := of.Err(); err != nil {
		of.Close()
		return nil, err
	}
	for _, field := range of.FieldDescriptions() {
		v := variable(field.DataTypeOID)
		r.into, r.any = append(r.into, v), append(r.any, v)
	}
	return r, nil
}

func (r *rows) Columns() (names []string) {
	for _, field := range r.FieldDescriptions() {
		names = append(names, field.Name)
	}
	return names
}

func (r *rows) Close() error {
	r.Rows.Close()
	return r.Err()
}

func (r *rows) Next(dest []driver.Value) error {
	if !r.first {
		r.more = r.Rows.Next()
	}
	r.first = false
	if !r.more {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	if err := r.Scan(r.any...); err != nil {
		return err
	}
	for i, v := range r.into {
		value, err := v.Value()
		if err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
		dest[i] = value
	}
	return nil
}

// variable returns a variable for values of a type, whose Value is what package stdlib of pgx returns.
func variable(oid uint32) driver.Valuer {
	switch oid {
	case pgtype.BoolOID:
		return new(pgtype.Bool)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return new(pgtype.Int8)
	case pgtype.OIDOID, pgtype.XIDOID, pgtype.CIDOID:
		return new(pgtype.Uint32)
	case pgtype.Float4OID:
		return new(pgtype.Float4)
	case pgtype.Float8OID:
		return new(pgtype.Float8)
	case pgtype.DateOID:
		return new(pgtype.Date)
	case pgtype.TimestampOID:
		return new(pgtype.Timestamp)
	case pgtype.TimestamptzOID:
		return new(pgtype.Timestamptz)
	case pgtype.ByteaOID, pgtype.JSONOID, pgtype.JSONBOID, pgtype.XMLOID:
		return new(octets)
	}
	return new(pgtype.Text)
}

// octets are bytes, or NULL.
type octets []byte

func (o *octets) ScanBytes(b []byte) error {
	*o = bytes.Clone(b) // nil stays nil
	return nil
}

func (o *octets) Value() (driver.Value, error) {
	if *o == nil {
		return nil, nil
	}
	return []byte(*o), nil
}
