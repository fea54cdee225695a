// Package batch is the one writer of chanq: it gathers items, writes them in groups, repeats what failed until its
// outcome is known, and isolates items that fail alone. It knows neither SQL nor messages. Size, Loop and Backoff also serve
// statements of others.
//
// # States of an item
//
//	Add ──▶ waiting ──▶ writing ──────────────────▶ over: Done, once
//	           ▲         │  ▲                        ▲
//	           │         ├──┴─ held ─────────────────┤  rejected, or withdrawn
//	           │         ├───▶ deferred ─▶ writing   │  its row is locked
//	           │         └───▶ isolated ⇄ writing ───┤  it fails alone, others do not
//	         behind ◀── waiting                      │  an item of its key is isolated
//	                                GiveUp, Withdraw ┘  from any state
//
// A group is due when it is full, when its oldest item has lingered, when it has half the size of the group before and a
// caller waits for an item, and at once for an item that is urgent, for Flush, and after Drain.
//
// # Failures
//
//	class                       a statement of several items        a statement of one item
//	Unknown, Refused,           repeated once, then halved; when    repeated once unless a search has led to it, then
//	RolledBack                  it ran out of time, cut in eight    compared with another item at once: if that is
//	                                                                written this one is isolated, otherwise the database
//	                                                                is away and both are tried again after a pause
//	BadRow, Duplicate           halved at once                      its outcome
//	NoSchema, Permanent         halved at once                      its outcome; of two in a row, that of all their kind
//
// Only Unknown marks the items of the statement as Unknown. After RolledBack the next statements leave out locked rows; an
// item that Absent does not find is deferred, by 20 ms to 1.3 s. After a success the size doubles. New groups are
// reduced only by statements that ran out of time.
//
// In an outage every statement fails: the size falls to 1, two statements follow each pause, which grows to 5 s, and
// nothing is isolated. An item that has nothing to be compared with stays in its group if statements of
// other workers fail as well, except that one such item may be isolated where its order does not matter.
//
// An isolated item is written by itself, with pauses of up to 5 s, in a statement whose time doubles when it runs out, up to 2
// minutes. After one that ran out, no item that needs more time than others is tried for as long. At most 100 are isolated, and 1,000 wait behind them; the next one gets the error as its outcome.
//
// With Config.InTurn a group that fails keeps all others back until each of its items is written, rejected or isolated. Items of one key
// keep their order in any case. Of the others one may be written early: the one that the first item is compared with.
//
// An item whose caller has withdrawn it is not written again. GiveUp ends everything at once, and hands each outcome to Done as it
// is known: of items in a statement, Unknown.
//
// # Files
//
// writer.go has the configuration and the end, item.go the calls of Add and Withdraw, worker.go the groups and one statement,
// round.go what follows a failure, size.go how many, isolation.go what is isolated, loop.go one try and its pause.
//
// # Goroutines and locks
//
// Run starts Config.Workers workers and one goroutine for isolated items, and joins them. They end after Close when every item has
// its outcome. The Writer has one lock, mu, which is not held while Write, Absent or Done run.
package batch
