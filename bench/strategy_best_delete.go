package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// takeDeleting takes a batch by deleting it, in one statement and one commit. A batch has twice the
// messages of a statement, as chanq's claims.
func takeDeleting(ctx context.Context, l bestLoop, n int, more func(context.Context) error) error {
	return l.store.onPgLine(ctx, []string{deleteText}, func(line pgLine, st []*pgconn.StatementDescription) error {
		var taken pgBatch
		for left := n; left > 0; {
			line.run(st[0], taken.due[:], taken.id[:], pgInt(2*int64(l.batch)))
			if err := line.commit(); err != nil {
				return err
			}
			taken.bodies = taken.bodies[:0]
			if _, err := line.result(taken.add); err != nil {
				return err
			}
			if err := line.committed(); err != nil {
				return err
			}
			left = l.receive(taken.bodies, left)
			if len(taken.bodies) > 0 {
				continue
			}
			if taken.due != [8]byte{} { // those that were committed late
				taken = pgBatch{}
			} else if err := more(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// deleteText returns the messages in order, so that the next statement begins behind the last one.
const deleteText = `WITH gone AS (
  DELETE FROM {live} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM {live}
    WHERE priority = 0 AND (due_at, uuid_send(id)) > ($1::bigint, uuid_send($2::uuid)) AND due_at <= {clock}
    ORDER BY priority, due_at, uuid_send(id) LIMIT $3::bigint))
  RETURNING id, due_at, body
)
SELECT id, due_at, body FROM gone ORDER BY due_at, uuid_send(id)`
