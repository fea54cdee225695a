// Package table has the statements of producers and consumers, and their columns. Statements of operators are in
// package chanqadmin; shared ones are in operate.go.
//
// A Queue is shared by all users of the queue: its names, its dialect and the classes of errors. A Table runs the
// statements of sends, settles and extensions on the sessions of one part of the queue; a Plain and an Ordered run
// those of claims. There is no goroutine and no lock here; the sessions decide what runs concurrently. The package must
// not import lease, claim or settle.
package table
