// Package send stores messages: it batches them into INSERTs, detects duplicates, and has batches committed in order.
//
// # Goroutines
//
// Direct stores the rows of one call, in the caller's goroutine. Sender.Run runs the goroutines of its writer. The
// producer starts it and joins it. Any number of goroutines may add messages.
//
// # Locks
//
// Sender.mu guards the outcomes of Calls and the unsent items. It is locked before the writer's own lock, never after,
// and nothing waits while it is held.
//
// # Failures
//
// The writer repeats failed statements, and isolates a message that fails alone. A message whose statement had an
// unknown outcome is looked up before it is stored again. See package batch.
//
// This package does not know bodies: a message is a row with an origin that only the producer understands.
package send
