package pgnotify_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// place is a database, to which a test connects as often as it plays processes.
type place struct {
	*testing.T
	config *pgx.ConnConfig
	admin  *sql.DB
}

func newPlace(t *testing.T) *place { return placeAt(t, pgtest.Config(t)) }

func placeAt(t *testing.T, config *pgx.ConnConfig) *place {
	p := &place{T: t, config: config}
	p.admin = p.connect()
	return p
}

// connect is a process's *sql.DB.
func (p *place) connect() *sql.DB {
	db := stdlib.OpenDB(*p.config)
	p.Cleanup(func() { require.NoError(p, db.Close()) })
	return db
}

// notifier is a process's, which tells whether it is heard.
func (p *place) notifier(db *sql.DB) (*pgnotify.Notifier, chan error) {
	changed := make(chan error, 100)
	b := pgnotify.New(db, pgnotify.Config{Changed: func(err error) { changed <- err }})
	p.Cleanup(func() { require.NoError(p, b.Close()) })
	return b, changed
}

// process opens the queue as a process of its own would.
func (p *place) process() (*chanq.Queue[string], *pgnotify.Notifier) {
	db := p.connect()
	b, _ := p.notifier(db)
	return testdb.OpenOn[string](p, db, "work", chanq.Config{Notifier: b}), b
}

func (p *place) migrate() {
	require.NoError(p, chanq.Migrate(p.Context(), p.admin, "work", chanq.Config{}))
}

// seldom has a consumer look only when it is woken, once it has sat down.
var seldom = chanq.ConsumerConfig{PollEvery: time.Hour}

const work = "public.work"

// asleep waits until a consumer sits, has looked since it did, and had the time to fall
// asleep.
func (p *place) asleep(c *chanq.Consumer[string], b *pgnotify.Notifier) {
	testdb.Eventually(p, "it sits", func() bool { return b.Chair(work) >= 0 })
	looks := int64(-1)
	testdb.Eventually(p, "it sleeps", func() bool {
		before := looks
		looks = c.Stats().Looks + c.Stats().EmptyClaims
		p.settle(20 * time.Millisecond)
		return looks == before && looks > 0
	})
}

// settle is a time in which nothing is to happen.
func (p *place) settle(d time.Duration) {
	select {
	case <-p.Context().Done():
	case <-time.After(d):
	}
}

// taken is how many chairs are, and who sits there.
func (p *place) taken() (pids []int) {
	rows, err := p.admin.QueryContext(p.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1667788401 AND mode = 'ExclusiveLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(p, err)
	defer rows.Close()
	for rows.Next() {
		var pid int
		require.NoError(p, rows.Scan(&pid))
		pids = append(pids, pid)
	}
	require.NoError(p, rows.Err())
	return pids
}

// pass sends a message that the consumer has without looking, and acks it.
func (p *place) pass(by *chanq.Producer[string], to *chanq.Consumer[string]) {
	testdb.SendBy(p, by, chanq.Message[string]{Body: "a"})
	require.NoError(p, testdb.Take(p, to, 1)[0].Ack())
}

func TestASleeperOfAnotherProcessHasEachMessageWithoutLooking(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.migrate()
	sends, _ := p.process()
	reads, b := p.process()
	producer, c := testdb.Produce(p, sends, chanq.ProducerConfig{}), testdb.Start(p, reads, seldom)
	var slowest time.Duration
	for range 20 {
		p.asleep(c, b)
		began := time.Now()
		p.pass(producer, c)
		slowest = max(slowest, time.Since(began))
	}
	s := c.Stats()
	t.Logf("slowest %v; %+v", slowest, s)
	require.LessOrEqual(t, s.Looks+s.EmptyClaims, int64(2*20+20), "it does not look instead")
	require.Len(t, p.taken(), 1)
}

// The sender's transaction tells nobody: the caller says when it is committed.
func TestWakeRingsForATransaction(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.migrate()
	sends, _ := p.process()
	reads, b := p.process()
	c := testdb.Start(p, reads, seldom)
	p.asleep(c, b)
	tx, err := p.admin.BeginTx(p.Context(), nil)
	require.NoError(t, err)
	_, err = sends.SendTx(p.Context(), tx, chanq.Message[string]{Body: "a"})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	p.settle(50 * time.Millisecond)
	require.Empty(t, c.C(), "nobody rang")
	sends.Wake()
	testdb.Take(p, c, 1)
}

func TestFourSitAndAMessageWakesOneOfThem(t *testing.T) {
	t.Parallel()
	const n = 6
	p := newPlace(t)
	var heard [n]<-chan struct{}
	var stops [n]func()
	var notifiers [n]*pgnotify.Notifier
	for i := range n {
		notifiers[i], _ = p.notifier(p.connect())
		heard[i], stops[i] = notifiers[i].Listen(work, nil)
	}
	sitting := func() (who []int) {
		for i := range n {
			if notifiers[i].Chair(work) >= 0 {
				who = append(who, i)
			}
		}
		return who
	}
	testdb.Eventually(p, "four sit", func() bool { return len(sitting()) == 4 })
	p.settle(2 * time.Second) // all have tried again
	who := sitting()
	require.Len(t, who, 4)
	require.Len(t, p.taken(), 4)
	for _, i := range who {
		testdb.Receive(p, heard[i], "the first value")
	}
	sum := func() (rung int) {
		for i := range n {
			rung += len(heard[i])
		}
		return rung
	}
	sender, _ := p.notifier(p.connect())
	sender.Notify(chanq.Notification{Queue: work, Messages: 1})
	testdb.Eventually(p, "one is woken", func() bool { return sum() == 1 })
	p.settle(100 * time.Millisecond)
	require.Equal(t, 1, sum())
	sender.Notify(chanq.Notification{Queue: work, Messages: 1000})
	testdb.Eventually(p, "all are woken", func() bool { return sum() == 4 })

	sender.Notify(chanq.Notification{Queue: "public.another", Messages: 1000})
	stops[who[0]]()
	testdb.Eventually(p, "another finds the chair", func() bool { return len(sitting()) == 4 && notifiers[who[0]].Chair(work) < 0 })
	for _, i := range sitting() {
		testdb.Receive(p, heard[i], "the first value, or the ring")
	}
	sender.Notify(chanq.Notification{Queue: work, Messages: 1000})
	testdb.Eventually(p, "it is woken", func() bool { return sum() >= 4 })
	for _, stop := range stops {
		stop()
	}
	testdb.Eventually(p, "nobody sits", func() bool { return len(p.taken()) == 0 })
}

// What was sent to one who did not hear it any more is another's.
func TestARingThatWasNotHeardIsHandedOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first, _ := p.notifier(p.connect())
	second, _ := p.notifier(p.connect())
	heard, stop := first.Listen(work, nil)
	testdb.Receive(p, heard, "the first value")
	sender, _ := p.notifier(p.connect())
	sender.Notify(chanq.Notification{Queue: work, Messages: 1})
	testdb.Eventually(p, "it is rung", func() bool { return len(heard) == 1 })
	late, end := second.Listen(work, nil)
	defer end()
	testdb.Receive(p, late, "the first value")
	stop() // and did not take it
	testdb.Receive(p, late, "what the first one was rung for")
}

func TestAConsumerWhoseReadersAreBusyGivesItsChairUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.migrate()
	sends, _ := p.process()
	busy, notifier := p.process()
	producer, c := testdb.Produce(p, sends, chanq.ProducerConfig{}), testdb.Start(p, busy, seldom)
	p.asleep(c, notifier)
	testdb.SendBy(p, producer, testdb.Texts("a", "b")...) // nobody takes them
	testdb.Eventually(p, "its chair is free", func() bool { return len(p.taken()) == 0 })
	reads, second := p.process()
	idle := testdb.Start(p, reads, seldom)
	p.asleep(idle, second)
	// The busy one has doubling pauses before its next look, and may find a message before the idle one has claimed it.
	for sent := 3; ; sent++ {
		testdb.SendBy(p, producer, testdb.Texts("c")...)
		testdb.Eventually(p, "one of them has it", func() bool { return len(idle.C()) > 0 || len(c.C()) == sent })
		if len(idle.C()) > 0 {
			require.NoError(t, testdb.Take(p, idle, 1)[0].Ack())
			for _, l := range testdb.Take(p, c, sent-1) {
				require.NoError(t, l.Ack())
			}
			return
		}
	}
}

func TestAConnectionThatIsLostIsBackSoonAndWhatCameMeanwhileIsFound(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.migrate()
	sends, _ := p.process()
	db := p.connect()
	b, changed := p.notifier(db)
	producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
	c := testdb.Start(p, testdb.OpenOn[string](p, db, "work", chanq.Config{Notifier: b}), seldom)
	p.asleep(c, b)
	for range 3 {
		killed := time.Now()
		for _, pid := range p.taken() {
			_, err := p.admin.ExecContext(p.Context(), "SELECT pg_terminate_backend($1)", pid)
			require.NoError(t, err)
		}
		p.pass(producer, c)
		require.Error(t, testdb.Receive(p, changed, "that it is not heard"))
		require.NoError(t, testdb.Receive(p, changed, "that it is heard again"))
		p.asleep(c, b)
		t.Log("back after", time.Since(killed))
		require.Less(t, time.Since(killed), 5*testdb.Slowness*time.Second)
		p.pass(producer, c)
	}
}

func TestWhatADriverKeepsToItselfIsFoundOut(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	changed := make(chan error, 10)
	b := pgnotify.Paced(pgnotify.New(p.connect(), pgnotify.Config{Changed: func(err error) { changed <- err }}), 100*time.Millisecond, time.Second, time.Hour)
	defer b.Close()
	heard, stop := b.Listen(work, nil)
	defer stop()
	require.ErrorIs(t, testdb.Receive(p, changed, "word of it"), pgnotify.ErrSilent)
	require.ErrorIs(t, b.Err(), pgnotify.ErrSilent)
	require.Empty(t, heard)
	require.Empty(t, p.taken())
}

// A connection on which nothing comes any more, and nobody says so.
func TestAConnectionThatHasFallenSilentIsFoundOut(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.StartCluster(t).DSN()) // of its own: one of its processes stands still
	require.NoError(t, err)
	p := placeAt(t, config)
	changed := make(chan error, 10)
	b := pgnotify.Paced(pgnotify.New(p.connect(), pgnotify.Config{Changed: func(err error) { changed <- err }}), 200*time.Millisecond, 100*time.Millisecond, time.Hour)
	defer b.Close()
	heard, stop := b.Listen(work, nil)
	defer stop()
	testdb.Receive(p, heard, "the first value")
	p.settle(500 * time.Millisecond)
	require.Empty(t, changed, "it is heard by itself, again and again")
	pid := p.taken()[0]
	freeze(t, pid)
	defer thaw(t, pid)
	require.ErrorIs(t, testdb.Receive(p, changed, "that it is not heard"), pgnotify.ErrSilent)
	_, open := <-heard
	require.False(t, open)
}

func TestAfterCloseNobodyIsHeard(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b, _ := p.notifier(p.connect())
	heard, stop := b.Listen(work, nil)
	testdb.Receive(p, heard, "the first value")
	require.NoError(t, b.Close())
	_, open := <-heard
	require.False(t, open)
	stop()
	heard, stop = b.Listen(work, nil)
	_, open = <-heard
	require.False(t, open)
	stop()
	b.Notify(chanq.Notification{Queue: work})
	testdb.Eventually(p, "its locks are gone", func() bool { return len(p.taken()) == 0 })
	require.NoError(t, b.Close())
}

func ExampleNew() {
	db, err := sql.Open("pgx", "postgres:///shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	notifier := pgnotify.New(db, pgnotify.Config{Changed: func(err error) { fmt.Println("notifier:", err) }})
	defer notifier.Close()
	_ = chanq.Config{Notifier: notifier} // of all queues on db
}
