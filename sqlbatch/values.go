package sqlbatch

import (
	"fmt"
	"time"
)

// What statements are built of.

// Priority lanes. They are claimed from the highest down.
const (
	PriorityLow    = -1
	PriorityUrgent = 2
	Priorities     = PriorityUrgent - PriorityLow + 1
)

// Heads has for each priority, from the lowest up, where a claim begins to read: at
// messages that were due then, in Unix milliseconds of the database's clock, or later. 0
// is the beginning.
//
// What was claimed and settled is before the others: PostgreSQL's dead index entries
// until a vacuum, and for as long as a snapshot may still see them; SQL Server's ghosts
// until their cleanup; and what is leased. A claim that began there would walk all of
// it each time.
type Heads [Priorities]int64

// HeadMargin is how far a head stays behind the database's clock: a message whose INSERT
// took less than this long is found although later ones were claimed meanwhile.
// A quarter of a second is longer than almost every commit, and so short that few dead
// rows are walked over.
const HeadMargin = 250 * time.Millisecond

// MaxKey is the most bytes of a dedup key, MaxType the most of a type, MaxError the most of an error text
// that is kept with a message (longer ones are cut).
const (
	MaxKey   = 200
	MaxType  = 100
	MaxError = 2000
)

// MaxBody is the most bytes of a body that the tables take from any program, and MaxHeaders the most of
// headers. Both are larger than the limits of chanq, since a program that sends UTF-16 needs twice
// as many.
const (
	MaxBody    = 32 << 20
	MaxHeaders = 64 << 10
)

// Policy is what the database keeps of a queue and what may be changed while programs use it.
type Policy struct {
	Holds              bool // of an ordered queue: a dead message keeps its key closed
	MaxKeys            int  // of an ordered queue: keys that are handled at once; 0: no limit
	MaxAttempts        int  // 0: no limit
	MaxBody            int
	Retain, RetainDead time.Duration // 0: no done message is kept, and all dead ones are
}

// DefaultPolicy is that of a queue for which nothing else was chosen.
var DefaultPolicy = Policy{MaxAttempts: 20, MaxBody: 1 << 20}

// MaxPauseText is the most bytes of the actor of a pause, and of its reason.
const MaxPauseText = 400

// LastTime is the latest time in a table, in Unix milliseconds: the end of the year 9999.
const LastTime = 253402300799999

// MaxDelay is the longest delay, lease or retention that every dialect can add
// to a time.
const MaxDelay = 100 * 365 * 24 * time.Hour

// Fences
//
// A fence is a 64-bit integer that only grows, and is never given twice for one
// id: not to an id that is sent again, nor by a database that forgot a claim
// (a restore, a failover to a standby that lagged). A claim sets it to
//
//	greatest(fence, milliseconds since 1970 << FenceBits) + salt
//
// where salt is a random number that the claimer chose: two claims with one
// fence would have to meet in one millisecond of the database's clock, and then
// still one in a million. 43 bits of milliseconds last until the year 2248.
const FenceBits = 20

// LastFence is the greatest fence that the tables take, from the year 2241: another program that
// wrote more would make the sum of a claim too large.
//
// Above HighFence a sum may not have room. Only another program can have written such a
// fence, or one close below. The next claim begins again at the clock, where no claim has given
// this message a fence before: it would fail otherwise, and with it all claims from then on.
const (
	LastFence = 9_000_000_000_000_000_000
	HighFence = LastFence - 1<<40
)

// LastAttempt is the most attempts that the tables take, LastLapse the most lapses: a claim
// counts no further. Each lapse was an attempt, and so is the lease that a message has, which the
// tables check, so that a settle that takes them off has enough.
const (
	LastAttempt = 2_000_000_000
	LastLapse   = 32767
)

// Row is one message to enqueue.
type Row struct {
	ID       [16]byte
	Priority int8
	Delay    time.Duration // until it is due; rounded up to milliseconds
	TTL      time.Duration // until it expires, from now; 0 is never
	Key      string        // dedup key; "" is none
	OrderKey string        // of an ordered queue, which has no Priority and no Delay; "" is none
	Slot     int           // of an ordered queue: see SlotOf
	Type     string        // at most MaxType printable ASCII characters; "" is none
	Headers  []byte        // nil is none
	Body     []byte
}

// Item names one lease: its message's id and its fence.
type Item struct {
	ID    [16]byte
	Fence int64
}

// NackItem gives a message back, due after Delay, with the error that caused it.
//
// Delivery, here and in the next types, is the fence of the delivery on an ordered queue, and 0 on a plain one. The fence
// that is stored then is greater than the stored one and than Delivery.
type NackItem struct {
	Item
	Delivery int64
	Delay    time.Duration
	Error    string // "" keeps what is there
}

// ReleaseItem gives a message back as it was before its claim or its delivery.
type ReleaseItem struct {
	Item
	Delivery int64
}

// DeadLetterItem moves a message to the dead-letter table.
type DeadLetterItem struct {
	Item
	Delivery int64
	Error    string
	Cause    Cause
	// Fingerprint names the group of the error's text: errors that differ in numbers alone have the same. 0 is none.
	Fingerprint int64
	// Uncounted: the message was not delivered after this claim, so its attempt is
	// refunded.
	Uncounted bool
}

// Cause is why a message is dead.
type Cause uint8

// The causes, as they are stored.
const (
	CauseExhausted   Cause = 1 + iota // its last attempt failed
	CauseRejected                     // its handler dead-lettered it
	CauseExpired                      // its TTL was over
	CauseUndecodable                  // its body or its headers cannot be decoded
	CauseUnreadable                   // its contents could not be read from the database, and that was its last attempt
	CauseKilled                       // its handlers die, hang or lose their leases
	CauseOutput                       // an output that a pipe made of it cannot be stored
)

var causes = [...]string{"", "exhausted", "rejected", "expired", "undecodable", "unreadable", "killed", "output"}

// String is a word, "" for none.
func (c Cause) String() string {
	if int(c) >= len(causes) {
		return fmt.Sprintf("Cause(%d)", uint8(c))
	}
	return causes[c]
}

// MarshalText writes the form of String.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Group is the dead messages of one cause whose errors have the same fingerprint; 0: those without one.
type Group struct {
	Cause       Cause
	Fingerprint int64
}

// OutcomeAcked is the outcome of a done message that was acked.
const OutcomeAcked = 1

// ClaimParams are the values of a claim.
type ClaimParams struct {
	Rows     int // at most Traits.ClaimRows
	Lease    time.Duration
	Consumer [16]byte // the consumer that claims: see Consumer
	Salt     int64    // random, from 1 to 1 << FenceBits: see FenceBits
	Heads    Heads
	// Inline is the size of the largest body that the claim returns. Larger ones are leased, and NULL in the
	// result: read them with Contents. If it is below zero, dedup key, type, headers and body of every message are NULL.
	Inline int
}

// SuspectLapses is how many expired leases in a row make a message a suspect, which Claim leaves out. An expired lease is
// one that ran out, was never settled and never released.
const SuspectLapses = 2

// MarkParams are the values of a mark.
type MarkParams struct {
	Item     // the fence is the one that Rescan, Look or the mark before returned
	Lease    time.Duration
	Consumer [16]byte
	Salt     int64 // as in ClaimParams
	Alone    Alone
	// Again: Consumer has marked the message before and still lives, or the outcome of its mark is unknown. If Consumer
	// holds the lease, that one counts neither as an attempt nor as an expired lease.
	Again bool
}

// Alone is what else a consumer handles while it holds a message that it has marked.
type Alone uint8

// The values of the column alone.
const (
	NotAlone    Alone = iota // the holder has not read the message
	OnlySuspect              // the holder handles no other suspect
	OnlyMessage              // the holder handles no other message
)

// Window bounds a statement that works through a table in steps, in the order of times
// and ids, so that none reads what an earlier one has seen. What came to its place at
// Before or later is not touched (0: no bound); what is not behind After and AfterID, the
// time and id of the last one that the step before it returned, was seen. Both times are Unix
// milliseconds of the database's clock, and the zero value is the whole table.
type Window struct {
	After   int64
	AfterID [16]byte
	Before  int64
	// Priority is the one whose messages are meant, where they are live: each has an order
	// of its own. Live ones of an ordered queue have one order: there After is a seq, and counts
	// without AfterID, and nothing behind the seq Upto is read (0: no bound).
	Priority int8
	Upto     int64
}

// First is the bound below which nothing is: the beginning of the window.
func (w Window) First(least int64) (at int64, id [16]byte) {
	if w.After == 0 && w.AfterID == [16]byte{} {
		return least, id
	}
	return w.After, w.AfterID
}

// Place is where Peek continues: behind a message, as a Peek or Get showed it. At is its
// due_at, or of a dead or done one its ended_at; there At and ID count alone. Of a live one of
// an ordered queue it is the seq, and nothing behind the seq Upto is read (0: no bound).
type Place struct {
	Priority int8
	At       int64
	ID       [16]byte
	Upto     int64
}

// Consumer is a consumer as the database stores it: the holder of leases, for operators.
type Consumer struct {
	ID      [16]byte
	Name    string
	Host    string
	Process int
	For     time.Duration // until it counts as gone, unless it joined for longer, or joins again
}

// Sample is what a process adds to the samples of a queue: to the one of each of SampleSteps that
// the database's clock is in. The zero value adds nothing.
type Sample struct {
	Sent, Acked, Nacked, Died, Delivered int64
	Waited                               time.Duration // of those that were delivered, together
	Depth                                *Depth        // nil: not counted
}

// Depth is how much is in a queue. Of several of one sample the greatest of each stays.
type Depth struct {
	Ready, Scheduled, Leased, Dead int
	Oldest                         time.Duration
}

// SampleSteps are how long samples are, in seconds, and SampleAges for how long, in seconds, those
// of each step are kept.
var (
	SampleSteps = [3]int{10, 60, 3600}
	SampleAges  = [3]int{2 * 3600, 2 * 86400, 90 * 86400}
)

// MaxConsumerText is the most bytes of a consumer's name or host.
const MaxConsumerText = 200

// The kinds of Problems.
const (
	ProblemForm       = "form"       // tables of before the first release
	ProblemEncoding   = "encoding"   // the database cannot hold all of Unicode
	ProblemDurability = "durability" // a commit may be lost after it was confirmed
	ProblemNode       = "node"       // programs that connect here and elsewhere would break the order of a queue
)

// State is where a message is in its life.
type State string

// The states of a stored message.
const (
	Ready     State = "ready"
	Scheduled State = "scheduled"
	Leased    State = "leased"
	Dead      State = "dead"
	Done      State = "done"
)

// Live reports whether messages of the state are in the live table.
func (s State) Live() bool { return s == Ready || s == Scheduled || s == Leased }
