// Package table has the statements of sends, settles, extensions and ordered queues, and their columns. Those of plain claims and of
// operators are in the root package.
//
// A Queue is what all that use the queue share: its names, its dialect and what an error means. A Table runs its statements
// on the sessions of one part of the queue. There is no goroutine and no lock here; what runs at once is up to the sessions.
package table
