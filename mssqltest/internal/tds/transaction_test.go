package tds_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// recorder records the requests that it answers.
type recorder struct {
	mu       sync.Mutex
	requests []tds.Request
}

func (r *recorder) record(q *tds.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, *q)
}

// take returns the requests recorded since the last call.
func (r *recorder) take() []tds.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.requests
	r.requests = nil
	return taken
}

// transactional answers transaction-manager requests as a server does.
func transactional(rec *recorder) func(context.Context, *tds.Request, tds.Results) error {
	const id = 0x0102030405060708
	return func(ctx context.Context, r *tds.Request, w tds.Results) error {
		rec.record(r)
		switch r.Tx.Op {
		case tds.TxBegin:
			return w.TxBegan(id)
		case tds.TxCommit:
			return w.TxCommitted(id)
		case tds.TxRollback:
			return w.TxRolledBack(id)
		default:
			return nothing(ctx, r, w)
		}
	}
}

func TestTransactionsBeginWithTheirIsolationAndEnd(t *testing.T) {
	for level, wire := range map[sql.IsolationLevel]uint8{
		sql.LevelDefault:         0,
		sql.LevelReadUncommitted: 1,
		sql.LevelReadCommitted:   2,
		sql.LevelRepeatableRead:  3,
		sql.LevelSerializable:    4,
		sql.LevelSnapshot:        5,
	} {
		t.Run(level.String(), func(t *testing.T) {
			var rec recorder
			db := open(t, serve(t, &fakeHandler{run: transactional(&rec)}, tds.Options{}))
			tx, err := db.BeginTx(within(t), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			_, err = tx.ExecContext(within(t), "update q")
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			tx, err = db.BeginTx(within(t), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())

			got := rec.take()
			require.Len(t, got, 5)
			begin := tds.TxRequest{Op: tds.TxBegin, Isolation: wire}
			for i, want := range []tds.TxRequest{begin, {}, {Op: tds.TxCommit}, begin, {Op: tds.TxRollback}} {
				require.Equal(t, want, got[i].Tx)
			}
			require.Equal(t, tds.Transaction, got[0].Kind)
			require.Equal(t, tds.Batch, got[1].Kind)
		})
	}
}

func TestATransactionThatTheServerRolledBackCannotBeCommitted(t *testing.T) {
	const id = 5
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		switch {
		case r.Tx.Op == tds.TxBegin:
			return w.TxBegan(id)
		case r.Kind == tds.Batch:
			return answer(func(w tds.Results) error { return w.TxRolledBack(id) }, message(deadlock))(ctx, r, w)
		default:
			return nothing(ctx, r, w)
		}
	}}
	db := open(t, serve(t, h, tds.Options{}))
	tx, err := db.BeginTx(within(t), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(within(t), "update q")
	require.Equal(t, int32(1205), mssqlError(t, err).Number)
	require.ErrorContains(t, tx.Commit(), "aborted by the server")
}

func TestACommitThatFailsReportsItsError(t *testing.T) {
	var rec recorder
	begin := transactional(&rec)
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		if r.Tx.Op == tds.TxCommit {
			return w.Message(&sqltype.Error{Number: 3902, State: 1, Class: 16, Message: "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION."})
		}
		return begin(ctx, r, w)
	}}
	db := open(t, serve(t, h, tds.Options{}))
	tx, err := db.BeginTx(within(t), nil)
	require.NoError(t, err)
	require.Equal(t, int32(3902), mssqlError(t, tx.Commit()).Number)
}

func TestAConnectionFromThePoolAsksForAReset(t *testing.T) {
	var rec recorder
	s := serve(t, &fakeHandler{run: transactional(&rec)}, tds.Options{})
	db := open(t, s)
	reset := func() []bool {
		var flags []bool
		for _, r := range rec.take() {
			require.False(t, r.KeepTx)
			flags = append(flags, r.Reset)
		}
		return flags
	}
	_, err := db.ExecContext(within(t), "the first")
	require.NoError(t, err)
	rec.take() // the driver requests one even on a new connection
	_, err = db.ExecContext(within(t), "a batch")
	require.NoError(t, err)
	_, err = db.ExecContext(within(t), "a call", 1)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, reset())
	tx, err := db.BeginTx(within(t), nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, []bool{true, false}, reset())

	conn, err := db.Conn(within(t))
	require.NoError(t, err)
	for range 2 {
		_, err = conn.ExecContext(within(t), "on one connection")
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close())
	require.Equal(t, []bool{true, false}, reset())
	require.Len(t, s.Conns(), 1)
}
