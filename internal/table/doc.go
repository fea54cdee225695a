// Package table has the statements of sends, settles and extensions of one queue in one database, and their columns.
//
// A Queue is what all that use the queue share: its names, its dialect and what an error means. A Table runs its statements
// on the sessions of one part of the queue. There is no goroutine and no lock here; what runs at once is up to the sessions.
package table
