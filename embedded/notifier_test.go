package embedded

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

const queue = "main.work"

// at returns the notifier of a simulated process that has opened path.
func at(t *testing.T, path string) *notifier {
	t.Helper()
	c, err := Connector(path)
	require.NoError(t, err)
	b := c.(*connector).notifier
	t.Cleanup(b.close)
	return b
}

// database returns the path of a new database.
func database(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return path
}

// listen listens for a queue, and receives the first value.
func listen(t *testing.T, b *notifier) (woken <-chan struct{}, stop func()) {
	t.Helper()
	woken, stop = b.Listen(queue, nil)
	require.True(t, isWoken(woken), "the first value, at once")
	return woken, stop
}

func isWoken(woken <-chan struct{}) bool {
	select {
	case _, open := <-woken:
		return open
	default:
		return false
	}
}

func requireWoken(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case _, open := <-woken:
		require.True(t, open)
	case <-time.After(time.Minute):
		require.Fail(t, "no notification arrives")
	}
}

// requireQuiet requires that no notification arrives in more than its usual time.
func requireQuiet(t *testing.T, woken ...<-chan struct{}) {
	t.Helper()
	<-time.After(10 * yieldFor)
	for i := range woken {
		require.False(t, isWoken(woken[i]), i)
	}
}

func needPipes(t *testing.T, path string) {
	t.Helper()
	b := at(t, path)
	_, stop := b.Listen(queue, nil)
	defer stop()
	if !hasPipe(b) {
		t.Skip("no named pipes on this system: SQLite is polled")
	}
}

func hasPipe(b *notifier) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plain[queue].pipe != nil
}

func TestAMessageWakesOneProcessOfMany(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	const n = 6
	var woken [n]<-chan struct{}
	for i := range n {
		woken[i], _ = listen(t, at(t, path))
	}
	sum := func() (total int) {
		for i := range n {
			total += len(woken[i])
		}
		return total
	}
	sender := at(t, path)
	sender.Notify(chanq.Notification{Queue: "main.another", Messages: 1000})
	requireQuiet(t, woken[:]...)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1})
	require.Eventually(t, func() bool { return sum() == 1 }, time.Minute, time.Millisecond)
	<-time.After(10 * yieldFor)
	require.Equal(t, 1, sum(), "and no other")
	<-time.After(2 * sending)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1 << 20})
	require.Eventually(t, func() bool { return sum() == 1+mostWoken }, time.Minute, time.Millisecond, "several for many")
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1 << 20})
	require.Eventually(t, func() bool { return sum() == 2+mostWoken }, time.Minute, time.Millisecond, "one more")
}

// A woken process claims, and leaves the next notification to other processes.
func TestAWokenProcessLeavesTheNextNotificationToOthers(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	sender, first, second := at(t, path), at(t, path), at(t, path)
	woken, _ := listen(t, first)
	require.Eventually(t, func() bool { // on a slow machine the first process may read again too early
		sender.wakeOthers(queue, 1)
		requireWoken(t, woken)
		sender.wakeOthers(queue, 1)
		others, stop := listen(t, second)
		defer stop()
		<-time.After(3 * yieldFor)
		return isWoken(others)
	}, time.Minute, time.Millisecond)
}

// Senders of single messages send one notification each.
func TestNotificationsInASeriesAreMergedAndTheLastOneIsSent(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	b := at(t, path)
	reader, err := openPipe(b.pipeOf(queue), path) // the test reads it
	require.NoError(t, err)
	defer reader.close()
	began := time.Now()
	for range 1000 {
		b.Notify(chanq.Notification{Queue: queue, Messages: 1})
	}
	most := 2 + int(time.Since(began)/notifyEvery)
	n := 0
	require.Eventually(t, func() bool { n += reader.rest(); return n > 1 }, time.Minute, time.Millisecond, "also the last one")
	require.LessOrEqual(t, n, most)
	<-time.After(10 * notifyEvery)
	reader.rest()
	b.Notify(chanq.Notification{Queue: queue, Messages: 1})
	b.Notify(chanq.Notification{Queue: queue, Messages: 1})
	b.close()
	require.Equal(t, 2, reader.rest(), "Close sends the delayed one")
}

func TestANotificationOfAConsumerThatLeavesIsPassedOn(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	sender, leaver, stayer := at(t, path), at(t, path), at(t, path)
	_, stop := leaver.Listen(queue, nil)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1})
	<-time.After(10 * yieldFor)
	others, _ := listen(t, stayer)
	stop() // without receiving even its first value
	requireWoken(t, others)
	_, stop = listen(t, leaver)
	stop()
	requireQuiet(t, others)

	// The same within one process. An unreceived first value is not passed on.
	woken, stop := listen(t, stayer)
	first, last := others, woken
	sender.wakeOthers(queue, 2)
	require.Eventually(t, func() bool { return len(first) == 1 && len(last) == 1 }, time.Minute, time.Millisecond)
	require.True(t, isWoken(first))
	stop()
	requireWoken(t, first)
	_, stop = stayer.Listen(queue, nil)
	stop()
	requireQuiet(t, first)
}

// Bytes that are in the pipe when the last process leaves wake no later consumer, because that
// polls first.
func TestEarlierNotificationsWakeNoLaterConsumer(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	sender, b := at(t, path), at(t, path)
	sender.wakeOthers(queue, 100)
	woken, stop := listen(t, b)
	requireQuiet(t, woken)
	sender.wakeOthers(queue, 100)
	requireWoken(t, woken)
	stop()
	b.joined.Wait() // it writes bytes back that it had read without a waiter
	woken, stop = listen(t, b)
	defer stop()
	requireQuiet(t, woken)
}

func TestARemovedPipeIsCreatedAgain(t *testing.T) {
	t.Parallel()
	path := database(t)
	needPipes(t, path)
	sender, b := at(t, path), at(t, path)
	woken, _ := listen(t, b)
	require.NoError(t, os.RemoveAll(path+notifySuffix))
	requireWoken(t, woken)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1})
	requireWoken(t, woken)
	// If the pipe cannot be opened again, the channel of the consumer is closed.
	require.Eventually(t, func() bool { // the reader may create the folder again before the file is there
		return os.RemoveAll(path+notifySuffix) == nil && os.WriteFile(path+notifySuffix, nil, 0o600) == nil
	}, time.Minute, time.Millisecond)
	for range woken { // until it is closed
	}
}

func TestAFileInPlaceOfAPipeIsNotChanged(t *testing.T) {
	for name, plant := range map[string]func(dir, pipe string) error{
		"a file":                func(_, pipe string) error { return os.WriteFile(pipe, []byte("text"), 0o600) },
		"a directory":           func(_, pipe string) error { return os.Mkdir(pipe, 0o700) },
		"a link":                func(dir, pipe string) error { return os.Symlink(dir+"/../text", pipe) },
		"a link for the folder": func(dir, _ string) error { return os.Symlink(filepath.Dir(dir), dir) },
		"a file for the folder": func(dir, _ string) error { return os.WriteFile(dir, []byte("text"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := database(t)
			needPipes(t, path)
			dir := path + notifySuffix
			require.NoError(t, os.RemoveAll(dir))
			text := filepath.Join(filepath.Dir(path), "text")
			require.NoError(t, os.WriteFile(text, []byte("text"), 0o600))
			if !strings.HasSuffix(name, "for the folder") {
				require.NoError(t, os.Mkdir(dir, 0o700))
			}
			require.NoError(t, plant(dir, filepath.Join(dir, queue)))
			b := at(t, path)
			b.Notify(chanq.Notification{Queue: queue, Messages: 1})
			woken, _ := b.Listen(queue, nil)
			requireWoken(t, woken)
			require.False(t, hasPipe(b))
			for _, file := range []string{text, dir, filepath.Join(dir, queue)} {
				if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() {
					now, err := os.ReadFile(file)
					require.NoError(t, err)
					require.Equal(t, "text", string(now))
				}
			}
		})
	}
}

func TestALinkToAnotherPipeIsNotFollowed(t *testing.T) {
	path, others := database(t), database(t)
	needPipes(t, path)
	woken, _ := listen(t, at(t, others))
	require.NoError(t, os.Remove(filepath.Join(path+notifySuffix, queue)))
	require.NoError(t, os.Symlink(filepath.Join(others+notifySuffix, queue), filepath.Join(path+notifySuffix, queue)))
	at(t, path).Notify(chanq.Notification{Queue: queue, Messages: 1})
	requireQuiet(t, woken)
}

func TestPipesAreWritableByTheWritersOfTheDatabase(t *testing.T) {
	for _, c := range []struct{ database, dir, pipe os.FileMode }{
		{0o600, 0o700, 0o600},
		{0o644, 0o744, 0o600},
		{0o664, 0o774, 0o660},
		{0o666, 0o777, 0o666},
	} {
		path := database(t)
		require.NoError(t, os.Chmod(path, c.database))
		needPipes(t, path)
		info, err := os.Stat(path + notifySuffix)
		require.NoError(t, err)
		require.Equal(t, c.dir, info.Mode().Perm())
		info, err = os.Stat(filepath.Join(path+notifySuffix, queue))
		require.NoError(t, err)
		require.Equal(t, c.pipe|os.ModeNamedPipe, info.Mode())
	}
}

func TestAllNamesOfADatabaseShareOneNotifier(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "file.db")))
	require.NoError(t, os.Symlink(filepath.Dir(path), filepath.Join(dir, "folder")))
	t.Chdir(filepath.Dir(path))
	here := at(t, filepath.Base(path))
	t.Chdir(dir)
	woken, _ := listen(t, at(t, path))
	for _, b := range []*notifier{here, at(t, filepath.Join(dir, "file.db")), at(t, filepath.Join("folder", filepath.Base(path)))} {
		b.Notify(chanq.Notification{Queue: queue, Messages: 1})
		requireWoken(t, woken)
	}
}

// Without pipes, every commit of another connection wakes the consumers.
func TestWithoutPipesSQLiteIsPolled(t *testing.T) {
	t.Parallel()
	path := database(t)
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	b := at(t, path)
	db, err := Open(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	woken, stop := listen(t, b)
	others, _ := b.Listen("main.another", nil)
	requireWoken(t, others)
	for range 3 {
		requireQuietEventually(t, woken)
		_, err = db.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		requireWoken(t, woken)
		requireWoken(t, others)
	}
	stop()
	requireQuietEventually(t, others)
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	requireWoken(t, others)
	b.close()
	for range others { // until it is closed
	}
	b.joined.Wait()
}

// A temporary failure, such as too many open files, does not cause permanent polling.
func TestAMissingPipeIsCreatedWhileSQLiteIsPolled(t *testing.T) {
	t.Parallel()
	path := database(t)
	needPipes(t, path)
	require.NoError(t, os.RemoveAll(path+notifySuffix))
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	b := at(t, path)
	woken, stop := listen(t, b)
	require.False(t, hasPipe(b))
	require.NoError(t, os.Remove(path+notifySuffix))
	require.Eventually(t, func() bool { return hasPipe(b) }, time.Minute, time.Millisecond)
	requireQuietEventually(t, woken)
	at(t, path).Notify(chanq.Notification{Queue: queue, Messages: 1})
	requireWoken(t, woken)
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.polls }, time.Minute, time.Millisecond, "the polling ends")
	stop()
}

// A commit before the first poll of SQLite may follow the last poll of the consumer.
func TestACommitBeforeTheFirstPollWakesAConsumer(t *testing.T) {
	path := database(t)
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	c, err := Connector(path)
	require.NoError(t, err)
	looked := make(chan struct{})
	b := newNotifier(path, func() (driver.Conn, error) {
		<-looked
		return c.(*connector).notifier.connect()
	})
	defer b.close()
	woken, _ := listen(t, b)
	close(looked)
	requireWoken(t, woken)
}

// requireQuietEventually waits until all notifications have been received.
func requireQuietEventually(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	require.Eventually(t, func() bool {
		if isWoken(woken) {
			return false
		}
		<-time.After(3 * pollRest)
		return !isWoken(woken)
	}, time.Minute, time.Millisecond)
}

// The consumer then polls and listens again.
func TestIfSQLiteCannotBePolledTheChannelIsClosed(t *testing.T) {
	path := database(t)
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	b := newNotifier(path, func() (driver.Conn, error) { return nil, errors.New("no more files may be open") })
	defer b.close()
	for range 2 {
		woken, stop := b.Listen(queue, nil)
		for range woken { // until it is closed
		}
		stop()
	}
}

func TestListenOnAClosedNotifierReturnsAClosedChannel(t *testing.T) {
	path := database(t)
	b := at(t, path)
	woken, stop := b.Listen(queue, nil)
	b.close()
	b.close()
	for range woken {
	}
	stop()
	woken, stop = b.Listen(queue, nil)
	_, open := <-woken
	require.False(t, open)
	stop()
	b.Notify(chanq.Notification{Queue: queue, Messages: 1})
}

func TestADatabaseInMemoryHasNoNotifier(t *testing.T) {
	db, err := Open(inMemory)
	require.NoError(t, err)
	defer db.Close()
	_, is := db.Driver().(interface{ Ring(string) })
	require.False(t, is)
}

func BenchmarkNotify(b *testing.B) {
	path := filepath.Join(b.TempDir(), "queue.db")
	db, err := Open(path)
	require.NoError(b, err)
	defer db.Close()
	for _, readers := range []int{0, 1} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			c, err := Connector(path)
			require.NoError(b, err)
			notifier := c.(*connector).notifier
			defer notifier.close()
			if readers > 0 {
				_, stop := notifier.Listen(queue, nil)
				defer stop()
			}
			b.ReportAllocs()
			for b.Loop() {
				notifier.Notify(chanq.Notification{Queue: queue, Messages: 1})
			}
		})
	}
}

// BenchmarkPoll measures one of the 200 polls per second.
func BenchmarkPoll(b *testing.B) {
	path := filepath.Join(b.TempDir(), "queue.db")
	c, err := Connector(path)
	require.NoError(b, err)
	notifier := c.(*connector).notifier
	conn, err := notifier.connect()
	require.NoError(b, err)
	defer conn.Close()
	for b.Loop() {
		_, err := dataVersion(conn)
		require.NoError(b, err)
	}
}
