// Package consume has the way of leases from the claims of a consumer to its readers.
//
// A Feed has one goroutine: Run, which its consumer starts and joins. It makes values of the reader's type of leases, while the
// next claim is under way, and sends them on a channel. It holds no lock.
//
// The package knows neither statements nor bodies.
package consume
