// Package consume has one consumer: it makes its parts, starts and ends their goroutines, owns its leases, and hands them to readers.
//
// # Goroutines
//
// A Consumer has a supervisor, which starts and joins all others (see Consumer). A Feed has one, Run, which makes values of the
// reader's type of leases while the next claim is under way, and sends them on a channel.
//
// # Order at the end
//
// Stop ends the claims, and the feed returns what no reader has taken. Then the leases that readers have end, one by one, and
// handlers return. Then the settler stores what is left, and the extender and the heartbeat end. A caller of End waits for that, and
// moves the consumer on:
//
//	state        begins with                    leases of readers            left when
//	Draining     Stop                           go on                        all have ended, or a bound ends
//	Interrupted  the end of a bound             their contexts have ended    all have ended, or Grace is over
//	Revoked      the end of Grace               are released                 all settles are stored, or StoreFor is over
//	Abandoned    the end of StoreFor            expire in the database       every statement has returned
//	Ended
//
// Handlers are waited for while the consumer is Draining or Interrupted. Those that have not returned then are counted.
//
// # Locks
//
// One each for the failure of a Consumer, its counts, the leases of its witness, and a Group. They are held for moments, and nothing is
// called under them.
//
// The package knows neither bodies nor the user's hooks: it calls an Observer.
package consume
