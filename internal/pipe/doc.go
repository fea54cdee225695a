// Package pipe replaces messages of one queue by messages of another queue. One transaction per batch acks the inputs
// and stores the outputs of the inputs that were still held.
//
// # Goroutines
//
// Run runs the goroutine of the writer (package batch). Its caller starts and joins it. Any number of goroutines may
// call Add.
//
// # Failures
//
//	a transaction fails                         it is repeated until its outcome is known; an input that fails alone is isolated
//	an input's row is locked                    it is stored later, and no other input waits for it
//	outputs are refused each time               the input is dead-lettered
//	outputs are not stored within Longest       the input is nacked, as if its handler had failed
//	unknown outcome, and the row is gone        the input counts as replaced
//
// The package holds no lock. It must not import claim or settle, and does not know bodies.
package pipe
