package sqlbatch

import (
	"hash/fnv"
	"time"
)

// An ordered queue keeps the messages of a key, a line, in the order in which they
// were sent. Each key belongs to one of a fixed number of slots, each slot to one member at a
// time, its owner, who alone claims from it. Its rows are found by (slot, seq).
//
// seq is number << SeqBits plus the message's place in its INSERT. The database draws the
// number once a statement, so that what one statement sends are neighbours. Numbers do not go
// back, unless the database forgets (a failover to a standby that lagged, a restore), but
// they may become visible in another order: see Horizon.
const SeqBits = 20

// UnknownSender, among those of a Horizon, may be any that was among them before, under another
// name.
const UnknownSender = "*"

// MaxSlots is the most slots of a queue, MaxOrderKey the most bytes of a key.
const (
	MaxSlots    = 1024
	MaxOrderKey = 200
)

// SlotOf is the slot of a key: the 32 bits of FNV-1a of its bytes modulo slots. A
// message without a key is a line of its own, and has the slot of its id's 16 bytes.
// Programs in other languages must come to the same one.
func SlotOf(key string, id [16]byte, slots int) int {
	h := fnv.New32a()
	if key == "" {
		h.Write(id[:])
	} else {
		h.Write([]byte(key))
	}
	return int(h.Sum32() % uint32(slots))
}

// SlotPart is what a claim reads of a slot.
type SlotPart struct {
	Slot  int
	Fence int64 // that TakeSlots returned: by it the owner is known
	From  int64 // rows with a greater seq
	Limit int   // of these at most so many are returned
	// Doubt: the caller draws conclusions from what is absent, of messages too that a
	// transaction may be deleting. Where that cannot be said the part is not claimed from, and ends where it began.
	Doubt bool
}

// SlotClaim are the values of a claim from an ordered queue. Rows, Lease and Member are as in ClaimParams.
type SlotClaim struct {
	// Rows bounds what is leased and what is walked past, together; at most Traits.ClaimRows.
	Rows   int
	Lease  time.Duration
	Member [16]byte // who owns the slots
	// Salt is as in ClaimParams, but no two claims of one Member may have the same while leases
	// of the first may live: begin at random, then add one with each claim, and after
	// 1 << FenceBits go on at 1. SQLite tells by it what this claim has leased.
	Salt int64
	// Suspects: take messages with this many lapses or more, too. A lapse is a
	// lease that ran out, was never settled and never given back; a message counts
	// those in a row. Without Suspects those whose count is at least Lapses by now
	// are left where they are.
	Suspects bool
	Lapses   int
	// Blind leaves key, headers and body out of the result, NULL each: for a
	// message that cannot be read.
	Blind bool
	// Parts are served in this order until there are Rows; each slot at most once. So a claimer
	// that has less room than messages begins each time at another one.
	Parts []SlotPart
	// Mine: return what Member itself holds, too, as rows walked past. Otherwise that is passed
	// over, and counts for no limit.
	Mine bool
}

// ordered are the statements of an ordered queue alone: Names.Slots is not 0. There Claim,
// NextDue, DueOrLocked and Survey are of no use.
type ordered interface {
	// ClaimSlots leases messages from the slots that Member owns by their fences, each slot's by seq.
	// A lease ends after Lease, or at the end of Member's membership if that is sooner. It returns
	// the columns of Claim, then slot, seq, order_key (bytes or NULL), wait. The rows, in any
	// order, are of three kinds:
	//
	//   - wait is NULL: leased.
	//   - id and wait are given: walked past, not leased, since it is not due yet, somebody has
	//     leased or locked it, or it is a suspect and those were not asked for. It may be claimed
	//     in wait milliseconds (0: somebody has locked it, or a claim that asks for suspects
	//     gets it). Of the columns of Claim only id counts; content is NULL.
	//   - id is NULL: the end of a slot's part. Whatever could be seen of the slot behind From and up
	//     to this seq is among the other rows, or held by Member: what is not, does not exist, or
	//     is being deleted where Traits.HidesDeletes says so and the part is not in doubt.
	//     The greatest int64: the slot was walked to its end. From: Rows were found before it
	//     came to this part.
	//
	// A slot without an end was not looked at: it has another owner or another fence, Member's
	// time is over, or the queue is paused.
	ClaimSlots(SlotClaim) Statement
	// Slots returns a row for each slot: slot; owner (16 bytes or NULL); left, milliseconds until its
	// owner is gone (zero or less: it is; NULL: no owner); fence; members, how many live ones the
	// queue has; due_in, of the slots in parts, milliseconds until the first of Limit messages
	// behind From that nobody leases now is due (zero or less: now; NULL: none, or the queue is
	// paused). It writes nothing and takes no lock.
	Slots(parts []SlotPart) Statement
	// TakeSlots makes member, as long as its time is not over, the owner of those of the slots that
	// are free, whose owner is gone, or which it owns already: their fence grows by one, so that a
	// claim by a former one finds nothing any more. It returns slot, fence of each, and leaves
	// out what another takes at this moment.
	TakeSlots(member [16]byte, slots []int) Statement
	// GiveSlots sets those free that member owns by the fence (From and Limit do not matter), and
	// returns slot, fence of each.
	GiveSlots(member [16]byte, parts []SlotPart) Statement
	// Horizon returns one row: drawn, the greatest seq that may have been given by now, and
	// senders, a text: who may have drawn and not committed yet, in any order, with spaces
	// between. Once a later Horizon has none of these senders, and no UnknownSender, all that will
	// ever be seen up to drawn can be seen by every claim that begins from then on. A statement without text: all that can be
	// drawn can be seen by whoever comes later.
	Horizon() Statement
	// Begun draws the number for one EnqueueBegun, in its transaction and before it. It returns
	// one row, of no meaning. A statement without text: EnqueueBegun draws it.
	Begun() Statement
	// Held returns slot, order_key (bytes) of the dead messages of these slots that have a key: up to
	// limit keys of each slot.
	Held(slots []int, limit int) Statement
	// Reach returns one row: up to which seq no slot has more than rows messages behind after (at least
	// one, at most Traits.ClaimRows), or the greatest int64. It reads so many entries of the index a slot, and no row. Peek and
	// Purge of live messages read no more than these up to there, however few of them are of the state.
	Reach(after int64, rows int) Statement
	// SlotStats returns a row for each slot, of the first limit messages by seq: slot; owner, the name
	// of its owner (NULL: none); messages, how many there are; waiting, how many of these cannot
	// be claimed now; oldest, milliseconds since the first of them was sent (NULL: none);
	// top_key (bytes), the key that the most of them have (NULL: no key), and top, how many. It
	// reads limit rows a slot, at most Traits.ClaimRows.
	SlotStats(limit int) Statement
}
