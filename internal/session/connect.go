package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"
)

// connectTimeout bounds an attempt to connect. The pool does not: a caller whose
// context ends leaves the attempt, which keeps its place, to the next one.
const connectTimeout = 15 * time.Second

// connect gives up when ctx ends or connectTimeout is over, whatever the driver
// does: go-mssqldb waits for a server's greeting without looking at the context,
// and one that accepts connections and says nothing would keep every session of
// a consumer for ever. The attempt is then left alone until the driver returns.
//
// A *sql.DB may give a connection that it kept for hours. With probe it is tried
// first.
func connect(ctx context.Context, db *sql.DB, probe bool) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	type result struct {
		conn *sql.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		defer cancel()
		conn, err := attempt(ctx, db, probe)
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close() // nobody waits for it: it goes back to the *sql.DB
			}
		}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Connect returns a connection that answers, for the caller alone to use and close. It returns when ctx ends,
// whatever the driver does, and returns a panic of the driver as an error.
func Connect(ctx context.Context, db *sql.DB) (*sql.Conn, error) { return connect(ctx, db, true) }

func attempt(ctx context.Context, db *sql.DB, probe bool) (conn *sql.Conn, err error) {
	defer caught(&err)
	conn, err = db.Conn(ctx)
	if err == nil && probe {
		conn, err = probed(ctx, db, conn)
	}
	return conn, err
}

const (
	probeTimeout = 5 * time.Second
	probeTries   = 3
)

// probed returns a connection that answers: conn, or another one for it.
func probed(ctx context.Context, db *sql.DB, conn *sql.Conn) (*sql.Conn, error) {
	for tries := 1; ; tries++ {
		err := answers(ctx, conn)
		if err == nil {
			return conn, nil
		}
		discard(conn)
		if tries == probeTries || ctx.Err() != nil {
			return nil, fmt.Errorf("the connection does not answer: %w", err)
		}
		if conn, err = db.Conn(ctx); err != nil {
			return nil, err
		}
	}
}

// answers asks the database for nothing, and waits for the answer.
func answers(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return conn.PingContext(ctx)
}

// discard closes a connection instead of giving it back to its *sql.DB.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
