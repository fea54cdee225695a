package base

import (
	"fmt"
	"runtime/debug"

	"github.com/sourcegraph/conc"
)

// Group starts the goroutines of the engine. Its owner waits for them. A panic in one of them ends the program: conc
// would keep it until Wait, while leases are not extended and calls do not return.
type Group struct{ goroutines conc.WaitGroup }

// Go starts a goroutine.
func (g *Group) Go(f func()) {
	g.goroutines.Go(func() {
		defer Crash()
		f()
	})
}

// Wait waits until all goroutines have ended.
func (g *Group) Wait() { g.goroutines.Wait() }

// Crash ends the program if its caller panics, also if a function further up would recover. It must be deferred.
func Crash() {
	if p := recover(); p != nil {
		text := fmt.Sprintf("%v, in chanq\n%s", p, debug.Stack())
		go panic(text) // where nothing recovers
		select {}
	}
}
