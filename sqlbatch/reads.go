package sqlbatch

import "time"

// The statements of an experiment: the owner of a slot reads its messages and writes only when it
// settles. See docs/internals; nothing of this is used without the build tag ownerreads.

// SlotRead is what an owner reads of its slots.
type SlotRead struct {
	Member [16]byte
	Parts  []SlotPart // slot and fence: the read finds something only if Member owns all of them
	// From: rows with a greater seq. Rows up to Cursor are returned without contents, at most
	// MostBehind of them; of those above, up to Upto, at most Rows.
	From, Cursor, Upto int64
	Rows               int
	Old                int64    // rows up to this seq are returned without contents
	Keys               []string // messages of these keys are returned without contents
}

// KeyRead is what an owner reads of the messages of some keys: up to Rows of them, among the first
// MostWalked of its slots behind From and up to Upto.
type KeyRead struct {
	Member     [16]byte
	Parts      []SlotPart
	From, Upto int64
	Rows       int
	Old        int64
	Keys       []string
}

// MostBehind is the most rows between the watermark and the cursor, MostWalked the most that a
// KeyRead walks.
const (
	MostBehind = 20_000
	MostWalked = 20_000
)

// ReadItem names a message that was read: by its seq and its stored fence. Delivery is the fence
// under which it was delivered.
type ReadItem struct {
	Item
	Seq, Delivery int64
}

// ReadEnd gives a message back that was read.
type ReadEnd struct {
	ReadItem
	How   ReadHow
	Delay time.Duration // of a nack or a snooze
	Error string
}

// ReadHow is how a message is given back.
type ReadHow uint8

// How a message is given back: the columns say what becomes of it.
const (
	ReadNacked   ReadHow = iota // the attempt counts, lapses are forgotten, due after Delay
	ReadSnoozed                 // the attempt does not count, lapses are forgotten, due after Delay
	ReadReleased                // the attempt does not count, lapses stay, due when it was
	ReadLapsed                  // the attempt counts and is one more lapse, due when it was
)

// ReadBury sets a message aside that was read.
type ReadBury struct {
	ReadItem
	Error     string
	Uncounted bool
}

// reads are the statements of owners that read.
//
// Read, ReadKeys and Contents return the columns of Claim, and then slot, seq, order_key, wait
// (milliseconds until it may be delivered), holder (0: nobody has marked it, 1: Member, 2: another),
// held (1: a dead message of its key holds it), given (1: with its contents). The last row has no
// id, and says instead, in these columns: priority: 1 if Member is alive and owns all parts by
// their fences and the queue is not paused, else 0, and then the answer has no rows; fence: the last
// number drawn, by a sample that follows the snapshot of the rows; enqueued_at: redriven; due_at: up
// to where a KeyRead has read (the greatest int64: to its end); body: the senders, as of Horizon, sampled
// after the number. They write nothing and lock no row.
type reads interface {
	Read(SlotRead) Statement
	ReadKeys(KeyRead) Statement
	// Contents returns the messages with these ids, where Member owns the parts; blind ones
	// without contents.
	Contents(member [16]byte, parts []SlotPart, ids [][16]byte, blind bool) Statement
	// HeldKeys returns for each pair of slot and key its place in the list from 1 on, 1 if a dead message
	// holds it, and redriven.
	HeldKeys(slots []int, keys []string) Statement
	// OwnSlots is TakeSlots, and returns slot, fence, old. Fences are made like those of rows.
	OwnSlots(member [16]byte, salt int64, slots []int) Statement
	// ReturnSlots is GiveSlots. A part in doubt has old set to the last number drawn.
	ReturnSlots(member [16]byte, parts []SlotPart) Statement
	// Mark takes messages over whose last delivery may have been another's: it raises the stored fence
	// to the slot's, at least by one, and counts an attempt, and a lapse if another had marked
	// it. Delivery is the slot's fence. Those with lapses or more are left out, with the lapse
	// that it would count. It leaves out what is locked.
	Mark(member [16]byte, items []ReadItem, lapses int) Statement

	// These are settles by (id, seq, stored fence). They return id and stored fence of each, EndRead, as Mark,
	// the fence that the row has then.
	AckRead([]ReadItem) Statement
	ArchiveRead([]ReadItem) Statement
	EndRead([]ReadEnd) Statement
	BuryRead([]ReadBury) Statement
	// ExtendRead notes who works on a message, and until when, EndAfterRead be it sooner.
	ExtendRead(member [16]byte, items []ReadItem, lease time.Duration) Statement
	EndAfterRead(member [16]byte, items []ReadItem, lease time.Duration) Statement
	// LookRead returns id, fence of the live rows; -1 if the seq is another.
	LookRead([]ReadItem) Statement
}
