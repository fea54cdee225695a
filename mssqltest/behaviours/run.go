package behaviours

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
)

// start is what Run sets in each session. The timeout makes a batch that waits for a lock answer Waits.
const start = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET XACT_ABORT OFF; SET LOCK_TIMEOUT 200`

// Run runs one behaviour and returns what was seen: the answers of the steps that have one, separated by "; ". The
// answer of a step is its rows, separated by commas, or "error" and the number of the error. Rows that came before an
// error do not count.
//
// It uses one to three connections of db and closes them; it drops and creates the table dbo.behaviour. So run one
// behaviour at a time in a database. READPAST under SNAPSHOT needs a database with ALLOW_SNAPSHOT_ISOLATION on, and
// the time of the server must pass. Run returns an error if the sessions or the table cannot be set up, a connection
// breaks, or ctx ends.
func Run(ctx context.Context, db *sql.DB, b Behaviour) (seen string, err error) {
	r := &run{db: db, sessions: map[string]*session{}}
	defer func() { err = errors.Join(err, r.end(ctx)) }()
	for _, text := range Setup() {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return "", fmt.Errorf("behaviours: the table for %q: %w", b.Name, err)
		}
	}
	answers := make([]func() (string, error), len(b.Steps))
	for i, step := range b.Steps {
		s, err := r.session(ctx, step.Session)
		if err != nil {
			return "", fmt.Errorf("behaviours: session %s of %q: %w", step.Session, b.Name, err)
		}
		if answers[i] = s.start(ctx, step); !step.Parallel {
			if _, err := answers[i](); err != nil {
				return "", fmt.Errorf("behaviours: step %d of %q: %w", i+1, b.Name, err)
			}
		}
	}
	var all []string
	for i := range answers {
		answer, err := answers[i]()
		if err != nil {
			return "", fmt.Errorf("behaviours: step %d of %q: %w", i+1, b.Name, err)
		}
		if answer != "" {
			all = append(all, answer)
		}
	}
	return strings.Join(all, "; "), nil
}

// run is one call of Run. Its goroutines are those of parallel steps; end joins them.
type run struct {
	db       *sql.DB
	sessions map[string]*session
}

func (r *run) session(ctx context.Context, name string) (*session, error) {
	if s := r.sessions[name]; s != nil {
		return s, nil
	}
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn}
	r.sessions[name] = s
	if _, err := conn.ExecContext(ctx, start); err != nil {
		return nil, err
	}
	return s, nil
}

// end rolls back what the sessions have open, closes them and drops the table.
func (r *run) end(ctx context.Context) error {
	if len(r.sessions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for _, s := range r.sessions {
		s.close(ctx)
	}
	if _, err := r.db.ExecContext(ctx, Setup()[0]); err != nil {
		return fmt.Errorf("behaviours: dropping the table: %w", err)
	}
	return nil
}

// session is one connection.
type session struct {
	conn   *sql.Conn
	cancel context.CancelFunc // of the last step
	done   chan struct{}
}

// start runs a step and returns a function that waits for its answer.
func (s *session) start(ctx context.Context, step Step) func() (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		answer string
		err    error
	)
	done := make(chan struct{})
	s.cancel, s.done = cancel, done
	go func() {
		defer close(done)
		answer, err = s.answer(ctx, step)
	}()
	return func() (string, error) {
		<-done
		return answer, err
	}
}

func (s *session) answer(ctx context.Context, step Step) (string, error) {
	for until := time.Now().Add(5 * time.Second); ; {
		answer, err := s.ask(ctx, step.Text)
		if err != nil || step.Until == "" || answer == step.Until || time.Now().After(until) {
			return answer, err
		}
	}
}

func (s *session) ask(ctx context.Context, text string) (string, error) {
	rows, err := s.conn.QueryContext(ctx, text)
	if err != nil {
		return numbered(err)
	}
	defer func() { _ = rows.Close() }()
	var answer []string
	for {
		columns, err := rows.Columns()
		if err != nil {
			return numbered(err)
		}
		values, places := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(places...); err != nil {
				return "", err
			}
			answer = append(answer, strings.Trim(fmt.Sprint(values), "[]"))
		}
		if !rows.NextResultSet() {
			if err := rows.Err(); err != nil {
				return numbered(err)
			}
			return strings.Join(answer, ","), nil
		}
	}
}

// numbered returns the number of a server's error as an answer. Another error is not an answer.
func numbered(err error) (string, error) {
	var e interface{ SQLErrorNumber() int32 }
	if errors.As(err, &e) {
		return fmt.Sprint("error ", e.SQLErrorNumber()), nil
	}
	return "", err
}

// close ends what the session still runs, rolls back, and closes the connection, whose settings must not stay in the
// pool. The end of a connection alone would roll back later.
func (s *session) close(ctx context.Context) {
	if s.done != nil {
		s.cancel()
		<-s.done
	}
	_, _ = s.conn.ExecContext(ctx, `IF @@TRANCOUNT > 0 ROLLBACK`) // fails if the connection is broken
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}
