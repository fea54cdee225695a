package group_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/group"
)

func TestWhatIsApartLeavesAloneAndKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Moment = time.Hour
		b := setUp(t, 1, true, cfg)
		b.aside()
		b.addAll(group.Urgent, 1, 2, 3)
		flushed := make(chan error, 1)
		go func() { flushed <- b.backlog.Flush(t.Context()) }()
		synctest.Wait()
		g := b.group(0)
		g.work.Apart(g.group[2], 20*time.Millisecond)
		g.work.Apart(g.group[0], 40*time.Millisecond)
		b.finish(0)
		require.Empty(t, flushed, "it came before")
		require.Equal(t, 2, b.backlog.Waiting())
		require.Equal(t, 2, b.backlog.Open())
		b.wait(20*time.Millisecond - 1)
		require.Len(t, b.left(), 1)
		b.wait(1)
		require.Equal(t, []int{3}, b.left()[1])
		b.add(group.Urgent, 4)
		require.Equal(t, []int{4}, b.left()[2], "what is apart is no reason to wait")
		b.finish(2)
		b.wait(time.Minute)
		require.Len(t, b.left(), 3, "one at a time")
		b.finish(1)
		require.Equal(t, []int{1}, b.left()[3])
		require.Empty(t, flushed)

		// It may be put apart again.
		again := b.group(3)
		again.work.Apart(again.group[0], time.Minute)
		b.finish(3)
		b.wait(time.Minute)
		require.Equal(t, []int{1}, b.left()[4])
		b.finish(4)
		require.NoError(t, <-flushed)
		b.end()
	})
}

func TestWhatIsApartIsDueOnceAllIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 1, true, settings())
		b.aside()
		b.add(group.Urgent, 1)
		g := b.group(0)
		g.work.Apart(g.group[0], time.Hour)
		b.finish(0)
		b.backlog.Close()
		require.Len(t, b.left(), 1, "Close waits for it")
		b.abandon()
		require.Equal(t, []int{1}, b.left()[1])
		b.finish(1)
		b.end()
	})
}

func TestTheWorkerAsideEndsWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, 2, false, settings())
		b.aside()
		b.add(group.Urgent, 1)
		require.Len(t, b.left(), 1)
		b.end()
	})
}
