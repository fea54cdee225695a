package embedded_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

// rarely is the config of a consumer that polls only when it is woken.
var rarely = chanq.ConsumerConfig{PollEvery: time.Hour}

// read consumes and acks until its input ends. Once it listens, it polls once an hour.
func read(ctx context.Context, path string, _ <-chan string) error {
	db, err := embedded.Open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	q, err := chanq.Open[string](ctx, db, "work", chanq.Config{})
	if err != nil {
		return err
	}
	c, err := q.Consume(ctx, chanq.ConsumerConfig{PollEvery: time.Hour})
	if err != nil {
		return err
	}
	for l := range c.C() {
		if err := l.Ack(); err != nil {
			return err
		}
		if err := l.Wait(ctx); err != nil {
			return err
		}
		fmt.Println(l.Body)
	}
	return c.Shutdown(context.WithoutCancel(ctx))
}

// shared is a queue in a file, with a producer in a process without consumers.
type shared struct {
	*testing.T
	path   string
	db     *sql.DB
	queue  *chanq.Queue[string]
	sender *chanq.Producer[string]
	woken  chan string
	sent   int
}

func share(t *testing.T) *shared {
	t.Helper()
	s := &shared{T: t, path: filepath.Join(t.TempDir(), "queue.db"), woken: make(chan string, 1000)}
	s.db = s.open()
	require.NoError(t, chanq.Migrate(t.Context(), s.db, "work", chanq.Config{}))
	s.queue = testdb.OpenOn[string](s, s.db, "work", chanq.Config{})
	s.sender = testdb.Produce(s, s.queue, chanq.ProducerConfig{})
	return s
}

func (s *shared) open() *sql.DB {
	db, err := embedded.Open(s.path)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, db.Close()) })
	return db
}

// reader starts a process that consumes.
func (s *shared) reader() *child.Process {
	s.Helper()
	p, err := child.Start(context.WithoutCancel(s.Context()), "read", s.path, func(plainQueue string) { s.woken <- plainQueue })
	require.NoError(s, err)
	s.Cleanup(func() {
		p.Stop()
		if err := p.Wait(); !p.Killed() {
			require.NoError(s, err)
		}
	})
	return p
}

// pass sends a message, and waits until a process has received it.
func (s *shared) pass() {
	s.Helper()
	s.sent++
	body := fmt.Sprint(s.sent)
	testdb.SendBy(s, s.sender, chanq.Message[string]{Body: body})
	require.Equal(s, body, testdb.Receive(s, s.woken, "the message"))
}

// settle waits for d, during which nothing should happen.
func (s *shared) settle(d time.Duration) {
	select {
	case <-s.Context().Done():
	case <-time.After(d):
	}
}

func TestAProcessThatPollsOnceAnHourGetsEachMessageImmediately(t *testing.T) {
	t.Parallel()
	s := share(t)
	s.reader()
	s.pass()
	for i := range 30 {
		s.settle(time.Duration(i) * time.Millisecond) // the process claims, polls, or is idle
		s.pass()
	}
}

// A consumer of this process with another *sql.DB.
func TestWithoutANotifierAConsumerWaitsForItsNextPoll(t *testing.T) {
	s := share(t)
	c := testdb.Start(s, testdb.OpenOn[string](s, s.open(), "work", chanq.Config{Notifier: chanq.NoNotifier{}}), rarely)
	woken := testdb.Start(s, testdb.OpenOn[string](s, s.open(), "work", chanq.Config{}), rarely)
	testdb.Eventually(s, "both are idle, for more than a second", func() bool { return c.Stats().Looks > 8 && woken.Stats().Looks > 1 })
	for got := false; !got; {
		before := c.Stats().Looks
		testdb.SendBy(s, s.sender, chanq.Message[string]{Body: "a"})
		select {
		case l := <-woken.C():
			require.NoError(t, l.Ack())
			got = true
		case l := <-c.C(): // its pause has ended at this moment
			require.Greater(t, c.Stats().Looks, before)
			require.NoError(t, l.Ack())
		case <-time.After(testdb.Patience):
			require.Fail(t, "neither consumer gets the message")
		}
	}
	require.NoError(t, woken.Shutdown(testdb.Soon(s)))
	silent := testdb.Produce(s, testdb.OpenOn[string](s, s.open(), "work", chanq.Config{Notifier: chanq.NoNotifier{}}), chanq.ProducerConfig{})
	woken = testdb.Start(s, testdb.OpenOn[string](s, s.open(), "work", chanq.Config{}), rarely)
	testdb.Eventually(s, "it is idle again", func() bool { return woken.Stats().Looks > 1 })
	s.settle(2 * time.Second) // its first pauses are short
	polls := map[*chanq.Consumer[string]]int64{c: c.Stats().Looks, woken: woken.Stats().Looks}
	testdb.SendBy(s, silent, chanq.Message[string]{Body: "b"})
	s.settle(100 * time.Millisecond)
	for consumer, before := range polls {
		if received := len(consumer.C()); consumer.Stats().Looks == before { // otherwise its pause has ended on its own
			require.Zero(t, received)
		}
	}
}

func TestAMessageWakesOneOfFiftyQueuesOfAFile(t *testing.T) {
	const n = 50
	s := share(t)
	db := s.open()
	consumers := make([]*chanq.Consumer[string], n)
	for i := range consumers {
		name := fmt.Sprintf("work%d", i)
		require.NoError(t, chanq.Migrate(t.Context(), s.db, name, chanq.Config{}))
		consumers[i] = testdb.Start(s, testdb.OpenOn[string](s, db, name, chanq.Config{}), rarely)
	}
	looks := func() (sum int64) {
		for _, c := range consumers {
			sum += c.Stats().Looks + c.Stats().EmptyClaims
		}
		return sum
	}
	asleep := func() {
		before := int64(-1)
		testdb.Eventually(s, "all are idle", func() bool {
			was := before
			before = looks()
			s.settle(250 * time.Millisecond)
			return was == before && before >= 4*n
		})
	}
	asleep()
	before := looks()
	for i := range 10 {
		q := testdb.OpenOn[string](s, s.db, fmt.Sprintf("work%d", i), chanq.Config{})
		testdb.Send(s, q, chanq.Message[string]{Body: "a"})
		require.NoError(t, testdb.Take(s, consumers[i], 1)[0].Ack())
	}
	asleep()
	require.LessOrEqual(t, looks()-before, int64(10*5), "the others stay idle")
}

func TestTheFilesOfTheNotifierAreNamed(t *testing.T) {
	s := share(t)
	c := testdb.Start(s, s.queue, chanq.ConsumerConfig{PollEvery: 50 * time.Millisecond})
	testdb.Eventually(s, "it is idle", func() bool { return c.Stats().Looks > 4 })
	require.NoError(t, c.Shutdown(testdb.Soon(s)))
	require.NoError(t, s.sender.Close(testdb.Soon(s)))
	require.NoError(t, s.db.Close())
	for _, file := range embedded.Files(s.path) {
		if err := os.Remove(file); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
	left, err := os.ReadDir(filepath.Dir(s.path))
	require.NoError(t, err)
	require.Empty(t, left)
}
