package tds_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// blocker is a session that writes something, then runs until its context ends. The clients' contexts that it creates
// end when it has reached this point.
type blocker struct {
	parts  []func(tds.Results) error
	cancel context.CancelFunc
	causes chan error // why each run ended
}

func newBlocker(parts ...func(tds.Results) error) *blocker {
	return &blocker{parts: parts, causes: make(chan error, 1), cancel: func() {}}
}

func (b *blocker) run(ctx context.Context, r *tds.Request, w tds.Results) error {
	if r.Text == "select 1" {
		return nothing(ctx, r, w)
	}
	if err := answer(b.parts...)(ctx, r, w); err != nil {
		return err
	}
	b.cancel()
	<-ctx.Done()
	b.causes <- context.Cause(ctx)
	return ctx.Err()
}

// context ends when the session blocks.
func (b *blocker) context(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(within(t))
	b.cancel = cancel
	return ctx
}

func TestAnAttentionCancelsTheRequestAndKeepsTheConnection(t *testing.T) {
	many := make([]func(tds.Results) error, 10_000)
	for i := range many {
		many[i] = row(int64(i))
	}
	for name, parts := range map[string][]func(tds.Results) error{
		"before anything was written": nil,
		"within rows not sent":        {columns(intColumn("n")), row(int64(1))},
		"within rows that were sent":  {columns(intColumn("n")), row(int64(1)), tds.Results.Flush, row(int64(2))},
		"within many packets":         append([]func(tds.Results) error{columns(intColumn("n"))}, many...),
		"between statements":          {columns(intColumn("n")), row(int64(1)), counted(1)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBlocker(parts...)
			s := serve(t, &fakeHandler{run: b.run}, tds.Options{})
			db := open(t, s, "packet size=512")
			db.SetMaxOpenConns(1)
			for _, args := range [][]any{nil, {1}} {
				_, err := db.ExecContext(b.context(t), "waitfor delay '1:00'", args...)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, <-b.causes, tds.ErrAttention)
				_, err = db.ExecContext(within(t), "select 1")
				require.NoError(t, err)
			}
			conns := s.Conns()
			require.Len(t, conns, 1)
			require.Equal(t, 51, conns[0].ID(), "the first connection still works")
		})
	}
}

// expiring is a context whose deadline passes when expired is closed.
type expiring struct {
	context.Context
	expired chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.expired }

func (e expiring) Err() error {
	select {
	case <-e.expired:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// The driver takes context.DeadlineExceeded for a network error and drops a connection that was in fact acknowledged.
func TestADeadlineIsAlsoAcknowledged(t *testing.T) {
	b := newBlocker()
	observed := make(chan tds.Exchange, 1)
	s := serve(t, &fakeHandler{run: b.run}, tds.Options{Observe: func(_ *tds.Conn, e tds.Exchange) { observed <- e }})
	db := open(t, s)
	ctx := expiring{within(t), make(chan struct{})}
	b.cancel = func() { close(ctx.expired) } // when the request runs: the login might take longer than any deadline
	_, err := db.ExecContext(ctx, "waitfor delay '1:00'")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, <-b.causes, tds.ErrAttention)
	e := <-observed
	require.True(t, e.Interrupted)
	require.False(t, e.Lost)
}

func TestLeavingRowsUnreadSendsAnAttention(t *testing.T) {
	b := newBlocker(columns(intColumn("n")), row(int64(1)), tds.Results.Flush)
	s := serve(t, &fakeHandler{run: b.run}, tds.Options{})
	db := open(t, s)
	rows, err := db.QueryContext(within(t), "select n")
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.NoError(t, rows.Err())
	_ = rows.Close()
	require.ErrorIs(t, <-b.causes, tds.ErrAttention)
	_, err = db.ExecContext(within(t), "select 1")
	require.NoError(t, err)
	require.Len(t, s.Conns(), 1)
}

func TestOutputOfASessionAfterAnAttentionIsDiscarded(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	after := make(chan error, 1)
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		if r.Text == "select 1" {
			return nothing(ctx, r, w)
		}
		cancel()
		<-ctx.Done()
		after <- answer(columns(intColumn("n")), row(int64(1)), message(deadlock), counted(1), tds.Results.Flush)(ctx, r, w)
		return nil
	}}
	s := serve(t, h, tds.Options{})
	db := open(t, s)
	_, err := db.ExecContext(ctx, "update q")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, <-after)
	_, err = db.ExecContext(within(t), "select 1")
	require.NoError(t, err)
	require.Equal(t, 51, s.Conns()[0].ID())
}

// The end of a transaction is not discarded with the rest of the answer: the client would commit a transaction that no
// longer exists.
func TestARollbackAroundAnAttentionReachesTheClient(t *testing.T) {
	const id = 77
	for _, before := range []bool{true, false} {
		ctx, cancel := context.WithCancel(within(t))
		h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
			switch {
			case r.Tx.Op == tds.TxBegin:
				return w.TxBegan(id)
			case r.Text != "update q":
				return nothing(ctx, r, w)
			}
			if before {
				defer func() { <-ctx.Done() }()
				defer cancel()
				return w.TxRolledBack(id)
			}
			cancel()
			<-ctx.Done()
			return w.TxRolledBack(id)
		}}
		db := open(t, serve(t, h, tds.Options{}))
		tx, err := db.BeginTx(within(t), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "update q")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, tx.Commit(), "aborted by the server")
	}
}

func TestKillAllCancelsRunningRequests(t *testing.T) {
	b := newBlocker()
	h := &fakeHandler{run: b.run}
	s := serve(t, h, tds.Options{})
	b.cancel = s.KillAll
	_, err := open(t, s).ExecContext(within(t), "update q")
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.ErrorIs(t, <-b.causes, tds.ErrConnectionGone)
	require.Eventually(t, func() bool { return len(s.Conns()) == 0 }, patience, tick)
	opened, closed := h.counts()
	require.Equal(t, []int{1, 1}, []int{opened, closed})
}

func TestCloseEndsRunningRequestsAndSessions(t *testing.T) {
	b := newBlocker()
	blocked := make(chan struct{})
	b.cancel = func() { close(blocked) }
	h := &fakeHandler{run: b.run}
	s := serve(t, h, tds.Options{})
	db := open(t, s)
	failed := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := db.ExecContext(ctx, "update q")
		failed <- err
	}()
	<-blocked
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-b.causes, tds.ErrConnectionGone)
	require.Error(t, <-failed)
	opened, closed := h.counts()
	require.Equal(t, []int{1, 1}, []int{opened, closed})
	require.NoError(t, s.Close(), "closing again has no effect")
}

// endless writes rows until its context or the connection ends.
func endless(stopped chan<- error) func(context.Context, *tds.Request, tds.Results) error {
	return func(ctx context.Context, r *tds.Request, w tds.Results) error {
		if r.Text == "select 1" {
			return nothing(ctx, r, w)
		}
		err := w.Columns([]sqltype.Column{intColumn("n")})
		for ctx.Err() == nil && err == nil {
			err = w.Row([]sqltype.Value{int64(1)})
		}
		stopped <- err
		return err
	}
}

func TestAnAttentionEndsAnAnswerThatTheClientDoesNotRead(t *testing.T) {
	stopped := make(chan error, 1)
	s := serve(t, &fakeHandler{run: endless(stopped)}, tds.Options{})
	db := open(t, s)
	rows, err := db.QueryContext(within(t), "select n")
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.NoError(t, rows.Err())
	_ = rows.Close()
	require.NoError(t, <-stopped)
	_, err = db.ExecContext(within(t), "select 1")
	require.NoError(t, err)
	require.Equal(t, 51, s.Conns()[0].ID())
}

func TestAKillEndsAnAnswerThatTheClientDoesNotRead(t *testing.T) {
	stopped := make(chan error, 1)
	s := serve(t, &fakeHandler{run: endless(stopped)}, tds.Options{})
	rows, err := open(t, s).QueryContext(within(t), "select n")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	s.Conns()[0].Kill()
	if err := <-stopped; err != nil { // its context might have ended first
		require.ErrorIs(t, err, tds.ErrConnectionGone)
	}
	for rows.Next() {
		continue
	}
	require.Error(t, rows.Err(), "the rows never end")
}
