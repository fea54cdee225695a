// Package table has the statements of producers and consumers, and their columns. Those of operators are in package chanqadmin; what
// both need is in operate.go.
//
// A Queue is what all that use the queue share: its names, its dialect and what an error means. A Table runs the statements of sends,
// settles and extensions on the sessions of one part of the queue; a Plain and an Ordered run those of claims. There is no goroutine
// and no lock here; what runs at once is up to the sessions. The package must not import lease, claim or settle.
package table
