package sqlbatch

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"time"
)

// The values from which statements are built.

// Priority lanes. They are claimed from the highest down.
const (
	PriorityLow    = -1
	PriorityUrgent = 2
	Priorities     = PriorityUrgent - PriorityLow + 1
)

// Heads has, for each priority from the lowest up, where a claim begins to read. The zero value is the beginning.
//
// Entries of claimed and settled messages are before the others: PostgreSQL's dead index entries until a vacuum, and
// while a snapshot might still see them; SQL Server's ghosts until their cleanup; and leased messages. A claim that began
// at the beginning would walk all of them each time.
type Heads [Priorities]Head

// Head is a place in the order of a priority: a message that was due then, in Unix milliseconds of the database's clock. Many messages
// that were sent together are due at the same time.
type Head struct {
	Due int64
	ID  [16]byte
}

// Compare compares two places.
func (h Head) Compare(o Head) int {
	return cmp.Or(cmp.Compare(h.Due, o.Due), bytes.Compare(h.ID[:], o.ID[:]))
}

// HeadMargin is how far a head stays behind the database's clock: a message whose INSERT took less than this long is
// found although later ones were claimed meanwhile. A quarter of a second is longer than almost every commit, and short
// enough that few dead rows are walked over.
const HeadMargin = 250 * time.Millisecond

// MaxKey is the most bytes of a dedup key, MaxType the most of a type, MaxError the most of an error text
// that is kept with a message (longer ones are cut).
const (
	MaxKey   = 200
	MaxType  = 100
	MaxError = 2000
)

// MaxBody is the most bytes of a body that the tables accept from any program, and MaxHeaders the most of headers. Both
// are larger than the limits of chanq, since a program that sends UTF-16 needs twice as many.
const (
	MaxBody    = 32 << 20
	MaxHeaders = 64 << 10
)

// A history has the last attempts of a message that have failed, or whose lease has expired, the last one first. Each is its end, in Unix
// milliseconds, how many milliseconds it took, the name of its consumer, a line feed, its error, and the character 30. If what it took is not
// above 0, it is not known. A history is cut at its end, as are names and errors, so that it has at least five whole attempts.
const (
	MostHistory = 2000 // characters
	MostText    = 300  // of an error in it
	MostName    = 60   // of a consumer in it

	TextExpired = "the lease expired"
)

// Policy is what the database stores about a queue and what may be changed while programs use it.
type Policy struct {
	Holds              bool // of an ordered queue: a dead message keeps its key closed
	MaxKeys            int  // of an ordered queue: keys that are handled at once; 0: no limit
	MaxAttempts        int  // 0: no limit
	MaxBody            int
	Retain, RetainDead time.Duration // 0: done messages are not kept, and dead ones are kept permanently
}

// DefaultPolicy is the policy of a queue for which no other was chosen.
var DefaultPolicy = Policy{MaxAttempts: 20, MaxBody: 1 << 20}

// MaxPauseText is the most bytes of the actor of a pause, and of its reason.
const MaxPauseText = 400

// LastTime is the latest time in a table, in Unix milliseconds: the end of the year 9999.
const LastTime int64 = 253402300799999

// MaxDelay is the longest delay, lease or retention that every dialect can add to a time.
const MaxDelay = 100 * 365 * 24 * time.Hour

// Fences
//
// A fence is a 64-bit integer that only increases, and is never used twice for one id. This also holds for an id that is
// sent again, and for a database that lost a claim (a restore, a failover to a standby that lagged). A claim sets it to
//
//	greatest(fence, milliseconds since 1970 << FenceBits) + salt
//
// where salt is a random number that the claimer chose. Two claims get the same fence only if they run in the same
// millisecond of the database's clock, and then with a probability of one in a million. 43 bits of milliseconds last
// until the year 2248.
const FenceBits = 20

// LastFence is the greatest fence that the tables accept, from the year 2241: if another program wrote a greater one, the
// sum of a claim would overflow.
//
// Above HighFence a sum might overflow. Only another program can have written such a fence, or one close below. The next
// claim starts again from the clock, where no claim has given this message a fence before. Otherwise it would fail, and
// with it all later claims.
const (
	LastFence int64 = 9_000_000_000_000_000_000
	HighFence       = LastFence - 1<<40
)

// LastAttempt is the most attempts that the tables accept, and LastLapse the most lapses: chanq counts no further. Each
// lapse was an attempt, and so is the current lease of a message. The tables check this, so that a settle that subtracts
// them never gets below zero.
const (
	LastAttempt = 2_000_000_000
	LastLapse   = 32767
)

// OnDuplicate is what a send does if a live message has its dedup key.
type OnDuplicate uint8

// What a send does. KeepFirst and KeepQueued store nothing; Replace and Debounce replace the message. All but KeepFirst
// only do so while no consumer leases it: a leased message loses its key, and the new one is stored.
const (
	KeepFirst OnDuplicate = iota
	KeepQueued
	Replace
	Debounce
)

func (o OnDuplicate) String() string {
	if o > Debounce {
		return fmt.Sprintf("OnDuplicate(%d)", uint8(o))
	}
	return [...]string{"keep-first", "keep-queued", "replace", "debounce"}[o]
}

// Row is one message to enqueue.
type Row struct {
	ID          [16]byte
	Priority    int8
	OnDuplicate OnDuplicate   // with EnqueueOver: what it does if a live message has Key
	Delay       time.Duration // until it is due; rounded up to milliseconds
	TTL         time.Duration // until it expires, from now; 0 is never
	DebounceMax time.Duration // with Debounce: how long after it was first sent it is due at the latest
	Key         string        // dedup key; "" is none
	OrderKey    string        // of an ordered queue, which has neither Priority nor Delay; "" is none
	Slot        int           // of an ordered queue: see SlotOf
	Type        string        // at most MaxType printable ASCII characters; "" is none
	Headers     []byte        // nil is none
	Body        []byte
}

// Plain reports that the row has an ID and a body, and nothing else.
func (r *Row) Plain() bool {
	return r.Priority == 0 && r.OnDuplicate == 0 && r.Delay|r.TTL|r.DebounceMax == 0 && r.Slot == 0 &&
		r.Key == "" && r.OrderKey == "" && r.Type == "" && r.Headers == nil
}

// Item names one lease: its message's id and its fence.
type Item struct {
	ID    [16]byte
	Fence int64
}

// NackItem releases a message, due after Delay, with the error that caused it.
//
// Delivery, here and in the next types, is the fence of the delivery on an ordered queue, and 0 on a plain one. The new
// stored fence is greater than the previous one and than Delivery.
type NackItem struct {
	Item
	Delivery int64
	Delay    time.Duration
	Took     time.Duration // by the handler; 0: not known
	Error    string        // "" keeps the stored text
}

// ReleaseItem restores a message to its state before its claim or its delivery.
type ReleaseItem struct {
	Item
	Delivery int64
}

// DeadLetterItem moves a message to the dead-letter table.
type DeadLetterItem struct {
	Item
	Delivery int64
	Took     time.Duration // by the handler; 0: not known
	Error    string
	Cause    Cause
	// Fingerprint names the group of the error's text: errors that differ only in numbers have the same. 0 is none.
	Fingerprint int64
	// Uncounted: the message was not delivered after this claim, so its attempt is refunded.
	Uncounted bool
}

// Cause is why a message is dead.
type Cause uint8

// The causes, as they are stored.
const (
	CauseExhausted   Cause = 1 + iota // its last attempt failed
	CauseRejected                     // its handler dead-lettered it
	CauseExpired                      // its TTL ended
	CauseUndecodable                  // its body or its headers cannot be decoded
	CauseUnreadable                   // its contents could not be read from the database, and that was its last attempt
	CauseKilled                       // its handlers crash, hang or lose their leases
	CauseOutput                       // an output that a pipe made from it cannot be stored
)

var causes = [...]string{"", "exhausted", "rejected", "expired", "undecodable", "unreadable", "killed", "output"}

// String returns a word, "" for none.
func (c Cause) String() string {
	if int(c) >= len(causes) {
		return fmt.Sprintf("Cause(%d)", uint8(c))
	}
	return causes[c]
}

// MarshalText returns the form of String.
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
	// Inline is the size of the largest body that the claim returns. Messages with larger bodies are leased with a NULL
	// body: read it with Contents. If Inline is below zero, dedup key, type, headers and body of every message are NULL.
	Inline int
	// PastReaders: the claim also skips rows that readers have locked. It is for the claim after one that failed because of such a lock,
	// on SQL Server; elsewhere readers lock no row, or a claim always skips those that they have locked.
	PastReaders bool
}

// RescueParams are the values of a rescue.
type RescueParams struct {
	Priority   int8
	From       Head // where it begins: the place that Rescan returned
	MaxCrashes int  // with so many expired leases in a row a message is due at once, to be dead-lettered
}

// KeptLapses is the most expired leases in a row that the migration to version 2 leaves to a message: one below the default of MaxCrashes.
const KeptLapses = 7

// RescueRows is how many rows a rescue walks.
const RescueRows = 2500

// PassedRows is how many free messages a rescan passes in search of an expired lease: other transactions might have locked them.
const PassedRows = 100

// Scatter returns the longest delay of a message after its nth expired lease in a row. The delay is random, so that a message which ends its
// processes, and the messages which these processes held, are delivered at different times. The first redelivery is not delayed: most
// processes die for another reason.
func Scatter(n int) time.Duration {
	switch {
	case n < 2:
		return 0
	case n > 7:
		return time.Hour
	}
	return time.Minute << (n - 2)
}

// Window bounds a statement that works through a table in steps, in the order of times and ids, so that no step reads
// what an earlier one has seen. Messages whose time is Before or later are not touched (0: no bound). Messages up to
// After and AfterID, the time and id of the last message that the previous step returned, are skipped. Both times are
// Unix milliseconds of the database's clock, and the zero value is the whole table.
type Window struct {
	After   int64
	AfterID [16]byte
	Before  int64
	// Priority selects live messages: each priority has a separate order. Live messages of an ordered queue have one order.
	// There After is a seq, counts without AfterID, and nothing behind the seq Upto is read (0: no bound).
	Priority int8
	Upto     int64
}

// First returns the lower bound: the beginning of the window.
func (w Window) First(least int64) (at int64, id [16]byte) {
	if w.After == 0 && w.AfterID == [16]byte{} {
		return least, id
	}
	return w.After, w.AfterID
}

// Place is where Peek continues: behind a message, as a Peek or Get showed it. At is its due_at, or of a dead or done
// message its ended_at. For these only At and ID count. For a live message of an ordered queue At is the seq, and nothing
// behind the seq Upto is read (0: no bound).
type Place struct {
	Priority int8
	At       int64
	ID       [16]byte
	Upto     int64
}

// Filter is what a Browse looks for: see there. The zero value looks for all messages of the state.
type Filter struct {
	Among       int    // how many messages it may read to find them; 0: as many as it returns
	Type, Key   string // "": any
	Cause       Cause  // 0: any
	Fingerprint *int64 // as in Group; nil: any
}

// Consumer is a consumer as the database stores it. It shows operators the holder of leases.
type Consumer struct {
	ID      [16]byte
	Name    string
	Host    string
	Process int
	For     time.Duration // how long until it counts as gone, unless it joined for longer, or joins again
}

// HeardFor is how long a consumer counts as running after a heartbeat, whatever its leases. Of two heartbeats in this time one may fail.
const HeardFor = 25 * time.Second

// Sample is what a process adds to the samples of a queue: for each of SampleSteps, to the sample that contains the time
// of the database's clock. The zero value adds nothing.
type Sample struct {
	Sent, Acked, Nacked, Died, Delivered int64
	Times                                Times
	Depth                                *Depth // nil: not counted
}

// Times counts durations by their length: the first those below 1 ms, each other those from 2^(i-1) ms up to 2^i ms, and the last also
// all longer ones. The low 32 bits count calls of handlers, and the high ones waits of delivered messages: one addition adds both.
type Times [30]int64

// TimesOf returns the place of a duration in Times.
func TimesOf(d time.Duration) int {
	return min(bits.Len64(uint64(max(0, d.Milliseconds()))), len(Times{})-1)
}

// The counts in Times.
const (
	OneCall int64 = 1
	OneWait int64 = 1 << 32
)

// Depth is how many messages a queue has. If one sample gets several, the greatest of each count is kept.
type Depth struct {
	Ready, Scheduled, Leased, Dead int
	Oldest                         time.Duration
}

// SampleSteps are how long samples are, in seconds. SampleAges are how long samples of each step are kept, in seconds.
var (
	SampleSteps = [3]int{10, 60, 3600}
	SampleAges  = [3]int{2 * 3600, 2 * 86400, 90 * 86400}
)

// MaxConsumerText is the most bytes of a consumer's name or host.
const MaxConsumerText = 200

// The kinds of Problems.
const (
	ProblemForm       = "form"       // tables from before the first release
	ProblemEncoding   = "encoding"   // the database cannot hold all of Unicode
	ProblemDurability = "durability" // a commit might be lost after it was confirmed
	ProblemMemory     = "memory"     // the database has no file: unless another connection has these tables as well, each connection has its own
	ProblemHidden     = "hidden"     // the database hides rows from this role, so that the queue looks empty
	ProblemTable      = "table"      // an object with the name of a table is no table
	ProblemSets       = "sets"       // reported twice, in two result sets: the driver passes on only the first one if it comes once
	ProblemNode       = "node"       // programs that connect both here and to other nodes would break the order of a queue
)

// State is the state of a message.
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
