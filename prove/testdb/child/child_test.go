package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb/child"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"echo": child.Does(echo)})
	goleak.VerifyTestMain(m)
}

type greeting struct{ Word string }

// echo repeats its orders after a greeting, and fails at the order to.
func echo(ctx context.Context, g greeting, orders <-chan string) error {
	for line := range orders {
		if line == "fail" {
			fmt.Fprintln(os.Stderr, "as it was told")
			return errors.New("failed")
		}
		fmt.Println(g.Word, line)
	}
	<-ctx.Done() // ends with the orders, or a moment later
	fmt.Println(ctx.Err())
	return nil
}

func start(t *testing.T, part string) (*child.Process, chan string) {
	heard := make(chan string, 10)
	p, err := child.Start(t.Context(), part, greeting{"hello,"}, func(line string) { heard <- line })
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Wait() }) // its context has ended
	return p, heard
}

func TestAChildRunsOrdersUntilItsInputEnds(t *testing.T) {
	p, heard := start(t, "echo")
	p.Order("world")
	require.Equal(t, "hello, world", <-heard)
	p.Stop()
	require.NoError(t, p.Wait())
	require.Equal(t, "context canceled", <-heard)
	require.False(t, p.Killed())
}

func TestAChildThatFailsReportsTheReason(t *testing.T) {
	p, _ := start(t, "echo")
	p.Order("fail")
	require.ErrorContains(t, p.Wait(), "echo process: exit status 1: as it was told\nfailed")
	require.ErrorContains(t, p.Kill(), "it had ended by itself")
	p, _ = start(t, "another")
	require.ErrorContains(t, p.Wait(), `unknown part "another"`)
}

func TestTheOutputOfAKilledChildIsReceived(t *testing.T) {
	p, heard := start(t, "echo")
	p.Order("world")
	require.Equal(t, "hello, world", <-heard)
	require.NoError(t, p.Kill())
	require.True(t, p.Killed())
	require.ErrorContains(t, p.Wait(), "killed")
	require.Empty(t, heard)
}
