package main

import (
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/pgbell"
)

// waking is how a process uses a queue, with what wakes idle consumers of other
// processes on its engine, or without.
type waking struct {
	queue chanq.Config
	end   func() error
}

func (s *store) waking(bell bool) waking {
	w := waking{queue: s.config(), end: func() error { return nil }}
	switch {
	case !bell:
		w.queue.Notifier = chanq.NoNotifier{}
	case s.engine.wake != nil:
		s.engine.wake(s, &w)
	}
	return w
}

// A Bell listens on the queue's own *sql.DB, as its users do.

func wakePostgres(s *store, w *waking) {
	w.by(func(changed func(error)) closingBell { return pgbell.New(s.db, pgbell.Config{Changed: changed}) })
}

func wakeSQLServer(s *store, w *waking) {
	w.by(func(changed func(error)) closingBell {
		return mssqlnotify.New(s.db, mssqlnotify.Config{Changed: changed})
	})
}

type closingBell interface {
	chanq.Notifier
	Close() error
}

// by uses a Bell. What it reports meanwhile is an error of end.
func (w *waking) by(open func(changed func(error)) closingBell) {
	var silent error
	bell := open(func(err error) {
		if err != nil {
			silent = errors.Join(silent, err)
		}
	})
	w.queue.Notifier = bell
	w.end = func() error {
		err := bell.Close() // joins the goroutine that calls changed
		return errors.Join(err, silent)
	}
}
