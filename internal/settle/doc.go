// Package settle stores the ends and extensions of leases: settles by a Settler, extensions by an Extender. Each lease
// gets its own outcome.
//
// # Goroutines
//
// Settler.Run runs the goroutines of its writer. Extender.Run runs a timer goroutine and those of its writer. The
// consumer starts both and joins them. The functions of a Config are called on these goroutines, with no lock held.
//
// # Locks
//
// Extender.mu guards the leases that are held, for at most one pass over them, because claims wait for it. Nothing that
// waits is called under it.
//
// This package does not depend on sessions and claims: it calls the methods of Table.
package settle
