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
	conn, _, err := connectFar(ctx, db, probe)
	return conn, err
}

// connectFar is connect. far reports that it took longer than a moment because of the network, or of a database that is
// slow: the ping was slow too.
func connectFar(ctx context.Context, db *sql.DB, probe bool) (conn *sql.Conn, far bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	type result struct {
		conn *sql.Conn
		far  bool
		err  error
	}
	done := make(chan result)
	go func() {
		defer cancel()
		conn, far, err := attempt(ctx, db, probe)
		select {
		case done <- result{conn, far, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close() // too late: it returns to the *sql.DB
			}
		}
	}()
	select {
	case r := <-done:
		return r.conn, r.far, r.err
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}

// Connect returns a connection that answers a ping. The caller owns it and must close it. Connect returns when ctx
// ends, whatever the driver does.
func Connect(ctx context.Context, db *sql.DB) (*sql.Conn, error) { return connect(ctx, db, true) }

func attempt(ctx context.Context, db *sql.DB, probe bool) (conn *sql.Conn, far bool, err error) {
	began := time.Now()
	conn, err = db.Conn(ctx)
	asked := time.Now()
	if err == nil && (probe || asked.Sub(began) >= moment) {
		conn, err = probed(ctx, db, conn)
		took := time.Since(began)
		far = took >= moment && took < roundTrips*time.Since(asked)
	}
	return conn, far, err
}

// roundTrips is more than connecting and a ping take together, with TLS.
const roundTrips = 12

const (
	// answerTimeout is how long a connection has to answer a ping or a ROLLBACK. It is short: a connection that does
	// not is closed, which has the same effect.
	answerTimeout = 5 * time.Second
	probeTries    = 3
)

// probed returns a connection that answers a ping: conn, or another one in its place.
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
