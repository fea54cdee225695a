// Package pipe replaces messages of one queue by messages of another one: in one transaction for each group it acks the inputs and
// stores the outputs of those that were still held.
//
// # Goroutines
//
// Run has that of the writer (package batch). Its caller starts and joins it. Any number of goroutines may call Add.
//
// # Failures
//
//	a transaction fails                         it is repeated until its outcome is known; an input that fails alone is isolated
//	an input's row is locked                    it is stored later, and no other one waits for it
//	outputs are refused each time               the input is dead-lettered
//	they are not stored within Longest          the input is nacked, as if its handler had failed
//	the outcome was unknown, and the row is gone the input counts as replaced
//
// The package holds no lock. It must not import claim or settle, and knows no body.
package pipe
