package pgnotify

import (
	"context"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// The listener: one goroutine with one connection, which it always reads, so that the server's
// notification queue never waits for it.

const (
	lowPause  = 100 * time.Millisecond // before the next connection, initially
	highPause = 4 * time.Second        // at most
	mostWait  = time.Hour
)

// pace has the intervals that tests shorten.
type pace struct {
	silence time.Duration // the time limit for a notification to itself
	pulse   time.Duration // the time without a notification after which one is sent
	off     time.Duration // before the next attempt if there is a pooler
	lingers time.Duration // how long the session listens to the channel of a released slot: the same process often acquires it again
}

var usual = pace{silence: time.Second, pulse: 30 * time.Second, off: time.Minute, lingers: 5 * time.Second}

// lostError is the error of a connection that had received notifications.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// errOld ends a connection that has reached its age.
var errOld = errors.New("the connection is old")

// listen connects repeatedly until Close.
func (b *Notifier) listen() {
	defer b.disconnect(false)
	pause, silent := lowPause, false
	for b.open.Err() == nil {
		err := b.connect()
		b.disconnect(errors.Is(err, errOld))
		if b.open.Err() != nil {
			return
		}
		if errors.Is(err, errOld) {
			continue
		}
		b.status.Report(err)
		var lost lostError
		wait := pause
		switch {
		case errors.Is(err, ErrDriver):
			return
		case errors.As(err, &lost):
			wait, pause, silent = lowPause, lowPause, false // the server may be available again
		case errors.Is(err, ErrOneConnection), errors.Is(err, ErrSilent) && silent:
			wait = b.pace.off
		case errors.Is(err, ErrSilent):
			silent = true // a single failure may be temporary
		}
		b.sleep(wait/2 + rand.N(wait/2+1))
		pause = min(2*pause, highPause)
	}
}

// connect serves a connection until it fails.
func (b *Notifier) connect() (err error) {
	ctx, cancel := context.WithTimeout(b.open, commandTimeout)
	defer cancel()
	if b.db.Stats().MaxOpenConnections == 1 {
		return ErrOneConnection // the listener would keep it permanently
	}
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // already closed by Raw, except after a panic
	_ = conn.Raw(func(raw any) error {
		if c, ok := raw.(interface{ Conn() *pgx.Conn }); ok {
			s := session{notifier: b, conn: c.Conn()}
			err = s.serve()
		} else {
			err = ErrDriver
		}
		return driver.ErrBadConn // closes the connection, which has locks and channels
	})
	return err
}
