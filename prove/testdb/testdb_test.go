package testdb

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb/child"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"hang": child.Does(hang)})
	goleak.VerifyTestMain(m)
}

// hanging is a test that waits permanently.
type hanging struct{}

func (hanging) Name() string   { return "TestThatHangs" }
func (hanging) Cleanup(func()) {}

func hang(context.Context, struct{}, <-chan string) error {
	watch(hanging{}, 200*time.Millisecond) // by then it waits
	waitForEver()
	return nil
}

func waitForEver() { <-make(chan struct{}) }

func TestAHungTestIsEndedAndReportsItsPlace(t *testing.T) {
	p, err := child.Start(t.Context(), "hang", struct{}{}, nil)
	require.NoError(t, err)
	err = p.Wait()
	require.ErrorContains(t, err, "TestThatHangs has not ended in its time")
	require.ErrorContains(t, err, "testdb.waitForEver(")
}

// Every engine's errors have the class that they stand for, and its address is that of its server.
func TestEnginesMatchTheirDescription(t *testing.T) {
	for _, e := range append(Engines(), Memory) {
		t.Run(e.Name, func(t *testing.T) {
			w := New(t, e)
			for class := range e.Errors {
				require.Error(t, w.Failure(class))
			}
			require.NoError(t, w.Open().PingContext(w.Soon()))
			network, upstream, err := e.Server(w.Address)
			require.NoError(t, err)
			require.Equal(t, e.Dialect.Name() == "sqlite", network == "" && upstream == "")
		})
	}
}

func TestTheDigestOfStacksNamesThePlacesOfThisModule(t *testing.T) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	list := places(string(stacks))
	require.Len(t, slices.DeleteFunc(list, func(p string) bool {
		return !strings.Contains(p, "TestTheDigestOfStacksNamesThePlacesOfThisModule") || !strings.Contains(p, "testdb_test.go:")
	}), 1)
}
