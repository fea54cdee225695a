// Package settle makes statements of what becomes of leases: settles by a Settler, extensions by an Extender. Each lease learns its
// own outcome.
//
// # Goroutines
//
// Settler.Run has those of its writer, and Extender.Run one that watches the time and those of its writer. The consumer starts
// both and joins them. The functions of a Config are called on these goroutines, with no lock held.
//
// # Locks
//
// Extender.mu guards the leases that are held, for one pass over them at most: claims wait for it. Nothing is called under it
// that waits.
//
// This package knows no session and no claim: it calls the methods of Table.
package settle
