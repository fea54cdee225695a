package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// owner listens for slots as a separate process.
func owner(t *testing.T, path string, slots ...int) (b *notifier, woken <-chan struct{}, stop func()) {
	t.Helper()
	b = at(t, path)
	woken, stop = b.Listen(queue, slots)
	require.True(t, isWoken(woken), "the first value, at once")
	return b, woken, stop
}

// ownPipes returns the names of the pipes of the queue's owners.
func ownPipes(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(path + notifySuffix + "/" + queue + "@*")
	require.NoError(t, err)
	return names
}

func notification(slots ...int) chanq.Notification {
	return chanq.Notification{Queue: queue, Messages: len(slots), Slots: slots}
}

func TestANotificationWakesTheProcessesThatOwnOneOfItsSlots(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	var woken [4]<-chan struct{}
	for i := range woken {
		_, woken[i], _ = owner(t, path, i, 10+i)
	}
	sender := at(t, path)
	sender.Notify(notification(2))
	requireWoken(t, woken[2])
	requireQuiet(t, woken[:]...)
	sender.Notify(notification(11, 13))
	requireWoken(t, woken[1])
	requireWoken(t, woken[3])
	requireQuiet(t, woken[:]...)
	sender.Notify(chanq.Notification{Queue: queue})
	for i := range woken {
		requireWoken(t, woken[i])
	}
	sender.Notify(chanq.Notification{Queue: queue, Slots: make([]int, mostRecord)})
	requireWoken(t, woken[0])
	sender.Notify(chanq.Notification{Queue: queue + "2", Slots: []int{0}})
	requireQuiet(t, woken[0])
}

func TestNotificationsThatFollowEachOtherAreMerged(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	_, first, _ := owner(t, path, 1)
	_, second, _ := owner(t, path, 2)
	_, third, _ := owner(t, path, 3)
	sender := at(t, path)
	sender.Notify(notification(1))
	sender.Notify(notification(2))
	sender.Notify(notification(1))
	requireWoken(t, first)
	requireWoken(t, second)
	requireQuiet(t, third)
	sender.Notify(notification(1))
	sender.Notify(notification(2))
	sender.Notify(chanq.Notification{Queue: queue})
	requireWoken(t, third)
}

func TestAnOwnerThatLeavesRemovesItsPipe(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	b, _, stop := owner(t, path, 1)
	require.Len(t, ownPipes(t, path), 1)
	_, stopAnother := b.Listen(queue, []int{2})
	require.Len(t, ownPipes(t, path), 1, "one of the process")
	stop()
	require.Len(t, ownPipes(t, path), 1)
	stopAnother()
	require.Empty(t, ownPipes(t, path))
	_, woken, _ := owner(t, path)
	at(t, path).Notify(notification(1))
	requireQuiet(t, woken)
	at(t, path).Notify(chanq.Notification{Queue: queue})
	requireWoken(t, woken)
}

// The process that had it open has died.
func TestAPipeThatNoProcessHasOpenIsRemovedByASender(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	_, woken, _ := owner(t, path, 1)
	alive := ownPipes(t, path)
	pipe, err := openOwnPipe(filepath.Join(path+notifySuffix, queue+"@dead"), path)
	require.NoError(t, err)
	pipe.close()
	other := filepath.Join(path+notifySuffix, queue+"@file")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	at(t, path).Notify(notification(1))
	requireWoken(t, woken)
	require.Equal(t, append(alive, other), ownPipes(t, path))
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Empty(t, text)
}

// A process that was stopped for a long time has not read its pipe.
func TestAFullPipeWakesEveryOwner(t *testing.T) {
	q := ownerQueue{waiters: []*waiter{{woken: make(chan struct{}, 1), slots: []int{1}}, {woken: make(chan struct{}, 1), slots: []int{2}}}}
	woken := func() (each []bool) {
		for _, w := range q.waiters {
			each = append(each, isWoken(w.woken))
		}
		return each
	}
	q.received([]byte(strings.Repeat("1\n", readBuffer/2)), true)
	require.Equal(t, []bool{true, true}, woken())
	q.received([]byte("1\n1"), false)
	require.Equal(t, []bool{true, false}, woken())
	q.received([]byte("2,2\n"), false)
	require.Equal(t, []bool{false, true}, woken(), "a record in two parts")
	q.received([]byte("what\n"), false)
	require.Equal(t, []bool{true, true}, woken(), "a record of another program")
	q.received([]byte(strings.Repeat("1", mostRecord+1)), false)
	require.Equal(t, []bool{true, true}, woken())
	q.received([]byte("2\n"), false)
	require.Equal(t, []bool{false, true}, woken())
}

func TestTheNamesOfPipesAreReadAgainWhenTheDirectoryHasChanged(t *testing.T) {
	path := database(t)
	needPipes(t, path)
	folder := path + notifySuffix
	_, _, stop := owner(t, path, 1)
	long := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(folder, long, long))
	var l listing
	require.Len(t, l.of(folder), 1)
	require.True(t, l.sure)
	for i := range 3 {
		_, _, _ = owner(t, path, 2)
		require.Len(t, l.of(folder), 2+i)
		require.False(t, l.sure, "another change might have the same time")
	}
	stop()
	require.Len(t, l.of(folder), 3)
	require.Empty(t, l.of(fmt.Sprint(folder, "-none")))
}

func TestOwnersPollAfterTheDatabaseIsClosed(t *testing.T) {
	path := database(t)
	b, woken, stop := owner(t, path, 1)
	b.close()
	_, open := <-woken
	require.False(t, open)
	stop()
	woken, stop = b.Listen(queue, []int{1})
	_, open = <-woken
	require.False(t, open)
	stop()
	require.Empty(t, ownPipes(t, path))
}
