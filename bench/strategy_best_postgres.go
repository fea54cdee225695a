package main

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"
)

// pgLine is a connection that is sent statements before the results of earlier ones arrive. They run
// in order, and those before a commit are one transaction. Values are in PostgreSQL's binary form.
type pgLine struct {
	store *store
	line  *pgconn.Pipeline
}

// onPgConn passes a separate connection to f.
func (s *store) onPgConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(inner any) error { return f(inner.(*stdlib.Conn).Conn()) })
}

// onPgLine passes a pipelined connection with prepared statements to f.
func (s *store) onPgLine(ctx context.Context, texts []string, f func(pgLine, []*pgconn.StatementDescription) error) error {
	return s.onPgConn(ctx, func(on *pgx.Conn) error {
		prepared := make([]*pgconn.StatementDescription, len(texts))
		for i, text := range texts {
			text = s.named(text)
			var err error
			if prepared[i], err = on.Prepare(ctx, text, text); err != nil {
				return err
			}
		}
		line := on.PgConn().StartPipeline(context.WithoutCancel(ctx))
		err := f(pgLine{s, line}, prepared)
		return errors.Join(err, line.Close())
	})
}

var binaryFormat = []int16{1}

// run adds a statement, which commit sends.
func (l pgLine) run(st *pgconn.StatementDescription, values ...[]byte) {
	l.store.counter.Add(st.SQL)
	l.line.SendQueryStatement(st, values, binaryFormat, binaryFormat)
}

func (l pgLine) commit() error { return l.line.Sync() }

// result waits for the next statement, passes its rows to each, and returns the number of rows that
// it wrote or read. Values are valid only during the call.
func (l pgLine) result(each func(values [][]byte)) (rows int64, err error) {
	results, err := l.line.GetResults()
	if err != nil {
		return 0, err
	}
	r := results.(*pgconn.ResultReader)
	for r.NextRow() {
		each(r.Values())
	}
	tag, err := r.Close()
	return tag.RowsAffected(), err
}

// committed waits until the transaction is on disk.
func (l pgLine) committed() error {
	_, err := l.line.GetResults()
	return err
}

func pgInt(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// pgArray appends the head of an array of n elements, which pgElement appends.
func pgArray(b []byte, element uint32, n int) []byte {
	for _, field := range []uint32{1, 0, element, uint32(n), 1} { // dimensions, no NULL, type, length, first index
		b = binary.BigEndian.AppendUint32(b, field)
	}
	return b
}

func pgElement(b, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

const (
	uuidOID  = pgtype.UUIDOID
	byteaOID = pgtype.ByteaOID
)

// pgBatch is what a statement has taken: bodies, which a handler may keep, and the place of the last
// one in the claim index.
type pgBatch struct {
	due    [8]byte
	id     [16]byte
	bodies [][]byte
	arena  []byte // of the bodies
}

// add adds a row of id, due_at and body.
func (b *pgBatch) add(row [][]byte) {
	copy(b.id[:], row[0])
	copy(b.due[:], row[1])
	if len(row[2]) > cap(b.arena)-len(b.arena) {
		b.arena = make([]byte, 0, max(64<<10, len(row[2])))
	}
	from := len(b.arena)
	b.arena = append(b.arena, row[2]...)
	b.bodies = append(b.bodies, b.arena[from:len(b.arena):len(b.arena)])
}
