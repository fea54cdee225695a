// Package settle stores the ends and extensions of leases: settles by a Settler, acks with outputs by a Pipe, and
// extensions by an Extender. Each lease gets its own outcome.
//
// # Goroutines
//
// Settler.Run and Pipe.Run run the goroutines of their writers. Extender.Run also runs a timer goroutine. The consumer
// starts them and joins them. The functions of a Config are called on these goroutines, with no lock held.
//
// # Locks
//
// Extender.mu guards the leases that are held, for at most one pass over them, because claims wait for it. Nothing that
// waits is called under it.
//
// This package does not depend on sessions and claims: it calls the methods of Table.
package settle
