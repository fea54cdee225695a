package main

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chanq/chanq"
)

// sendPipelined inserts on one connection, in order. While the server stores a batch, the next ones
// are on their way. All columns except id and body have one value for all rows.
func sendPipelined(ctx context.Context, l bestLoop, bodies [][]byte, stored func()) error {
	const underway = 4 // batches
	return l.store.onPgLine(ctx, []string{pipelinedText}, func(line pgLine, st []*pgconn.StatementDescription) error {
		waiting := 0
		wait := func() error {
			if _, err := line.result(nil); err != nil {
				return err
			}
			waiting--
			err := line.committed()
			stored()
			return err
		}
		var ids, data []byte
		for some := range slices.Chunk(bodies, l.batch) {
			ids, data = pgArray(ids[:0], uuidOID, len(some)), pgArray(data[:0], byteaOID, len(some))
			for _, body := range some {
				id := chanq.NewID()
				ids, data = pgElement(ids, id[:]), pgElement(data, body)
			}
			line.run(st[0], ids, data)
			if err := line.commit(); err != nil {
				return err
			}
			if waiting++; waiting == underway {
				if err := wait(); err != nil {
					return err
				}
			}
		}
		for waiting > 0 {
			if err := wait(); err != nil {
				return err
			}
		}
		return nil
	})
}

const pipelinedText = `INSERT INTO {live} (id, due_at, enqueued_at, body)
SELECT r.id, t.now, t.now, r.body
FROM {clock} AS t (now), unnest($1::uuid[], $2::bytea[]) AS r (id, body)`
