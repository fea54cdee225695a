package main

import (
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgbell"
)

// waking is how a process uses a queue, with what wakes idle consumers of other
// processes on its engine, or without.
type waking struct {
	queue    chanq.Config
	consumer chanq.ConsumerConfig
	end      func() error
}

func (s *store) waking(bell bool) waking {
	w := waking{queue: s.config(), end: func() error { return nil }}
	switch {
	case !bell:
		w.queue.Bell = chanq.NoBell{}
	case s.engine.wake != nil:
		s.engine.wake(s, &w)
	}
	return w
}

// wakePostgres listens on the queue's own *sql.DB, as its users do.
func wakePostgres(s *store, w *waking) {
	var silent error
	bell := pgbell.New(s.db, pgbell.Config{Changed: func(err error) {
		if err != nil {
			silent = errors.Join(silent, err)
		}
	}})
	w.queue.Bell = bell
	w.end = func() error {
		err := bell.Close() // joins who tells
		return errors.Join(err, silent)
	}
}
