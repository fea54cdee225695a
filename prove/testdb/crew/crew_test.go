package crew_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/prove/testdb/crew"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"count": child.Does(count)})
	goleak.VerifyTestMain(m)
}

// count writes numbers from first on until its first order, and fails at the order "fail".
func count(ctx context.Context, first int, orders <-chan string) error {
	for n := first; ; n++ {
		fmt.Println(n)
		select {
		case order, is := <-orders:
			if is && order == "fail" {
				return errors.New("failed")
			}
			<-ctx.Done()
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

func TestWorkersAreReplacedAndStoppedAndFailuresReported(t *testing.T) {
	lines := make(chan string, 100_000)
	c := crew.New("count", 2, rand.New(rand.NewPCG(1, 1)), func(process int, line string) error {
		lines <- fmt.Sprint(process, ":", line)
		return nil
	})
	t.Cleanup(c.Abandon)
	require.NoError(t, c.Start(0, 7))
	require.Equal(t, "0:7", testdb.Receive(t, lines, "a line"))
	first := c.Places[0]
	require.NoError(t, c.Kill(first))
	require.True(t, first.HasEnded())
	require.Empty(t, c.Running())
	require.NoError(t, c.Start(0, 7))
	require.NoError(t, c.Start(1, 7))

	done, acts := false, 0
	c.Every(0, time.Millisecond, func() error { acts++; return nil })
	if err := c.Freeze(c.Places[1], 50*time.Millisecond); errors.Is(err, errors.ErrUnsupported) {
		t.Log(err)
	} else {
		require.NoError(t, err)
		require.Equal(t, c.Places[:1], c.Running())
	}
	c.After(time.Millisecond, func() error { done = true; return nil })
	require.NoError(t, c.Run(testdb.Soon(t), time.Millisecond, func() (bool, error) { return done && c.Idle() && acts > 2, nil }))
	c.Calm()
	acts = 0
	require.Len(t, c.Running(), 2)
	c.Order("fail")
	never := func() (bool, error) { return false, nil }
	require.ErrorContains(t, c.Run(testdb.Soon(t), time.Millisecond, never), "ended by itself")
	require.Zero(t, acts)
	<-c.Places[0].Ended() // the other one might have failed first
	require.Error(t, c.Kill(c.Places[0]), "it has ended")
}

func TestWorkersEndWithoutError(t *testing.T) {
	c := crew.New("count", 3, rand.New(rand.NewPCG(1, 1)), func(int, string) error { return nil })
	t.Cleanup(c.Abandon)
	for place := range c.Places {
		require.NoError(t, c.Start(place, 1))
	}
	require.NoError(t, c.End(testdb.Soon(t)))
}
