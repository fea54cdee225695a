package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// session is one pinned connection with its prepared statements. It is used by
// one goroutine at a time.
type session struct {
	conn     *sql.Conn
	dialect  sqlbatch.Dialect
	prepared map[string]*sql.Stmt // nil where the dialect gains nothing by it
	made     time.Time
	used     time.Time // when it was given back last, or made
	young    float64   // 0…1: those that were made together are not renewed together
	broken   bool      // the connection must be closed: its state is unknown, or it is too old
	fallen   bool      // the driver has panicked: the *sql.Conn may be locked for ever
}

// maxPrepared bounds the statements of a session that several queues share.
const maxPrepared = 256

func newSession(conn *sql.Conn, d sqlbatch.Dialect) *session {
	now := time.Now()
	s := &session{conn: conn, dialect: d, made: now, used: now, young: rand.Float64()}
	if d.Traits().Prepare {
		s.prepared = map[string]*sql.Stmt{}
	}
	return s
}

// old reports a session that is to be renewed at the age of maxAge, or up to an eighth before.
func (s *session) old(maxAge time.Duration) bool {
	return time.Since(s.made) >= maxAge-time.Duration(s.young*float64(maxAge/8))
}

// caught is the package's, and has the connection closed. It is to be deferred.
func (s *session) caught(err *error) {
	if p := recover(); p != nil {
		s.broken, s.fallen = true, true
		*err = newPanicError(p)
	}
}

// answers asks the database for nothing, and waits for the answer.
func (s *session) answers(ctx context.Context) (err error) {
	defer s.caught(&err)
	return answers(ctx, s.conn)
}

func (s *session) run(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) (err error) {
	defer s.caught(&err)
	if len(st.Prior) == 0 {
		return s.one(ctx, st, scan)
	}
	begun := false
	err = func() error {
		for _, text := range s.dialect.Begin() {
			if err := s.one(ctx, sqlbatch.Statement{Text: text}, nil); err != nil {
				return err
			}
			begun = true
		}
		for _, prior := range st.Prior {
			if err := s.one(ctx, prior, nil); err != nil {
				return err
			}
		}
		if err := s.one(ctx, st, scan); err != nil {
			return err
		}
		return s.one(ctx, sqlbatch.Statement{Text: s.dialect.Commit()}, nil)
	}()
	if err != nil && begun {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, e := s.conn.ExecContext(undo, "ROLLBACK"); e != nil {
			s.broken = true
		}
	}
	return err
}

// rollbackTimeout is short: a connection that cannot roll back is closed, which
// does the same.
const rollbackTimeout = 5 * time.Second

func (s *session) one(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	on, err := s.prepare(ctx, st.Text)
	if err != nil {
		return err
	}
	err = execute(ctx, on, st, scan)
	if err != nil && s.dialect.Traits().PrepareTells && s.dialect.Classify(err) == sqlbatch.NoSchema && s.compiles(ctx, st.Text) {
		return &sqlbatch.RunError{Err: err}
	}
	return err
}

// compiles reports whether what a text names is there.
func (s *session) compiles(ctx context.Context, text string) bool {
	stmt, err := s.conn.PrepareContext(ctx, text)
	if err != nil {
		return s.dialect.Classify(err) != sqlbatch.NoSchema
	}
	_ = stmt.Close()
	return true
}

// prepared runs the text that it was made of.
type prepared struct{ *sql.Stmt }

func (p prepared) ExecContext(ctx context.Context, _ string, args ...any) (sql.Result, error) {
	return p.Stmt.ExecContext(ctx, args...)
}

func (p prepared) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return p.Stmt.QueryContext(ctx, args...)
}

// prepare returns what runs a text: the connection, where the dialect gains nothing by a prepared statement.
func (s *session) prepare(ctx context.Context, text string) (Tx, error) {
	if s.prepared == nil {
		return s.conn, nil
	}
	if stmt := s.prepared[text]; stmt != nil {
		return prepared{stmt}, nil
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
	return prepared{stmt}, err
}

// close gives the connection back to the *sql.DB, or closes it if it is broken.
func (s *session) close() {
	if s.fallen {
		s.wreck()
		return
	}
	for _, stmt := range s.prepared {
		_ = stmt.Close()
	}
	if s.broken {
		discard(s.conn)
	} else {
		_ = s.conn.Close()
	}
}

// wreck closes the driver's connection under a *sql.Conn that a panic may have left locked,
// which would keep its Close waiting for ever. Its place among those that the *sql.DB may open
// is lost.
func (s *session) wreck() {
	_ = s.conn.Raw(func(conn any) (err error) {
		defer caught(new(error))
		if c, ok := conn.(driver.Conn); ok {
			_ = c.Close()
		}
		return nil
	})
}
