package sqlbatch

import "hash/fnv"

// An ordered queue keeps the messages of a key in the order in which they were sent. Each key belongs to one of a fixed number of slots.
// Each slot has one consumer at a time, its owner, and only the owner delivers its messages.
//
// The number of a message, its seq, is the number of its statement << SeqBits plus its place in the INSERT. The database draws one number
// per statement, so that the messages of a statement are adjacent. Numbers increase, unless the database loses some (a failover to a
// standby that lagged, a restore). They might become visible in another order: see Read.
const SeqBits = 20

// UnknownSender is a sender without a name: see Read.
const UnknownSender = "*"

// MaxSlots is the most slots of a queue, MaxOrderKey the most bytes of a key.
const (
	MaxSlots    = 1024
	MaxOrderKey = 200
)

// SlotOf is the slot of a key: the 32 bits of FNV-1a of its bytes modulo slots. A message without a key is not ordered with any other
// message, and has the slot of its id's 16 bytes. Programs in other languages must compute the same slot.
func SlotOf(key string, id [16]byte, slots int) int {
	h := fnv.New32a()
	if key == "" {
		h.Write(id[:])
	} else {
		h.Write([]byte(key))
	}
	return int(h.Sum32() % uint32(slots))
}

// OwnedSlot names a slot and the fence by which a consumer owns it.
type OwnedSlot struct {
	Slot  int
	Fence int64 // that TakeSlots returned
	// Doubt is used only by GiveSlots: the consumer does not know the outcome of a message of this slot. The next owner then marks all
	// messages with numbers that have been drawn so far.
	Doubt bool
}

// ReadParams are the values of a read, or of a refill: of its rows at most Rows are returned, and Cursor and Behind are ignored.
type ReadParams struct {
	Consumer [16]byte
	Slots    []OwnedSlot
	// Rows with a number greater than From and up to Upto are read. Those up to Cursor are returned without contents, at most Behind of
	// them. Of the others, at most Rows are returned.
	From, Cursor, Upto int64
	Rows               int   // at most Traits.ClaimRows
	Behind             int   // at most MostWalked
	Old                int64 // rows up to this number are returned without contents
	// Order keys; at most MostKeys. A read leaves out rows above Cursor with one of them: see MostWalked. A refill returns only their rows.
	Keys   []string
	Inline int // rows with a larger body are returned without contents
}

// MostWalked is the most rows that a refill walks, and the most up to the cursor that a read returns. Above the cursor, a read that leaves
// out keys walks as many: the last one is returned whatever its key (on SQL Server due_at of the last row names it), and the read ends there.
const MostWalked = 20_000

// MostKeys is the most keys of a read and of a refill.
const MostKeys = 10_000

// MarkItem names a message of an ordered queue that a consumer takes over.
type MarkItem struct {
	Item            // with its stored fence
	SlotFence int64 // of the message's slot
}

// ordered has the statements that only ordered queues have: Names.Slots is not 0. Claim, NextDue, DueOrLocked, Rescan and Rescue must not be run on
// an ordered queue, because its table does not have their index.
//
// The owner of a slot reads its messages. Ownership of the slot is the lease. The owner writes when it settles, and when it takes over
// messages that another consumer might have delivered. The first fence of a row that chanq sends is its seq, so that an ID and a fence name
// one stored row, even if the ID is sent again.
//
// Read, Refill, Fetch and LookOrdered write nothing and keep no lock. They return the columns of Claim, where attempts and lapses are those
// of a delivery that Consumer begins now, and then:
//
//   - slot, seq, order_key (bytes or NULL);
//   - wait: milliseconds until the message is due, and until the lease of another consumer ends (zero: it may be delivered);
//   - lives: milliseconds until its TTL ends, at least 1 (zero: it has none);
//   - holder: 0: no consumer has marked it; 1: Consumer has; 2: another consumer has;
//   - held: 1: a dead message of its key holds it (zero if Policy.Holds is not set), or on SQL Server might hold it, because another
//     transaction has locked that message;
//   - given: 1: dedup_key, type, headers and body are its contents; otherwise they are NULL;
//   - locked, of LookOrdered, and on SQL Server also of Read, Refill and Fetch: 1: another transaction has locked the row, and the columns might be old or
//     not committed, or NULL and zero except for id, and of Read and Refill except for slot, seq and order_key; 2: no transaction has locked it, as
//     far as is known; 0: unknown.
//
// The last row has NULL as id. Its priority is 1 if the slots were read, otherwise 0. They are read if Consumer is alive, owns all of them
// by their fences, and the queue is not paused. If they were not, there is no other row, which does not mean that the slots are empty. Its
// enqueued_at is the number of the last redrive of the queue, which each redrive changes. On SQL Server it might be that of a redrive that is
// not committed: reads that begin later find its messages as locked ones. For Read and Refill, its fence is the last number drawn, read after the other rows.
// Its body has the senders, read after that number: those that might have drawn a number up to it and have not committed, separated by
// spaces. UnknownSender might be any sender of an earlier answer, under another name. Once an answer has neither it nor a sender of an
// earlier answer, reads that begin later see all messages up to the earlier number that any read will ever see. Its due_at is up to where a
// Refill has walked; the greatest int64: to its end.
//
// On SQL Server a Read or a Refill returns a row that another transaction has inserted or changed and not committed as a locked one,
// without contents. That transaction might have ended since. Locked rows count for all limits, and so do rows that go before the statement
// has looked them up and are not returned. For a row that another transaction is deleting, or locks while the statement runs, it waits up to
// 50 ms, and then fails with class RolledBack. A statement that names one slot meets only locks on rows of that
// slot. A statement that names several also skips locked rows of other slots. A Refill skips at most 100 locked rows, and a Read as many on
// each side of Cursor. If there are more, or if Rows or Behind has ended a range, due_at is the number up to which it has read, and rows
// with greater numbers might be missing. Otherwise due_at of a Read is the greatest int64.
//
// There the last number drawn of a Read is a watermark: it was drawn while no sender was between its draw and its insert, and before the
// rows were read. The Read does not miss a message with a number up to it whose transaction is open. There are no senders. If a sender
// keeps a Read from finding a watermark, the last number drawn is -1. The rows are the same, but messages with smaller numbers than theirs
// might be inserted later. A Read returns no row with a number that was drawn after it began. The last number drawn of a Refill is always
// -1.
type ordered interface {
	// Read returns messages of the slots that Consumer owns: of each range those with the least numbers, in any order.
	Read(ReadParams) Statement
	// Refill returns the messages of some keys with the least numbers, in any order, and walks at most MostWalked rows of the slots for it.
	Refill(ReadParams) Statement
	// Fetch returns the messages with these IDs, with their contents, whatever their size.
	Fetch(consumer [16]byte, slots []OwnedSlot, ids [][16]byte) Statement
	// LookOrdered is Fetch without contents. It also returns a message whose row is locked: it is not absent. Fetch does the same on SQL
	// Server, where neither waits for a locked row.
	LookOrdered(consumer [16]byte, slots []OwnedSlot, ids [][16]byte) Statement
	// HeldKeys returns, for each pair of a slot and a key, its place from 1 on, held of Read (1 or 0), and the number
	// of the last redrive of the queue.
	HeldKeys(slots []int, keys []string) Statement

	// MarkOrdered takes over messages for consumer, by their IDs and stored fences: it raises the fence to that of the slot, at
	// least by one, and counts an attempt. If another consumer has marked the message, it counts an expired lease.
	// It leaves out locked rows, and returns id, fence, lapses of each message as they are now.
	MarkOrdered(consumer [16]byte, items []MarkItem) Statement
	// ReleaseOrdered releases messages of consumer, by their IDs and stored fences. With lapsed it counts an expired lease and the attempt that
	// ends with it. Without lapsed, the message was not delivered: a mark of consumer is cleared and its attempt is refunded, and a mark of
	// another consumer stays. The place stays in both cases. It leaves out locked rows, and returns the columns of MarkOrdered, where lapses
	// include that of a mark that stays.
	ReleaseOrdered(consumer [16]byte, items []ReleaseItem, lapsed bool) Statement
	// Slots returns a row for each slot: slot; owner (16 bytes or NULL); left, milliseconds until the membership of its
	// owner ends (zero or less: it has ended; NULL: no owner); fence; consumers, the number of live consumers of the queue. It writes
	// nothing and takes no lock.
	Slots() Statement
	// TakeSlots makes consumer the owner of the given slots while its membership lasts. It takes slots that have no owner, whose owner's
	// membership has ended, or that consumer already owns. Their fences rise as in Claim: salt is as in ClaimParams. It returns slot, fence,
	// old of each, and leaves out slots that another consumer takes at the same moment. No other consumer has delivered a message with a
	// number greater than old, whose last change is that of its sender: old becomes the last number drawn if the slot had an owner.
	TakeSlots(consumer [16]byte, salt int64, slots []int) Statement
	// GiveSlots removes the owner from those of the slots that consumer owns by their fences, and returns slot, fence of each. If a slot is in
	// doubt, old becomes the last number drawn.
	GiveSlots(consumer [16]byte, slots []OwnedSlot) Statement
	// Begun draws the number for one EnqueueBegun, in its transaction and before it. It returns one row whose value is not used. If
	// EnqueueBegun draws the number itself, the statement has no text.
	Begun() Statement
	// Reach returns one row: the number of the message that is the rows-th one behind after, or the greatest int64. Peek and Purge of live
	// messages read no rows behind that number, however few of them are in the state.
	Reach(after int64, rows int) Statement
	// SlotStats returns a row for each slot, of the first limit messages of the queue by seq: slot; owner, the name of its owner (NULL: none);
	// messages, how many of these messages it has; waiting, how many of them are not due, or leased; oldest, milliseconds since the first of
	// them was sent (NULL: none); top_key (bytes), the key with the most of them (NULL: no key), and top, how many that key has.
	SlotStats(limit int) Statement
}
