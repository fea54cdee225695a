package pipe

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Tables is the Store of a Pipe: two queues on one *sql.DB.
type Tables struct {
	part     *session.Part
	from, to *table.Queue
}

// Open takes sessions, and opens no connection. It fails if the *sql.DB allows too few connections.
func Open(db *sql.DB, maxAge time.Duration, from, to *table.Queue) (*Tables, error) {
	parts, err := session.Open(db, from.Dialect, maxAge, session.Need{Kind: session.Pipe, Sessions: 1, Spare: 1})
	if err != nil {
		return nil, err
	}
	return &Tables{parts[0], from, to}, nil
}

// Replace runs a transaction: see Store.
func (t *Tables) Replace(ctx context.Context, inputs []sqlbatch.Item, skipLocked bool,
	outputs func([]sqlbatch.Item, func([]sqlbatch.Row, bool) error) error) error {
	acks := t.from.SQL.InOwnTx()
	if skipLocked {
		acks = acks.SkipLocked()
	}
	return t.part.InTx(ctx, func(tx *sql.Tx) error {
		var held []sqlbatch.Item
		if err := session.RunTx(ctx, tx, t.from.AckStatement(acks, inputs), session.CollectItems(&held)); err != nil {
			return err
		}
		inserts := send.InsertsOf(t.to.InTx(tx))
		return outputs(held, func(rows []sqlbatch.Row, keyed bool) error {
			return inserts.Store(ctx, rows, make([]send.Receipt, len(rows)), keyed)
		})
	})
}

// Look looks up which inputs exist.
func (t *Tables) Look(ctx context.Context, timeout time.Duration, ids [][16]byte) (table.Seen, error) {
	return table.Table{Queue: t.from, Part: t.part}.Look(ctx, timeout, ids)
}

// Connect opens a connection before it is needed, if there are few. If it fails, the first statement reports it.
func (t *Tables) Connect(ctx context.Context, timeout time.Duration) {
	_ = t.part.Connect(ctx, timeout)
}

// Close returns the sessions.
func (t *Tables) Close() { t.part.Close() }
