package main

import (
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/pgnotify"
)

// waking is a process's use of a queue, with or without the Notifier of its engine that wakes idle
// consumers of other processes.
type waking struct {
	queue chanq.Config
	end   func() error
}

func (s *store) waking(notifier bool) waking {
	w := waking{queue: s.config(), end: func() error { return nil }}
	switch {
	case !notifier:
		w.queue.Notifier = chanq.NoNotifier{}
	case s.engine.wake != nil:
		s.engine.wake(s, &w)
	}
	return w
}

// A Notifier listens on the queue's *sql.DB, as in users' programs.

func wakePostgres(s *store, w *waking) {
	w.by(func(changed func(error)) closingNotifier {
		return pgnotify.New(s.db, pgnotify.Config{Changed: changed})
	})
}

func wakeSQLServer(s *store, w *waking) {
	w.by(func(changed func(error)) closingNotifier {
		return mssqlnotify.New(s.db, mssqlnotify.Config{Changed: changed})
	})
}

type closingNotifier interface {
	chanq.Notifier
	Close() error
}

// by uses a Notifier. end returns an error that it reports in between.
func (w *waking) by(open func(changed func(error)) closingNotifier) {
	var silent error
	notifier := open(func(err error) {
		if err != nil {
			silent = errors.Join(silent, err)
		}
	})
	w.queue.Notifier = notifier
	w.end = func() error {
		err := notifier.Close() // joins the goroutine that calls changed
		return errors.Join(err, silent)
	}
}
