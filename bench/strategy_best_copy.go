package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chanq/chanq"
)

// sendCopy stores each batch by COPY on one connection. The times are the client's, since a default
// is computed for each row.
func sendCopy(ctx context.Context, l bestLoop, bodies [][]byte, stored func()) error {
	text := l.store.named(`COPY {live} (id, due_at, enqueued_at, body) FROM STDIN (FORMAT binary)`)
	return l.store.onPgConn(ctx, func(on *pgx.Conn) error {
		var b []byte
		for some := range slices.Chunk(bodies, l.batch) {
			now := pgInt(time.Now().UnixMilli())
			b = append(b[:0], "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...) // with no flags and no extension
			for _, body := range some {
				id := chanq.NewID()
				b = binary.BigEndian.AppendUint16(b, 4) // columns
				b = pgElement(pgElement(pgElement(pgElement(b, id[:]), now), now), body)
			}
			b = binary.BigEndian.AppendUint16(b, 0xffff) // the end
			l.store.counter.Add(text)
			if _, err := on.PgConn().CopyFrom(context.WithoutCancel(ctx), bytes.NewReader(b), text); err != nil {
				return err
			}
			stored()
		}
		return nil
	})
}
