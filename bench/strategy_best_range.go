package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// takeRanges leases a range of the claim index by one row of another table, and deletes the range
// when its messages are done. No message is updated. The ack of a batch and the claim of the next
// one are one transaction. A batch has twice the messages of a statement, as chanq's claims.
func takeRanges(ctx context.Context, l bestLoop, n int, more func(context.Context) error) error {
	return l.store.onPgLine(ctx, []string{claimRangeText, ackRangeText}, func(line pgLine, st []*pgconn.StatementDescription) error {
		claim, ack := st[0], st[1]
		var from, leased pgBatch // leased is from the end of from to its own
		for left := n; left > 0 || len(leased.bodies) > 0; {
			acking := int64(len(leased.bodies))
			if acking > 0 {
				line.run(ack, from.due[:], from.id[:], leased.due[:], leased.id[:])
				from.due, from.id = leased.due, leased.id
			}
			if left > 0 {
				line.run(claim, from.due[:], from.id[:], pgInt(2*int64(l.batch)))
			}
			if err := line.commit(); err != nil {
				return err
			}
			if acking > 0 {
				if gone, err := line.result(nil); err != nil {
					return err
				} else if gone != acking {
					return fmt.Errorf("acked %d of %d messages", gone, acking)
				}
			}
			leased.bodies = leased.bodies[:0]
			claimed := left > 0
			if claimed {
				if _, err := line.result(leased.add); err != nil {
					return err
				}
			}
			if err := line.committed(); err != nil {
				return err
			}
			left = l.receive(leased.bodies, left)
			if len(leased.bodies) > 0 || !claimed {
				continue
			}
			if from.due != [8]byte{} { // those that were committed late
				from = pgBatch{}
			} else if err := more(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

const rangesText = `CREATE TABLE {ranges} (
  from_due    bigint NOT NULL,
  from_id     uuid   NOT NULL,
  due         bigint NOT NULL,
  id          uuid   NOT NULL,
  lease_until bigint NOT NULL,
  PRIMARY KEY (due, id)
)`

// claimRangeText walks the claim index from the end of the last range, and stores the end of the
// next one.
const claimRangeText = `WITH m AS MATERIALIZED (
  SELECT id, due_at, body FROM {live}
  WHERE priority = 0 AND (due_at, uuid_send(id)) > ($1::bigint, uuid_send($2::uuid)) AND due_at <= {clock}
  ORDER BY priority, due_at, uuid_send(id) LIMIT $3::bigint
),
leased AS (
  INSERT INTO {ranges} (from_due, from_id, due, id, lease_until)
  SELECT $1, $2, due_at, id, {clock} + 30000 FROM m ORDER BY due_at DESC, uuid_send(id) DESC LIMIT 1
)
SELECT id, due_at, body FROM m`

// ackRangeText deletes what is in the range. A message that was committed late into a range would
// be deleted unseen: the loop compares the numbers, and relies on one sender in order.
const ackRangeText = `WITH unleased AS (DELETE FROM {ranges} WHERE due = $3::bigint AND id = $4::uuid)
DELETE FROM {live} WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM {live}
  WHERE priority = 0 AND (due_at, uuid_send(id)) > ($1::bigint, uuid_send($2::uuid)) AND (due_at, uuid_send(id)) <= ($3::bigint, uuid_send($4::uuid))
  ORDER BY priority, due_at, uuid_send(id)))`
