package pgnotify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is the listener's connection. Only the listener uses it.
type session struct {
	notifier *Notifier
	conn     *pgx.Conn

	arrived time.Time // when the last notification arrived

	// A check is a notification to itself with a unique number.
	nonce  string
	check  chan error // receives the error of the send; nil: no send is running
	echoed bool       // the last check arrived
	sent   time.Time  // when the last check was sent; zero: not yet
}

// serve receives notifications until the connection fails, a check does not arrive, the connection is old, or the Notifier is closed. It returns a
// lostError if the connection had received notifications.
func (s *session) serve() error {
	// Before the session takes any lock, because a pooler may pass the session to other clients.
	if err := s.exec("LISTEN " + quoted(s.notifier.own)); err != nil {
		return err
	}
	s.sendCheck()
	for !s.echoed {
		if err := s.wait(mostWait); err != nil {
			if errors.Is(err, ErrSilent) {
				// Another client may have the session by now. The pooler probably assigns it to this client next. If not, this is
				// harmless, because the channel is always the same.
				_ = s.exec("UNLISTEN " + quoted(s.notifier.own))
			}
			return err
		}
	}
	// PostgreSQL 14 and later have this setting.
	err := s.exec("SELECT set_config('idle_session_timeout', '0', false) WHERE current_setting('idle_session_timeout', true) IS NOT NULL")
	if err != nil {
		return err
	}
	next, err := s.act()
	if err != nil {
		return err // a refusal is retried later than a lost connection
	}
	s.notifier.status.Report(nil)
	for old := s.notifier.old(time.Now()); err == nil; {
		left := time.Until(old)
		if left <= 0 {
			return errOld
		}
		if err = s.wait(min(next, left)); err == nil {
			next, err = s.act()
		}
	}
	return lostError{err}
}

// act runs the pending statements, and returns how long there is nothing to do.
func (s *session) act() (time.Duration, error) {
	for {
		j, next, holds := s.notifier.todo(time.Now())
		if j.text == "" {
			if holds {
				next = min(next, s.pulse())
			}
			return next, nil
		}
		n, err := 0, error(nil)
		if j.asks {
			n, err = s.query(j.text)
		} else {
			err = s.exec(j.text)
		}
		if err != nil {
			return 0, err
		}
		j.done(n)
	}
}

// pulse sends a check if no notification has arrived for a while, and returns the time until the next one is needed.
func (s *session) pulse() time.Duration {
	if !s.echoed || s.check != nil {
		return mostWait // a check is in flight
	}
	left := time.Until(s.arrived.Add(s.notifier.pace.pulse))
	if left <= 0 {
		s.sendCheck()
		return mostWait
	}
	return left
}

// exec runs statements without arguments, in one round trip.
func (s *session) exec(text string) error {
	ctx, cancel := context.WithTimeout(s.notifier.open, commandTimeout)
	defer cancel()
	_, err := s.conn.Exec(ctx, text)
	return err
}

// query runs a statement without arguments that returns one number, or no row, which is -1.
func (s *session) query(text string) (n int, err error) {
	ctx, cancel := context.WithTimeout(s.notifier.open, commandTimeout)
	defer cancel()
	err = s.conn.QueryRow(ctx, text, pgx.QueryExecModeSimpleProtocol).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1, nil
	}
	return n, err
}

// wait waits for a notification, for work, or for the end of d. It returns an error if the connection is unusable.
func (s *session) wait(d time.Duration) error {
	if !s.sent.IsZero() {
		d = min(d, time.Until(s.sent.Add(s.notifier.pace.silence)))
	}
	ctx, cancel := context.WithTimeout(s.notifier.open, max(0, min(d, mostWait)))
	defer cancel()
	if !s.notifier.waits(cancel) {
		return s.checked()
	}
	n, err := s.conn.WaitForNotification(ctx)
	s.notifier.waited()
	switch {
	case n != nil:
		s.receive(n)
	case s.notifier.open.Err() != nil:
		return s.notifier.open.Err()
	case s.conn.IsClosed():
		return err
	}
	return s.checked()
}

// receive handles a notification.
func (s *session) receive(n *pgconn.Notification) {
	s.arrived = time.Now()
	if n.Channel == s.notifier.own {
		if n.Payload == s.nonce {
			s.echoed, s.sent = true, time.Time{}
		}
		return
	}
	if s.notifier.receivedOwners(n.Channel, n.Payload) {
		return
	}
	messages, err := strconv.Atoi(n.Payload)
	if err != nil {
		messages = many // another program sent it
	}
	s.notifier.received(n.Channel, messages)
}

// sendCheck sends a notification to itself from another connection, without waiting.
func (s *session) sendCheck() {
	s.check, s.echoed, s.nonce = make(chan error, 1), false, rand.Text()
	b, check := s.notifier, s.check
	text := fmt.Sprintf("SELECT pg_notify('%s', '%s')", b.own, s.nonce) // without arguments, so that no statement is prepared
	b.joined.Go(func() {                                                // the listener keeps the WaitGroup above zero
		ctx, cancel := context.WithTimeout(b.open, commandTimeout)
		defer cancel()
		_, err := b.db.ExecContext(ctx, text)
		check <- err
		b.mu.Lock()
		defer b.mu.Unlock()
		b.kick()
	})
}

// checked returns an error if a check could not be sent or did not arrive.
func (s *session) checked() error {
	select {
	case err := <-s.check:
		s.check = nil
		if err != nil {
			return fmt.Errorf("pgnotify: notify: %w", err)
		}
		if !s.echoed {
			s.sent = time.Now()
		}
	default:
	}
	if !s.sent.IsZero() && time.Since(s.sent) >= s.notifier.pace.silence {
		return ErrSilent
	}
	return nil
}
