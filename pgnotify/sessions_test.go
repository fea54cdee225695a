package pgnotify_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// admins runs statements on the database.
func (p *database) admins(statements ...string) {
	for _, s := range statements {
		_, err := p.admin.ExecContext(p.Context(), s)
		require.NoError(p, err)
	}
}

// as returns the same database for a role without permissions except LOGIN.
func (p *database) as(settings ...string) *database {
	role := p.config.Database + "_guest"
	p.admins("CREATE ROLE " + role + " LOGIN")
	p.Cleanup(func() {
		_, err := p.admin.Exec("DROP ROLE " + role)
		require.NoError(p, err)
	})
	for _, s := range settings {
		p.admins("ALTER ROLE " + role + " SET " + s)
	}
	config := p.config.Copy()
	config.User = role
	return databaseAt(p.T, config)
}

func TestARoleWithoutPermissionsListensAndNotifiesDespiteTimeouts(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	settings := []string{"idle_in_transaction_session_timeout = '4s'", "statement_timeout = '4s'", "lock_timeout = '4s'"}
	var version int
	require.NoError(t, p.admin.QueryRow("SELECT current_setting('server_version_num')::int").Scan(&version))
	if version >= 140_000 { // version 13 does not have this setting
		settings = append(settings, "idle_session_timeout = '4s'")
	}
	limited := p.as(settings...)
	b, changed := p.notifier(limited.connect())
	woken, stop := b.Listen(work, nil)
	defer stop()
	testdb.Receive(p, woken, "the first value")
	p.settle(5 * time.Second) // longer than the timeouts, which a statement of a slow machine does not exceed
	sender, _ := p.notifier(limited.connect())
	sender.Notify(chanq.Notification{Queue: work})
	testdb.Receive(p, woken, "a notification")
	require.Empty(t, changed, "its connection was not lost")
}

func TestARefusalIsReportedOnceAndSeldomRepeated(t *testing.T) {
	t.Parallel()
	for function, refused := range map[string]string{"pg_try_advisory_lock(int, int)": "SELECT i FROM", "pg_notify(text, text)": "SELECT pg_notify"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			p := newDatabase(t)
			p.admins("REVOKE EXECUTE ON FUNCTION " + function + " FROM PUBLIC")
			limited := p.as()
			tried := &tries{of: refused}
			limited.config.Tracer = tried
			b, changed := p.notifier(limited.connect())
			woken, stop := b.Listen(work, nil)
			defer stop()
			require.ErrorContains(t, testdb.Receive(p, changed, "the report"), "permission denied")
			p.settle(3 * time.Second)
			require.Empty(t, changed, "it is reported once")
			require.Empty(t, woken)
			require.LessOrEqual(t, tried.n.Load(), int64(8))
			p.admins("GRANT EXECUTE ON FUNCTION " + function + " TO PUBLIC")
			require.NoError(t, testdb.Receive(p, changed, "that notifications arrive"))
			testdb.Receive(p, woken, "the first value")
		})
	}
}

func TestANotifierTakesNoConnectionFromAPoolOfOne(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	db := p.connect()
	db.SetMaxOpenConns(1)
	changed := make(chan error, 10)
	b := pgnotify.Paced(pgnotify.New(db, pgnotify.Config{Changed: func(err error) { changed <- err }}), time.Second, time.Minute, 100*time.Millisecond)
	defer b.Close()
	woken, stop := b.Listen(work, nil)
	defer stop()
	require.ErrorIs(t, testdb.Receive(p, changed, "the report"), pgnotify.ErrOneConnection)
	require.NoError(t, db.PingContext(p.Context()))
	db.SetMaxOpenConns(2)
	require.NoError(t, testdb.Receive(p, changed, "that notifications arrive"))
	testdb.Receive(p, woken, "the first value")
}

// Changed may block and may panic.
func TestASlowCallbackDoesNotStopTheListener(t *testing.T) {
	t.Parallel()
	server := pgtest.StartCluster(t) // its own cluster, because other listeners would hold its queue
	config, err := pgx.ParseConfig(server.DSN())
	require.NoError(t, err)
	p := databaseAt(t, config)
	reports, goOn := make(chan error, 10), make(chan struct{})
	b := pgnotify.New(p.connect(), pgnotify.Config{Changed: func(err error) {
		reports <- err
		<-goOn
		panic("of Changed")
	}})
	defer b.Close()
	back := sync.OnceFunc(func() { close(goOn) })
	defer back()
	woken, stop := b.Listen(work, nil)
	testdb.Receive(p, woken, "the first value")
	stop()
	woken, stop = b.Listen(work, nil)
	testdb.Receive(p, woken, "the first value")
	p.admins(fmt.Sprintf("SELECT pg_terminate_backend(%d)", p.taken()[0]))
	require.Error(t, testdb.Receive(p, reports, "that it is lost"))
	testdb.Eventually(p, "it is lost", func() bool {
		select {
		case _, open := <-woken:
			return !open
		default:
			return false
		}
	})
	stop()
	woken, stop = b.Listen(work, nil)
	defer stop()
	testdb.Receive(p, woken, "the first value, although Changed has not returned")
	channel := "chnq_" + fmt.Sprint(int(pgnotify.BaseOf(work))+b.Slot(work))
	p.admins(fmt.Sprintf("SELECT pg_notify('%s', repeat('x', 7000) || i) FROM generate_series(1, 600) AS i", channel))
	testdb.Eventually(p, "the server's queue is empty", func() bool {
		p.admins("SELECT pg_notify('others', repeat('x', 7000) || i) FROM generate_series(1, 10) AS i") // makes the server clean up
		var usage float64
		require.NoError(t, p.admin.QueryRowContext(p.Context(), "SELECT pg_notification_queue_usage()").Scan(&usage))
		return usage < 1e-4
	})
	back()
	require.NoError(t, testdb.Receive(p, reports, "that notifications arrive again"))
}

func TestOneConnectionListensForAllQueues(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	db := p.connect()
	b, _ := p.notifier(db)
	names := []string{"public.a", "public.b", "other.a", "other.b", `"Odd'; schema".ä`}
	var channels []<-chan struct{}
	for _, name := range names {
		c, stop := b.Listen(name, nil)
		defer stop()
		testdb.Receive(p, c, "the first value")
		channels = append(channels, c)
	}
	pids := p.taken()
	require.Len(t, pids, len(names))
	for _, pid := range pids {
		require.Equal(t, pids[0], pid)
	}
	sender, _ := p.notifier(p.connect())
	for i, name := range names {
		sender.Notify(chanq.Notification{Queue: name})
		testdb.Receive(p, channels[i], "a notification")
		p.settle(30 * time.Millisecond)
		for _, c := range channels {
			require.Empty(t, c, "of no other queue")
		}
	}
	require.LessOrEqual(t, db.Stats().OpenConnections, 2)
}

// A program that sends and exits closes its Notifier right after its last statement.
func TestCloseSendsPendingNotifications(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	b, _ := p.notifier(p.connect())
	woken, stop := b.Listen(work, nil)
	defer stop()
	testdb.Receive(p, woken, "the first value")
	for sent := 0; sent < 5; {
		db := p.connect()
		sender := pgnotify.New(db, pgnotify.Config{})
		sender.Notify(chanq.Notification{Queue: "public.other"})
		sender.Notify(chanq.Notification{Queue: work})
		sender.Notify(chanq.Notification{Queue: work})
		began := time.Now()
		require.NoError(t, sender.Close())
		if time.Since(began) < pgnotify.LastNotifications { // otherwise the machine was so slow that it gave up
			sent++
			testdb.Receive(p, woken, "its notification")
		}
		p.settle(50 * time.Millisecond)
		select {
		case <-woken: // there were two values
		default:
		}
	}
	gone := pgnotify.New(p.unreachable(), pgnotify.Config{})
	gone.Notify(chanq.Notification{Queue: work})
	began := time.Now()
	require.NoError(t, gone.Close())
	require.Less(t, time.Since(began), 30*testdb.Slowness*time.Second, "but not for long")
}

func TestOneConsumerIsWokenPerMessage(t *testing.T) {
	t.Parallel()
	const each = 8
	p := newDatabase(t)
	var waiters []<-chan struct{}
	var of [2]int // consumers of each process that were notified
	for i := range of {
		b, _ := p.notifier(p.connect())
		for range each {
			c, stop := b.Listen(work, nil)
			defer stop()
			waiters = append(waiters, c)
			testdb.Receive(p, c, "the first value")
		}
		sender, _ := p.notifier(p.connect())
		for _, messages := range []int{1, 2, 5, 1000} {
			sender.Notify(chanq.Notification{Queue: work, Messages: messages})
			want := min(messages, len(waiters))
			if i == 1 && messages == 5 {
				want = 6 // three of each process
			}
			testdb.Eventually(p, "as many are woken", func() bool { return notified(waiters) >= want })
			p.settle(50 * time.Millisecond)
			require.Equal(t, want, notified(waiters), messages)
			for _, c := range waiters {
				select {
				case <-c:
				default:
				}
			}
		}
	}
}

func notified(waiters []<-chan struct{}) (n int) {
	for _, c := range waiters {
		n += len(c)
	}
	return n
}

func TestQueuesWithTheSameHashDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	byBase := map[int32]string{}
	var one, two string
	for i := 0; two == ""; i++ {
		name := fmt.Sprintf("public.q%d", i)
		if other, ok := byBase[pgnotify.BaseOf(name)]; ok {
			one, two = other, name
		}
		byBase[pgnotify.BaseOf(name)] = name
	}
	p := newDatabase(t)
	b, _ := p.notifier(p.connect())
	pgnotify.Lingering(b, 100*time.Millisecond)
	first, leave := b.Listen(one, nil)
	testdb.Receive(p, first, "the first value")
	second, stop := b.Listen(two, nil)
	defer stop()
	testdb.Receive(p, second, "the first value")
	leave()
	p.settle(500 * time.Millisecond)
	sender, _ := p.notifier(p.connect())
	sender.Notify(chanq.Notification{Queue: two})
	testdb.Receive(p, second, "a notification")
}

// unreachable returns a *sql.DB whose server does not respond.
func (p *database) unreachable() *sql.DB {
	config := p.config.Copy()
	config.Host, config.Fallbacks = p.TempDir(), nil
	db := stdlib.OpenDB(*config)
	p.Cleanup(func() { require.NoError(p, db.Close()) })
	return db
}

// tries counts statements with a prefix.
type tries struct {
	of string
	n  atomic.Int64
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(d.SQL, t.of) {
		t.n.Add(1)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *tries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestAFailedNotificationIsRepeated(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	b, _ := p.notifier(p.connect())
	woken, stop := b.Listen(work, nil)
	defer stop()
	testdb.Receive(p, woken, "the first value")
	path := &detour{}
	nowhere := p.config.Copy()
	nowhere.Host, nowhere.Fallbacks = p.TempDir(), nil
	path.to.Store(nowhere)
	sender, _ := p.notifier(path.open(t))
	for began := (time.Time{}); time.Since(began) > pgnotify.SendFor/2; { // on a slow machine it might have given up by then
		path.to.Store(nowhere)
		began = time.Now()
		sender.Notify(chanq.Notification{Queue: work})
		p.settle(100 * time.Millisecond)
		path.to.Store(p.config)
	}
	testdb.Receive(p, woken, "the notification")
}
