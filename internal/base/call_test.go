package base

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventsKeepTheirOrderAndAreBounded(t *testing.T) {
	var x Events
	begun, gate := make(chan struct{}), make(chan struct{})
	var called []int
	x.Enqueue(func() { close(begun); <-gate })
	<-begun // it does not count as pending
	for i := range 2 * maxPending {
		x.Enqueue(func() { called = append(called, i) })
	}
	close(gate)
	x.Wait()
	require.InDelta(t, maxPending, len(called), 1)
	for i := range called {
		require.Equal(t, i, called[i])
	}
	x.Enqueue(func() { called = nil })
	x.Close()
	require.Nil(t, called)
	x.Enqueue(func() { t.Error("called after Close") })
	x.Wait()
}

func TestCallReturnsHowAFunctionEnded(t *testing.T) {
	require.NoError(t, Call(func() {}))
	require.ErrorContains(t, Call(func() { panic("aargh") }), "aargh")
	require.ErrorIs(t, Call(runtime.Goexit), ErrGoexit)
	require.ErrorIs(t, Call(func() { panic(unspeakable{}) }), ErrGoexit, "the text of the panic calls Goexit as well")
	require.ErrorContains(t, Panicked(unspeakable{}), "base.unspeakable")
}

type unspeakable struct{}

func (unspeakable) String() string { runtime.Goexit(); return "" }
