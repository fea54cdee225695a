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

// at returns the notifier of a process of its own that has opened path.
func at(t *testing.T, path string) *notifier {
	t.Helper()
	c, err := Connector(path)
	require.NoError(t, err)
	b := c.(*connector).notifier
	t.Cleanup(b.close)
	return b
}

// database is a path at which there is one.
func database(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return path
}

// listen hears a queue from here on.
func listen(t *testing.T, b *notifier) (heard <-chan struct{}, stop func()) {
	t.Helper()
	heard, stop = b.Listen(queue, nil)
	require.True(t, hears(heard), "the first value, at once")
	return heard, stop
}

func hears(heard <-chan struct{}) bool {
	select {
	case _, open := <-heard:
		return open
	default:
		return false
	}
}

func requireHeard(t *testing.T, heard <-chan struct{}) {
	t.Helper()
	select {
	case _, open := <-heard:
		require.True(t, open)
	case <-time.After(time.Minute):
		require.Fail(t, "nothing is heard")
	}
}

// requireQuiet waits for longer than rings are on their way.
func requireQuiet(t *testing.T, heard ...<-chan struct{}) {
	t.Helper()
	<-time.After(10 * yieldFor)
	for i := range heard {
		require.False(t, hears(heard[i]), i)
	}
}

func needPipes(t *testing.T, path string) {
	t.Helper()
	b := at(t, path)
	_, stop := b.Listen(queue, nil)
	defer stop()
	if !hasPipe(b) {
		t.Skip("no named pipes on this system: SQLite is asked")
	}
}

func hasPipe(b *notifier) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines[queue].pipe != nil
}

func TestAMessageWakesOneProcessOfMany(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	const n = 6
	var heard [n]<-chan struct{}
	for i := range n {
		heard[i], _ = listen(t, at(t, path))
	}
	sum := func() (woken int) {
		for i := range n {
			woken += len(heard[i])
		}
		return woken
	}
	sender := at(t, path)
	sender.Notify(chanq.Notification{Queue: "main.another", Messages: 1000})
	requireQuiet(t, heard[:]...)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1})
	require.Eventually(t, func() bool { return sum() == 1 }, time.Minute, time.Millisecond)
	<-time.After(10 * yieldFor)
	require.Equal(t, 1, sum(), "and no other")
	<-time.After(2 * sending)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1 << 20})
	require.Eventually(t, func() bool { return sum() == 1+mostRung }, time.Minute, time.Millisecond, "several for many")
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1 << 20})
	require.Eventually(t, func() bool { return sum() == 2+mostRung }, time.Minute, time.Millisecond, "one more")
}

// Who has just been woken claims, and lets others wake for what comes then.
func TestWhoWasWokenLeavesTheNextRingToOthers(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	sender, first, second := at(t, path), at(t, path), at(t, path)
	heard, _ := listen(t, first)
	require.Eventually(t, func() bool { // on a slow machine the first may be back too soon
		sender.wakeOthers(queue, 1)
		requireHeard(t, heard)
		sender.wakeOthers(queue, 1)
		others, stop := listen(t, second)
		defer stop()
		<-time.After(3 * yieldFor)
		return hears(others)
	}, time.Minute, time.Millisecond)
}

// Many senders of single messages ring each for itself.
func TestRingsThatFollowEachOtherAreFewAndTheLastOneIsKept(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	b := at(t, path)
	sleeper, err := openPipe(b.pipeOf(queue), path) // which reads when we say so
	require.NoError(t, err)
	defer sleeper.close()
	began := time.Now()
	for range 1000 {
		b.Notify(chanq.Notification{Queue: queue, Messages: 1})
	}
	most := 2 + int(time.Since(began)/ringEvery)
	n := 0
	require.Eventually(t, func() bool { n += sleeper.rest(); return n > 1 }, time.Minute, time.Millisecond, "the last one, too")
	require.LessOrEqual(t, n, most)
	<-time.After(10 * ringEvery)
	sleeper.rest()
	b.Notify(chanq.Notification{Queue: queue, Messages: 1})
	b.Notify(chanq.Notification{Queue: queue, Messages: 1})
	b.close()
	require.Equal(t, 2, sleeper.rest(), "at the end none is late")
}

func TestARingOfWhoLeavesIsAnothers(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	sender, leaver, stayer := at(t, path), at(t, path), at(t, path)
	_, stop := leaver.Listen(queue, nil)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1})
	<-time.After(10 * yieldFor)
	others, _ := listen(t, stayer)
	stop() // without its first value, even
	requireHeard(t, others)
	_, stop = listen(t, leaver)
	stop()
	requireQuiet(t, others)

	// Of the same process, too; and what nobody was rung for is nobody's.
	heard, stop := listen(t, stayer)
	first, last := others, heard
	sender.wakeOthers(queue, 2)
	require.Eventually(t, func() bool { return len(first) == 1 && len(last) == 1 }, time.Minute, time.Millisecond)
	require.True(t, hears(first))
	stop()
	requireHeard(t, first)
	_, stop = stayer.Listen(queue, nil)
	stop()
	requireQuiet(t, first)
}

// What lies in the pipe when the last one leaves it is not for who comes after: he looks.
func TestNobodyHearsOfWhatWasRungBefore(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	sender, b := at(t, path), at(t, path)
	sender.wakeOthers(queue, 100)
	heard, stop := listen(t, b)
	requireQuiet(t, heard)
	sender.wakeOthers(queue, 100)
	requireHeard(t, heard)
	stop()
	b.joined.Wait() // it writes again what it had read for nobody
	heard, stop = listen(t, b)
	defer stop()
	requireQuiet(t, heard)
}

func TestAPipeThatWasRemovedIsMadeAgain(t *testing.T) {
	t.Parallel()
	path := database(t)
	needPipes(t, path)
	sender, b := at(t, path), at(t, path)
	heard, _ := listen(t, b)
	require.NoError(t, os.RemoveAll(path+notifySuffix))
	requireHeard(t, heard)
	sender.Notify(chanq.Notification{Queue: queue, Messages: 1})
	requireHeard(t, heard)
	// Where that cannot be, the consumer is told.
	require.NoError(t, os.RemoveAll(path+notifySuffix))
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	_, open := <-heard
	require.False(t, open)
}

func TestWhatIsNoPipeIsLeftAlone(t *testing.T) {
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
			heard, _ := b.Listen(queue, nil)
			requireHeard(t, heard)
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

func TestALinkToAnothersPipeIsNotRung(t *testing.T) {
	path, others := database(t), database(t)
	needPipes(t, path)
	heard, _ := listen(t, at(t, others))
	require.NoError(t, os.Remove(filepath.Join(path+notifySuffix, queue)))
	require.NoError(t, os.Symlink(filepath.Join(others+notifySuffix, queue), filepath.Join(path+notifySuffix, queue)))
	at(t, path).Notify(chanq.Notification{Queue: queue, Messages: 1})
	requireQuiet(t, heard)
}

func TestPipesAreForWhoMayWriteToTheDatabase(t *testing.T) {
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

func TestByAnyNameOfTheDatabaseItIsOneNotifier(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "file.db")))
	require.NoError(t, os.Symlink(filepath.Dir(path), filepath.Join(dir, "folder")))
	t.Chdir(filepath.Dir(path))
	here := at(t, filepath.Base(path))
	t.Chdir(dir)
	heard, _ := listen(t, at(t, path))
	for _, b := range []*notifier{here, at(t, filepath.Join(dir, "file.db")), at(t, filepath.Join("folder", filepath.Base(path)))} {
		b.Notify(chanq.Notification{Queue: queue, Messages: 1})
		requireHeard(t, heard)
	}
}

// Where there are no pipes, SQLite tells of every commit of others.
func TestWithoutPipesSQLiteIsAsked(t *testing.T) {
	t.Parallel()
	path := database(t)
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	b := at(t, path)
	db, err := Open(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	heard, stop := listen(t, b)
	others, _ := b.Listen("main.another", nil)
	requireHeard(t, others)
	for range 3 {
		requireQuietEventually(t, heard)
		_, err = db.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		requireHeard(t, heard)
		requireHeard(t, others)
	}
	stop()
	requireQuietEventually(t, others)
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	requireHeard(t, others)
	b.close()
	for range others { // until it is closed
	}
	b.joined.Wait()
}

// So that what is soon over, such as too many open files, costs no asking for ever.
func TestAPipeThatCouldNotBeMadeIsTriedAgainWhileSQLiteIsAsked(t *testing.T) {
	t.Parallel()
	path := database(t)
	needPipes(t, path)
	require.NoError(t, os.RemoveAll(path+notifySuffix))
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	b := at(t, path)
	heard, stop := listen(t, b)
	require.False(t, hasPipe(b))
	require.NoError(t, os.Remove(path+notifySuffix))
	require.Eventually(t, func() bool { return hasPipe(b) }, time.Minute, time.Millisecond)
	requireQuietEventually(t, heard)
	at(t, path).Notify(chanq.Notification{Queue: queue, Messages: 1})
	requireHeard(t, heard)
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.asks }, time.Minute, time.Millisecond, "nobody asks any more")
	stop()
}

// What is committed before SQLite is asked for the first time came after the last look.
func TestACommitBeforeTheFirstQuestionIsHeard(t *testing.T) {
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
	heard, _ := listen(t, b)
	close(looked)
	requireHeard(t, heard)
}

// requireQuietEventually waits until what was rung for has been heard.
func requireQuietEventually(t *testing.T, heard <-chan struct{}) {
	t.Helper()
	require.Eventually(t, func() bool {
		if hears(heard) {
			return false
		}
		<-time.After(3 * askRest)
		return !hears(heard)
	}, time.Minute, time.Millisecond)
}

// So the consumer polls, and tries again.
func TestWhereSQLiteCannotBeAskedTheConsumerIsTold(t *testing.T) {
	path := database(t)
	require.NoError(t, os.WriteFile(path+notifySuffix, nil, 0o600))
	b := newNotifier(path, func() (driver.Conn, error) { return nil, errors.New("no more files may be open") })
	defer b.close()
	for range 2 {
		heard, stop := b.Listen(queue, nil)
		for range heard { // until it is closed
		}
		stop()
	}
}

func TestANotifierThatIsClosedHearsNothing(t *testing.T) {
	path := database(t)
	b := at(t, path)
	heard, stop := b.Listen(queue, nil)
	b.close()
	b.close()
	for range heard {
	}
	stop()
	heard, stop = b.Listen(queue, nil)
	_, open := <-heard
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

func BenchmarkRing(b *testing.B) {
	path := filepath.Join(b.TempDir(), "queue.db")
	db, err := Open(path)
	require.NoError(b, err)
	defer db.Close()
	for _, sleepers := range []int{0, 1} {
		b.Run(fmt.Sprintf("sleepers=%d", sleepers), func(b *testing.B) {
			c, err := Connector(path)
			require.NoError(b, err)
			notifier := c.(*connector).notifier
			defer notifier.close()
			if sleepers > 0 {
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

// BenchmarkAsk is one of the 200 questions of a second.
func BenchmarkAsk(b *testing.B) {
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
