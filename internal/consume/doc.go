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
// handlers return. Then the settler stores what is left, and the extender and the heartbeat end. GiveUp ends all of that at once.
//
// # Locks
//
// One for the failure and the counts of a Consumer, one for a Group. Both are held for moments, and nothing is called under them.
//
// The package knows neither bodies nor the user's hooks: it calls an Observer.
package consume
