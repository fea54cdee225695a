// Package order keeps the messages of each key in order for the consumer that owns their slots. The owner reads with
// SELECT; ownership of the slot is the lease. The package makes no statement, starts no goroutine and reads no clock.
// Its caller runs the tasks that Sequencer.Plan returns and passes the answers to Sequencer.Answer, with the time.
//
// # Messages
//
//	idle ─▶ waiting             it is not due, or its row is read again later
//	     ─▶ toLook ─▶ idle      it still waits: another program might have ended it
//	     ─▶ queued              MaxKeys of its slot is reached
//	     ─▶ toMark ─▶ idle      another consumer might have delivered it
//	     ─▶ toFetch ─▶ idle     its contents are not in memory
//	     ─▶ ready ─▶ out ─▶ over            acked or dead-lettered
//	                     ├─▶ idle           nacked or released: the stored fence is known
//	                     ├─▶ inTx           acked in a transaction that has not ended: its row is read again
//	                     └─▶ toUndo ─▶ idle, over    the outcome is unknown
//	toUndo ─▶ idle, over    a mark that is not used, or whose outcome is unknown
//
// In a state that is left by a task, the message is on the list of the state, waits for a time (Message.wakeAt), or its
// task is running (Message.task).
//
// Only the first message of a key leaves idle, and only while the key is open: no message of it is busy (its mark is
// running, or it is out, inTx or toUndo), no dead message holds it, its slot is not leaving, the first message is below
// the spilled ones, and no catch-up precedes it. One function, advance (advance.go), decides this after each event.
//
// # Parts
//
// Sequencer (sequencer.go) has the calls of the owner, and is composed of
//   - memory: messages by state, their timers and counts, and which keys have changed;
//   - queues: the queue of each key, the next states of its messages (advance.go), and tasks of messages (work.go). It
//     has slots (key.go: MaxKeys) and held keys (held.go);
//   - reads: which numbers are read next. It has walks (walk.go) and a Watermark.
//
// The Rebalancer decides which slots to own, and makes the Sequencer take, return and drop them.
//
// These rules replace special cases:
//   - A message without contents is fetched before its delivery, and each answer replaces what is known of its row. A
//     message that was delivered, nacked or released, that waits, or that might be marked has no contents.
//   - A write that changes nothing is followed by a read of the row. The answer to a task of messages has their rows
//     after the task. An absent row has ended; an unknown row is read later.
//   - An unknown outcome is resolved by a write of this consumer that raises the fence, or by a read that shows another
//     fence or no row. Until then the key is closed.
//   - While a slot is leaving, an unknown answer leaves the slot in doubt. Then the next owner marks all numbers drawn.
//
// # Reads
//
// Slots that were taken together are read by one walk. It has a cursor (the greatest number read) and a watermark,
// safe: each number up to it was read after its sender had ended, except numbers of stragglers. Each read begins at
// safe. A catch-up is a read that begins lower: at the bound of a straggler that has ended, or at 0 after a redrive or
// a lost session. These events are counted. Rows of the answer that showed an event, and of later answers, wait until a
// catch-up that began after the event has reached the cursor. Walks whose cursors are equal are merged. A slow read is
// a read from 0 for which no row waits.
//
// A key keeps few unread messages. Of the others it stores only the lowest number: it is spilled from there on. A
// refill reads spilled keys again, when no message before that number is in memory.
//
// # Expired leases
//
// A message whose last lease has expired is marked, and the mark committed, before its contents are read: if the
// process dies, the next owner counts it. From the second expired lease in a row on, the key waits for a random time
// (scatter in message.go). With Config.MaxCrashes of them the message is dead-lettered.
//
// # Invariants
//
// I3: no other consumer has delivered numbers above Old. I4: between two deliveries a commit raised the stored fence
// above the first delivery's. I5: if a row is known, all earlier committed rows of its key are known. I6: safe ≤
// cursor. I7: a held key opens only after a catch-up that began after its redrive. I8: each committed message is in
// memory, above the cursor, at or above the spilled number of its key, not committed at the last sample, or in a
// pending catch-up. The caller ensures I1 (one owner per slot) and I2 (the local end of the membership comes first and
// is checked after each answer).
//
// # SQL Server
//
// Its reads wait for locked rows that are not visible, such as rows that a transaction deletes: see Blocked. Locked
// rows that are visible are returned as Locked: the key waits until a fetch finds the row unlocked or absent.
package order

import (
	"math"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// None is greater than every number.
const None = math.MaxInt64

// The pauses of a Sequencer.
const (
	lookEvery = time.Second // at what other programs might change: slots, held keys, waiting messages
	slowEvery = 10 * time.Second
	slowShare = 20 // a slow read takes at most 1/20 of the time
	longRead  = 500 * time.Millisecond

	leastSpan  = 1 << 28 // numbers, of 256 statements that send: see sqlbatch.SeqBits
	firstSpan  = 1 << 44 // assumed while no number is known
	spanFactor = 4
	firstPause = 20 * time.Millisecond
	mostPauses = 6 // doublings of firstPause
	mostPeeks  = 3 // doublings of lookEvery
)

// KeyBytes is the maximum memory of a blocked key with Config.Unread = 4, without contents and without the bytes of its
// name.
const KeyBytes = 2 << 10

// Config configures a Sequencer.
type Config struct {
	sqlbatch.Traits
	Unread     int  // messages that a key keeps in addition to the first
	MostUnread int  // the same while there are few keys; 0: Unread
	Blocked    int  // keys without a deliverable message at which reading stops
	Bytes      int  // of the contents in memory that are not deliverable yet (PrefetchBytes)
	Behind     int  // rows up to the cursor of one read; with OneWriter only catch-ups have such rows
	Holds      bool // a dead message holds its key (DeadKeyHolds)
	MaxCrashes int  // expired leases in a row that dead-letter a message
}

// Slot is a slot that was taken, with the fence of its term. Messages with numbers up to Old are marked before
// delivery. At most Keys of its keys are at work at a time; 0: no bound.
type Slot struct {
	Number int
	Fence  int64
	Old    int64
	Keys   int
}

// Holder is the consumer that marked a message.
type Holder uint8

// The holders.
const (
	Unmarked Holder = iota
	Mine
	Others
)

// Lock is what a read found out about the lock on a row.
type Lock uint8

// The states of a lock.
const (
	LockUnknown Lock = iota
	Locked           // a transaction has not ended; the other columns might be old
	Unlocked
)

// Row is a row of an answer.
type Row struct {
	ID       [16]byte
	Seq      int64
	Slot     int
	Key      string
	Keyed    bool // false: the message has no key, and Key is its ID
	Fence    int64
	Wait     time.Duration // until it is due, or until the lease of another consumer ends
	Lives    time.Duration // until its TTL ends, negative if it has ended; 0: it has none
	Held     bool          // a dead message holds its key
	Holder   Holder
	Attempts int  // deliveries, including the next one
	Lapses   int  // expired leases, including that of the holder if it is another consumer
	Written  bool // the write of the task changed this row: only ID, Seq, Fence and Lapses are set
	Lock     Lock
	Contents Contents // nil: not read
}

// Contents are what a reader gets of a message.
type Contents interface{ Bytes() int }

// Answer is the answer to a Task.
type Answer struct {
	Walked   bool  // the consumer is alive, owns the slots by their fences, and the queue is not paused
	Redriven int64 // the queue's counter of redrives; negative: unknown
	Rows     []Row
	// Of Read and Refill: a sample, after the snapshot of the rows unless WatermarkFirst. A negative Drawn means
	// no sample.
	Drawn   int64
	Senders []string
	Upto    int64 // rows with greater numbers might be missing: of a Refill, where the walk ended; None: at its end
	// Of Held: one for each key of the task.
	Held []bool
}

// Kind is the kind of a Task.
type Kind uint8

// The kinds of tasks.
const (
	// Read returns rows of Slots, by number: at most Config.Behind rows in (From, min(Cursor, Upto)], without contents,
	// and at most Rows rows in (Cursor, Upto], without contents up to Old. There it leaves out the keys in Keys. If the
	// last row is one of them nevertheless, the read has ended at it. Read, Refill and Fetch leave out the contents of
	// a message with two expired leases that this consumer has not marked.
	Read Kind = iota
	// Refill returns at most Rows rows in (From, Upto] of the keys in Keys, without contents up to Old.
	Refill
	// Look returns the rows of Messages without contents.
	Look
	// Fetch returns the rows of Messages with their contents.
	Fetch
	// Mark takes Messages over. Locked rows are skipped.
	Mark
	// Lapse releases Messages and counts an expired lease. Locked rows are skipped.
	Lapse
	// Release raises the fence of Messages that were not delivered. If this consumer has marked a message, Release
	// clears the mark and subtracts the attempt. Locked rows are skipped.
	Release
	// Held checks which of Keys, of KeySlots, are held by a dead message.
	Held
)

// Budget bounds the next task.
type Budget struct {
	Room   int  // messages that are missing in the channel (Prefetch)
	Items  int  // messages of one statement
	Lapsed int  // messages that have lost a lease, of one Mark; 0: one
	Fetch  int  // messages whose contents one statement reads
	Rows   int  // messages that a Refill reads; 0: no bound; 1: it and a Read are without contents
	Poll   bool // read although nothing indicates new rows
}

// Task is a statement to run. Mark, Lapse and Release match ID, number and stored fence. For messages that they do not
// change, the answer has the rows as a Look finds them after the write.
type Task struct {
	Kind                Kind
	sqlbatch.ReadParams // of Read and Refill; the caller sets Consumer and Inline. The others have Slots and Keys
	Messages            []*Message
	Slow                bool // a part of a slow read: no message waits for it

	walk    *walk
	began   time.Duration
	bounded bool        // Upto is the end of the span of the walk
	of      []*keyQueue // of a Refill, or of Held
}

// KeySlots returns the slots of the keys of a Held.
func (t *Task) KeySlots() []int {
	slots := make([]int, len(t.of))
	for i, k := range t.of {
		slots[i] = k.slot.Number
	}
	return slots
}

// Delivery is a message to deliver. Fence is the fence of the delivery, Message.Fence the stored one. If Expired or
// Crashed is set, the message is dead-lettered instead: its TTL has ended, or MaxCrashes of its leases have expired in
// a row. The contents of a crashed message are not read. If the contents could not be read, they are those that
// Sequencer.Unreadable was called with.
type Delivery struct {
	*Message
	Fence            int64
	Contents         Contents
	Expired, Crashed bool
}

// Outcome is the outcome of a delivery.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // or lost, or expired at MaxExtend
	Acked
	Dead
	Given // nacked, snoozed or released: due at a time
	InTx  // acked in a transaction that has not ended; the lease ends at a time
	// Returned is not final: the handler has returned after InTx, and the row is read now. If the transaction was
	// rolled back, the message is delivered again. Until then, or until the end of the lease, the handler may settle
	// it.
	Returned
)

// Counts are the contents of a Sequencer.
type Counts struct {
	Slots   int
	Blocked int // keys without a deliverable message
	Ready   int // messages that Deliver would return
	Unread  int // messages with contents that are not deliverable
}
