// Package send stores messages: it makes INSERTs of groups of them, finds out which ones are duplicates, and has groups committed in
// order.
//
// # Goroutines
//
// Direct stores the rows of one call, in the caller's goroutine. Sender.Run has the goroutines of its writer. The producer starts it
// and joins it. Any number of goroutines may hand messages over.
//
// # Locks
//
// Sender.mu guards the outcomes of Calls and what is unsent. It is taken before the writer's own lock, never after, and nothing is
// waited for while it is held. commitOrder.mu is held for moments.
//
// # What a failure does
//
// The writer repeats what failed, and isolates a message that fails alone. A message whose statement had an unknown outcome is
// looked for before it is stored again. See package batch.
//
// This package knows no body: a message is a row with an origin that only the producer understands.
package send
