package session

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// session is one pinned connection with its prepared statements. It is used by
// one goroutine at a time.
type session struct {
	home     *puddle.Resource[*session] // nil if it is borrowed
	conn     *sql.Conn
	dialect  sqlbatch.Dialect
	prepared map[string]*sql.Stmt // nil unless Traits.Prepare
	made     time.Time
	young    float64 // 0…1: connections that were made together are not replaced together
	broken   bool    // the connection must be closed: its state is unknown, or it is too old
	read     bool    // rows of the statement were passed to its caller: it cannot be run again
}

// maxPrepared bounds the statements of a session that several queues share.
const maxPrepared = 256

func newSession(conn *sql.Conn, d sqlbatch.Dialect) *session {
	s := &session{conn: conn, dialect: d, made: time.Now(), young: rand.Float64()}
	if d.Traits().Prepare {
		s.prepared = map[string]*sql.Stmt{}
	}
	return s
}

// old reports whether the connection is to be replaced: at maxAge, or up to an eighth before.
func (s *session) old(maxAge time.Duration) bool {
	return time.Since(s.made) >= maxAge-time.Duration(s.young*float64(maxAge/8))
}

func (s *session) run(ctx context.Context, st sqlbatch.Statement, scan Scan) error {
	defer base.Crash() // if the caller recovered, the *sql.Conn might stay locked
	if len(st.Prior) == 0 {
		return s.one(ctx, st, scan)
	}
	begun := false
	err := func() error {
		for _, text := range s.dialect.Begin() {
			if err := s.one(ctx, sqlbatch.Statement{Text: text}, nil); err != nil {
				return err
			}
			begun = true
		}
		if err := s.each(ctx, st, scan); err != nil {
			return err
		}
		return s.one(ctx, sqlbatch.Statement{Text: s.dialect.Commit()}, nil)
	}()
	if err != nil && begun {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		if _, e := s.conn.ExecContext(undo, "ROLLBACK"); e != nil {
			s.broken = true
		}
	}
	return err
}

// each runs the statements of st in order, in the open transaction.
func (s *session) each(ctx context.Context, st sqlbatch.Statement, scan Scan) error {
	for _, prior := range st.Prior {
		if err := s.one(ctx, prior, nil); err != nil {
			return err
		}
	}
	return s.one(ctx, st, scan)
}

func (s *session) one(ctx context.Context, st sqlbatch.Statement, scan Scan) error {
	stmt, err := s.prepare(ctx, st.Text)
	if err != nil {
		return err
	}
	err = s.execute(ctx, stmt, st, scan)
	if err != nil && s.dialect.Traits().PrepareTells && s.dialect.Classify(err) == sqlbatch.NoSchema &&
		s.compiles(ctx, st.Text) {
		return &sqlbatch.RunError{Err: err}
	}
	return err
}

// compiles reports whether the objects that a text names exist.
func (s *session) compiles(ctx context.Context, text string) bool {
	stmt, err := s.conn.PrepareContext(ctx, text)
	if err != nil {
		return s.dialect.Classify(err) != sqlbatch.NoSchema
	}
	_ = stmt.Close()
	return true
}

// execute runs a statement, by stmt if it is prepared. An answer after the end of ctx counts for nothing: the driver
// might have cancelled the wait of PostgreSQL's commit for the synchronous standby, and what it stored would then be
// lost with the primary.
func (s *session) execute(ctx context.Context, stmt *sql.Stmt, st sqlbatch.Statement,
	scan Scan) error {
	var err error
	if scan == nil {
		if stmt != nil {
			_, err = stmt.ExecContext(ctx, st.Args...)
		} else {
			_, err = s.conn.ExecContext(ctx, st.Text, st.Args...)
		}
		return cmp.Or(err, ctx.Err())
	}
	var rows *sql.Rows
	if stmt != nil {
		rows, err = stmt.QueryContext(ctx, st.Args...)
	} else {
		rows, err = s.conn.QueryContext(ctx, st.Text, st.Args...)
	}
	if err != nil {
		return err
	}
	s.read = true
	return cmp.Or(drain(rows, scan), ctx.Err())
}

func (s *session) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if s.prepared == nil {
		return nil, nil
	}
	if stmt := s.prepared[text]; stmt != nil {
		return stmt, nil
	}
	if len(s.prepared) >= maxPrepared {
		for t, stmt := range s.prepared {
			_ = stmt.Close()
			delete(s.prepared, t)
		}
	}
	stmt, err := s.conn.PrepareContext(ctx, text)
	if err == nil {
		s.prepared[text] = stmt
	}
	return stmt, err
}

// close returns the connection to the *sql.DB, or closes it if it is broken.
func (s *session) close() {
	for _, stmt := range s.prepared {
		_ = stmt.Close()
	}
	if s.broken {
		discard(s.conn)
	} else {
		_ = s.conn.Close()
	}
}

// renew replaces the connection by one that nothing has used before: it closes the idle ones of the *sql.DB, which
// might be affected too. A database with one writer might be in memory, and last as long as they do.
func (s *session) renew(ctx context.Context, p *Pool) error {
	for n := p.db.Stats().Idle; n > 0 && !p.oneWriter(); n-- {
		if conn, err := connect(ctx, p.db, false); err == nil {
			discard(conn)
		}
	}
	return s.reconnect(ctx, p)
}

// reconnect replaces the connection.
func (s *session) reconnect(ctx context.Context, p *Pool) error {
	s.broken = true
	s.close()
	conn, err := p.connect(ctx, true)
	if err == nil {
		home := s.home
		*s = *newSession(conn, s.dialect)
		s.home = home
	}
	return err
}
