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

func TestCallReturnsHoweverAFunctionEnds(t *testing.T) {
	called := 0
	for _, end := range []func(){func() {}, func() { panic("aargh") }, runtime.Goexit,
		func() { panic(unspeakable{}) }} {
		Call(func() { called++; end() })
	}
	require.Equal(t, 4, called)
	require.ErrorContains(t, Panicked(unspeakable{}), "base.unspeakable")
}

type unspeakable struct{}

func (unspeakable) String() string { runtime.Goexit(); return "" }
