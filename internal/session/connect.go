package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"
)

// connectTimeout bounds an attempt to connect, because the pool does not: if a
// caller's context ends, its attempt goes on for the next caller.
const connectTimeout = 15 * time.Second

// connect returns when ctx ends or after connectTimeout, whatever the driver does:
// go-mssqldb ignores the context while it waits for a server's greeting, and a
// server that accepts connections but never answers would block every session of
// a consumer permanently. The attempt is then left behind until the driver returns.
//
// A *sql.DB might return a connection that was idle for hours. With probe set,
// connect pings it first.
func connect(ctx context.Context, db *sql.DB, probe bool) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	type result struct {
		conn *sql.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		defer cancel()
		conn, err := db.Conn(ctx)
		if err == nil && probe {
			conn, err = probed(ctx, db, conn)
		}
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close() // too late: it returns to the *sql.DB
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

// Connect returns a connection that answers a ping. The caller owns it and must close it. Connect returns when ctx
// ends, whatever the driver does.
func Connect(ctx context.Context, db *sql.DB) (*sql.Conn, error) { return connect(ctx, db, true) }

const (
	// answerTimeout is how long a connection has to answer a ping or a ROLLBACK. It is short: a connection that does
	// not is closed, which has the same effect. An attempt to connect that takes longer is a sign of scarcity.
	answerTimeout = 3 * time.Second
	// tries is how many connections are tried after one that does not answer, or fails for good.
	tries = 3
)

// probed returns a connection that answers a ping: conn, or another one in its place.
func probed(ctx context.Context, db *sql.DB, conn *sql.Conn) (*sql.Conn, error) {
	for n := 1; ; n++ {
		err := answers(ctx, conn)
		if err == nil {
			return conn, nil
		}
		discard(conn)
		if n == tries || ctx.Err() != nil {
			return nil, fmt.Errorf("the connection does not answer: %w", err)
		}
		if conn, err = db.Conn(ctx); err != nil {
			return nil, err
		}
	}
}

// answers pings the database and waits for its answer.
func answers(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return conn.PingContext(ctx)
}

// discard closes a connection instead of returning it to its *sql.DB.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
