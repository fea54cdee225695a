// Package batch is the only writer of chanq: it gathers items, writes them in batches, repeats failed statements until
// their outcome is known, and isolates items that fail alone. It depends neither on SQL nor on messages. Other packages
// also use Size, Loop and Backoff for their statements.
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
// A batch is due when it is full, when its oldest item has lingered, or when it has half the size of the previous batch
// and a caller waits for an item. It is due immediately for an urgent item, for Flush, and after Drain.
//
// # Failures
//
//	class                       a statement of several items        a statement of one item
//	Unknown, Refused,           repeated once, then halved; after   repeated once unless a search has led to it. Then
//	RolledBack                  a timeout, cut into eight parts     another item is tried immediately, and this one again,
//	                                                                after a pause if the other one failed as well. It is
//	                                                                isolated if it fails again although a statement has
//	                                                                succeeded since it first failed alone
//	BadRow, Duplicate           halved immediately                  its outcome
//	NoSchema, Permanent         halved immediately                  its outcome; after two in a row, that of all their kind
//
// Only Unknown marks the items of the statement as Unknown. After RolledBack the next statements leave out locked rows.
// An item that Absent does not find is deferred, by 20 ms to 1.3 s. After a success the size doubles. Only timeouts
// reduce the size of new batches.
//
// In an outage every statement fails: the size falls to 1, two statements follow each pause, which grows to 5 s, and
// nothing is isolated. An item that has nothing to be compared with stays in its batch until another statement
// succeeds, except that one such item may be isolated if its order does not matter.
//
// An isolated item is written by itself, with pauses of up to 5 s, in a statement whose timeout doubles when it is
// exceeded, up to 2 minutes. After a timeout no item that needs more time than others is tried for as long as that
// took. At most 100 items are isolated, and 1,000 wait behind them; the next one gets the error as its outcome.
//
// With one worker a failing batch blocks all others until each of its items is written, rejected or isolated. Items of
// one key always keep their order. Of the other items one might be written early: the one that the first item is
// compared with.
//
// A withdrawn item is not written again. GiveUp ends everything immediately, and passes each outcome to Done as far as
// it is known: for items in a statement, Unknown.
//
// # Files
//
// writer.go has the configuration and the end, item.go the calls of Add and Withdraw, worker.go batches and single
// statements, round.go the reaction to failures, size.go the sizes, isolation.go isolated items, loop.go one try and
// its pause.
//
// # Goroutines and locks
//
// Run starts Config.Workers workers and one goroutine for isolated items, and joins them. They end after Close when
// every item has its outcome. The Writer has one lock, mu, which is not held while Write, Absent or Done run.
package batch
