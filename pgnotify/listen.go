package pgnotify

import (
	"context"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// The listener: one goroutine with one connection, which it always reads, so that the
// server's queue of notifications never waits for it.

const (
	lowPause  = 100 * time.Millisecond // before the next connection, at first
	highPause = 4 * time.Second        // and at last
	mostWait  = time.Hour
)

// pace is what tests shorten.
type pace struct {
	silence time.Duration // for how long a notification to itself may be on its way
	pulse   time.Duration // for how long nothing need be heard until one is sent
	off     time.Duration // before the next try where a pooler is in between
	lingers time.Duration // for how long a chair's channel is heard after it was given up: who sits down next is often who did so last
}

var usual = pace{silence: time.Second, pulse: 30 * time.Second, off: time.Minute, lingers: 5 * time.Second}

// deafError is the end of a connection that had been heard.
type deafError struct{ error }

func (e deafError) Unwrap() error { return e.error }

// listen connects again and again until Close.
func (b *Notifier) listen() {
	pause, silent := lowPause, false
	for b.open.Err() == nil {
		err := b.connect()
		b.deafen()
		if b.open.Err() != nil {
			return
		}
		b.status.Set(err)
		var deaf deafError
		wait := pause
		switch {
		case errors.Is(err, ErrDriver):
			return
		case errors.As(err, &deaf):
			wait, pause, silent = lowPause, lowPause, false // it may be there again
		case errors.Is(err, ErrOneConnection), errors.Is(err, ErrSilent) && silent:
			wait = b.pace.off
		case errors.Is(err, ErrSilent):
			silent = true // once may be an accident
		}
		b.sleep(wait/2 + rand.N(wait/2+1))
		pause = min(2*pause, highPause)
	}
}

// connect serves a connection until that fails.
func (b *Notifier) connect() (err error) {
	ctx, cancel := context.WithTimeout(b.open, commandTimeout)
	defer cancel()
	if b.db.Stats().MaxOpenConnections == 1 {
		return ErrOneConnection // we would have it, and nobody else
	}
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // which Raw has closed already, but for a panic
	_ = conn.Raw(func(raw any) error {
		if c, ok := raw.(interface{ Conn() *pgx.Conn }); ok {
			s := session{notifier: b, conn: c.Conn()}
			err = s.serve()
		} else {
			err = ErrDriver
		}
		return driver.ErrBadConn // nobody is to have it after us, with its locks and channels
	})
	return err
}
