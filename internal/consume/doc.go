// Package consume runs one consumer: it makes its parts, starts and ends their goroutines, owns its leases, and
// delivers them to readers.
//
// # Goroutines
//
// A Consumer has a supervisor, which starts and joins all others (see Consumer). A Feed has one goroutine, Run, which
// converts leases to values of the reader's type while the next claim runs, and sends them on a channel.
//
// # Order at the end
//
// After Stop the claims end, and the feed returns everything that no reader has taken. Then the leases of readers end
// one by one, and handlers return. Then the settler stores the remaining settles, and the extender, the heartbeat and
// the pipes end. A caller of End waits for that, and moves the consumer on:
//
//	state        begins with                    leases of readers            left when
//	Draining     Stop                           continue                     all have ended, or a bound ends
//	Interrupted  the end of a bound             their contexts have ended    all have ended, or Grace has passed
//	Revoked      the end of Grace               are released                 all settles are stored, or StoreFor has passed
//	Abandoned    the end of StoreFor            expire in the database       every statement has returned
//	Ended
//
// End waits for handlers while the consumer is Draining or Interrupted. Handlers that have not returned by then are
// counted.
//
// # Locks
//
// There is one lock each for the pipes of a Consumer, its counts, and its open acks. They are held briefly, and nothing
// that waits is called under them.
//
// The package knows neither bodies nor the user's hooks: it calls an Observer.
package consume
