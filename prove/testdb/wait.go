package testdb

import (
	"context"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience is how long a test waits for an expected event: long enough for a loaded machine, and never used up if the
// code is right.
const Patience = 8 * time.Minute

// Bound is the default limit for a test with a World: a test that waits permanently, for example for a missing lease,
// ends here.
const Bound = Slowness * 12 * time.Minute

// T has the methods that the steps of a test need: *testing.T, *testing.B, *rapid.T and *World implement it.
type T interface {
	require.TestingT
	Helper()
	Cleanup(func())
}

// Eventually waits until is returns true. what completes "this did not happen". The pauses between two calls grow
// from 2 to 100 ms, since the tested code needs the processor as well.
func Eventually(t T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 2 * time.Millisecond; ; pause = min(pause*5/4, 100*time.Millisecond) {
		began := time.Now()
		if is() {
			return
		}
		if began.After(deadline) {
			require.Fail(t, "this did not happen: "+what)
		}
		<-time.After(max(pause, 2*time.Since(began)))
	}
}

// Soon returns a context for calls that must return.
func Soon(t T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Receive receives an expected value.
func Receive[V any](t T, from <-chan V, what string) V {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		require.Fail(t, "it never came: "+what)
		panic("unreachable: the test has ended")
	}
}

// watch ends the process, as go test does after its timeout, if the test has not ended after a while. It prints the
// test's name, and the stack of every goroutine.
func watch(t interface {
	Name() string
	Cleanup(func())
}, bound time.Duration) *time.Timer {
	timer := time.AfterFunc(bound, func() {
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fmt.Fprintf(os.Stderr, "%s has not ended in its time; all goroutines:\n\n%s\n", t.Name(), stacks)
		panic(t.Name() + " has not ended in time. Its goroutines wait here:\n" + strings.Join(places(string(stacks)), "\n"))
	})
	t.Cleanup(func() { timer.Stop() })
	return timer
}

// places returns where goroutines of this module wait, each place once: the innermost function, then the functions of
// this module that called it. It is for logs that are cut.
func places(stacks string) (list []string) {
	for _, g := range strings.Split(stacks, "\n\n") {
		head, frames, _ := strings.Cut(g, "\n")
		_, state, _ := strings.Cut(head, "[")
		lines := strings.Split(frames, "\n")
		text, ours := "["+state, 0
		for i := 0; i+1 < len(lines) && ours < callers && !strings.HasPrefix(lines[i], "created by "); i += 2 {
			mine := strings.HasPrefix(lines[i], "github.com/chanq/chanq")
			if mine {
				ours++
			} else if i > 0 {
				continue
			}
			place, _, _ := strings.Cut(path.Base(strings.TrimSpace(lines[i+1])), " ")
			text += fmt.Sprintf(" %s %s", path.Base(lines[i][:max(0, strings.LastIndexByte(lines[i], '('))]), place)
		}
		if ours > 0 && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// callers is how many functions of this module places returns for a goroutine.
const callers = 4
