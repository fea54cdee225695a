package pgnotify_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/prove/testdb/waking"
)

// own consumes an ordered queue: see package waking.
func own(ctx context.Context, dsn string, _ <-chan string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	notifier := pgnotify.New(db, pgnotify.Config{})
	defer notifier.Close()
	return waking.Own(ctx, db, chanq.Config{Notifier: notifier})
}

func TestTheOwnerOfASlotGetsEachMessageImmediately(t *testing.T) {
	dsn := pgtest.DSN(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	p := databaseAt(t, config)
	db := p.connect()
	b, _ := p.notifier(db)
	waking.Owners(t, db, chanq.Config{Notifier: b}, "own", dsn)
}

// shared returns how many sessions hold the lock of the owners of a queue.
func (p *database) shared() (n int) {
	require.NoError(p, p.admin.QueryRowContext(p.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1667788401
		AND mode = 'ShareLock' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n))
	return n
}

func notification(slots ...int) chanq.Notification {
	return chanq.Notification{Queue: work, Messages: len(slots), Slots: slots}
}

// quiet requires that none of the channels has a value.
func (p *database) quiet(woken ...<-chan struct{}) {
	p.Helper()
	p.settle(100 * time.Millisecond)
	for i := range woken {
		require.Empty(p, woken[i], i)
	}
}

func TestANotificationWakesTheProcessesThatOwnOneOfItsSlots(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	var woken [5]<-chan struct{}
	var stops [5]func()
	for i := range woken {
		b, _ := p.notifier(p.connect())
		slots := []int{i, 10 + i}
		if i == 4 {
			slots = []int{} // it owns none
		}
		woken[i], stops[i] = b.Listen(work, slots)
	}
	for i := range woken {
		testdb.Receive(p, woken[i], "the first value")
	}
	require.Equal(t, 5, p.shared())
	require.Empty(t, p.taken(), "no listener slots")
	sender, _ := p.notifier(p.connect())
	sender.Notify(notification(2))
	testdb.Receive(p, woken[2], "the notification")
	p.quiet(woken[:]...)
	sender.Notify(notification(11))
	sender.Notify(notification(13))
	testdb.Receive(p, woken[1], "the notification")
	testdb.Receive(p, woken[3], "the notification")
	p.quiet(woken[:]...)
	sender.Notify(chanq.Notification{Queue: work})
	for i := range woken {
		testdb.Receive(p, woken[i], "a notification for all slots")
	}
	for _, stop := range stops {
		stop()
	}
	testdb.Eventually(p, "no process listens", func() bool { return p.shared() == 0 })
}

// A consumer whose slots change stops listening, and immediately listens again.
func TestAnOwnerThatListensAgainReceivesImmediately(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	b, _ := p.notifier(p.connect())
	woken, stop := b.Listen(work, []int{1})
	testdb.Receive(p, woken, "the first value")
	stop()
	woken, stop = b.Listen(work, []int{2})
	require.Len(t, woken, 1, "the session listens")
	<-woken
	sender, _ := p.notifier(p.connect())
	sender.Notify(notification(1))
	p.quiet(woken)
	sender.Notify(notification(2))
	testdb.Receive(p, woken, "the notification")
	stop()
	testdb.Eventually(p, "the session stops listening soon", func() bool { return p.shared() == 0 })
}

// A notification is sent only to a listener.
func TestNothingIsSentWithoutAListeningOwner(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	listener, err := p.admin.Conn(p.Context())
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, listener.Raw(func(raw any) error {
		conn := raw.(*stdlib.Conn).Conn()
		_, err := conn.Exec(p.Context(), `LISTEN "`+pgnotify.OwnersChannel(work)+`"`)
		require.NoError(p, err)
		sent := func(within time.Duration) bool {
			ctx, cancel := context.WithTimeout(p.Context(), within)
			defer cancel()
			n, err := conn.WaitForNotification(ctx)
			return err == nil && n.Payload == "7"
		}
		sender, _ := p.notifier(p.connect())
		sender.Notify(notification(7))
		require.False(p, sent(200*time.Millisecond), "no process listens")
		b, _ := p.notifier(p.connect())
		woken, stop := b.Listen(work, []int{1})
		defer stop()
		testdb.Receive(p, woken, "the first value")
		sender.Notify(notification(7))
		require.True(p, sent(testdb.Patience))
		p.quiet(woken)
		return nil
	}))
}

// The session of the listener waits for the lock, which a sender holds briefly.
func TestAnOwnerWaitsForTheLockOfASender(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	tx, err := p.admin.BeginTx(p.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	var got bool
	require.NoError(t, tx.QueryRowContext(p.Context(), "SELECT pg_try_advisory_xact_lock(1667788401, $1)", pgnotify.BaseOf(work)+4).Scan(&got))
	require.True(t, got)
	b, _ := p.notifier(p.connect())
	woken, stop := b.Listen(work, []int{1})
	defer stop()
	p.quiet(woken)
	require.NoError(t, tx.Commit())
	testdb.Receive(p, woken, "the first value")
	require.Equal(t, 1, p.shared())
	require.NoError(t, b.Err())
}

// Consumers poll until there is a connection again.
func TestOwnersPollWhileTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	b, changed := p.notifier(p.connect())
	woken, stop := b.Listen(work, []int{1})
	testdb.Receive(p, woken, "the first value")
	_, err := p.admin.ExecContext(p.Context(), "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	require.NoError(t, err)
	_, open := <-woken
	require.False(t, open)
	stop()
	require.Error(t, testdb.Receive(p, changed, "that notifications do not arrive"))
	woken, stop = b.Listen(work, []int{1})
	defer stop()
	testdb.Receive(p, woken, "the first value")
	require.Equal(t, 1, p.shared())
}
