package engine

import (
	"context"
	"errors"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// Session is one connection's state. It implements tds.Session: one request at a time.
type Session struct {
	e        *Engine
	id       int
	login    tds.Login
	user     string // dbo is not subject to permissions
	database string // in the client's spelling

	set       settings
	tx        *txn
	apps      lock.Owner // of its session-owned application locks; nil before the first
	trancount int
	unseen    bool // IMPLICIT_TRANSACTIONS began a transaction

	seen seen // by other sessions

	rowcount    int64
	fetchStatus int64
	nest        int
	cursors     map[string]*openCursor // global ones
	prepared    map[int64]prepared     // by handle
	lastHandle  int64

	// The following fields belong to the current request.
	ctx       context.Context
	declared  []string // its cursors, in s.cursors or already deallocated
	out       tds.Results
	frame     *frame
	tries     int            // the depth of nested TRYs
	caught    *sqltype.Error // the error of the current CATCH
	now       Statement
	result    []sqltype.Column // of the current rows
	sent      int
	unflushed int
	broken    error
}

// errAbort ends a batch whose error has been reported.
var errAbort = errors.New("engine: batch ended")

// Run runs one request.
func (s *Session) Run(ctx context.Context, r *tds.Request, w tds.Results) error {
	s.note(&s.seen.request)
	defer s.seen.request.Store(0)
	s.ctx, s.out, s.broken, s.declared = ctx, w, nil, nil
	s.tries, s.caught = 0, nil
	defer func() { s.ctx, s.out = nil, nil }()
	if r.Reset {
		s.reset(r.KeepTx)
	}
	var err error
	switch r.Kind {
	case tds.Batch:
		err = s.runText(r.Text)
	case tds.RPC:
		err = s.runRPC(r)
	case tds.Transaction:
		err = s.transaction(r.Tx)
	}
	if ctx.Err() != nil {
		return nil
	}
	if e, ok := err.(*sqltype.Error); ok {
		s.report(e)
		if s.set.xactAbort && s.trancount > 0 {
			s.rollbackAll()
		}
	}
	return s.broken
}

// Close rolls back and releases every lock.
func (s *Session) Close() {
	s.e.sessions.Delete(s.id)
	if s.tx != nil {
		s.tx.rollback(s.e.db)
		s.tx, s.trancount = nil, 0
	}
	if s.apps != nil {
		s.apps.Release()
	}
}

// reset is sp_reset_connection: it resets everything except the isolation level, and except the transaction if that is
// kept.
func (s *Session) reset(keepTx bool) {
	if s.tx != nil && !keepTx {
		s.rollbackAll()
	}
	level := s.set.level
	s.set = s.defaults()
	s.set.level = level
	s.cursors, s.prepared = nil, nil
	s.rowcount = 0
	if first := s.firstDatabase(); s.database != first {
		s.sentResult(s.out.Database(first, s.database))
		s.database = first
	}
}

func (s *Session) runText(text string) error {
	b, err := s.e.batch(text, "")
	if err != nil {
		return err
	}
	b.stats.add(Cost{Requests: 1})
	f := s.newFrame(b)
	_, err = s.runFrame(f)
	if errors.Is(err, errAbort) {
		return nil
	}
	return err
}

func (s *Session) newFrame(b *batch) *frame {
	return &frame{batch: b, vars: make([]sqltype.Value, len(b.vars)), tables: make([]*table, len(b.tables))}
}

// report sends an error or a message.
func (s *Session) report(e *sqltype.Error) {
	s.sentResult(s.out.Message(e))
}

// sentResult notes that the connection is broken.
func (s *Session) sentResult(err error) {
	if err != nil && s.broken == nil {
		s.broken = err
	}
}

func (s *Session) columns(cols []outCol) error {
	out := make([]sqltype.Column, len(cols))
	for i, c := range cols {
		out[i] = sqltype.Column{Name: c.name, Type: c.typ, Nullable: c.nullable}
	}
	s.sent = 0
	s.result = out
	s.sentResult(s.out.Columns(out))
	return nil
}

// flushEvery is how many rows or bytes are buffered before they are sent.
const (
	flushRows  = 64
	flushBytes = 16 << 10
)

// row sends one row of a result. A client might receive it before the statement has ended.
func (x *exec) row(row Row) error {
	s := x.s
	if h := s.e.hooksNow(); h.OutputRow != nil {
		if err := h.OutputRow(x.ctx, s.now, s.sent); err != nil {
			s.sentResult(s.out.Flush())
			return err
		}
	}
	if s.broken != nil {
		return context.Canceled
	}
	if s.set.textSize < maxTextSize {
		row = s.shorten(row)
	}
	s.sentResult(s.out.Row(row))
	s.sent++
	x.cost.RowsReturned++
	for _, v := range row {
		switch v := v.(type) {
		case []byte:
			s.unflushed += len(v)
		case string:
			s.unflushed += len(v)
		}
	}
	if s.sent%flushRows == 0 || s.unflushed > flushBytes {
		s.unflushed = 0
		s.sentResult(s.out.Flush())
	}
	return nil
}

// done ends a statement.
func (s *Session) done(n *node, rows int64, counted bool) {
	if s.frame.inProc && s.set.noCount && !counted {
		return
	}
	s.sentResult(s.out.Done(tds.End{
		Command: commandOf(n.st), Rows: uint64(rows), Counted: counted && !s.set.noCount, InProc: s.frame.inProc,
	}))
}
