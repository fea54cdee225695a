// Package sqlbatch builds the SQL of chanq: pure functions from values to
// statement text and arguments, one Dialect per database. Nothing here touches
// a connection.
//
// Every statement works on a batch of rows in one round trip. Its text never
// depends on the count of rows (SQL Server's enqueue has a ladder of ten
// texts) nor on the length of any value, so that a database plans each text
// once. Result columns are the same for every dialect and are documented on
// the methods of Queue.
package sqlbatch

import "time"

// Dialect is the SQL of one kind of database. The dialects are values without
// state: SQLServer, Postgres, SQLite.
type Dialect interface {
	// Name is "sqlserver", "postgres" or "sqlite".
	Name() string
	// Traits says how statements of this dialect are best run.
	Traits() Traits
	// Classify says what an error of the driver means for the statement that
	// returned it: by error numbers, never by text.
	Classify(error) Class
	// Migrations lists the steps that bring the tables of one queue up to date,
	// in order. Each statement may be run again without harm. The first makes the
	// table of queues, if anything is made, and the last of each migration sees
	// to it that the queue's version is no lower than the migration's number, so
	// that what was run by hand is known, too.
	Migrations(Names) []Migration
	// Begin is run before migrations on their connection, and Commit after them:
	// a transaction that excludes every other migration of this database.
	Begin() []string
	Commit() string
	// Queue prepares the statements of one queue.
	Queue(Names) Queue
}

// Names says which tables are meant. The queue's name must match
// [a-z][a-z0-9_]{0,62}; both are quoted wherever they are written.
type Names struct {
	Schema string // "" is the dialect's default: dbo, public, main
	Queue  string
}

// Migration is one numbered step of the schema.
type Migration struct {
	Number     int
	Statements []string
	// Registry is how many of the first migration's statements make the table of
	// queues: after them the version can be asked for, before the rest is run.
	Registry int
}

// Version is the number of the last migration, the same in every dialect.
const Version = 1

// Traits are what a runner of statements must know of a dialect.
type Traits struct {
	// OneWriter: the database admits one writing statement at a time, so all
	// statements to one *sql.DB share one connection and its page cache.
	OneWriter bool
	// Prepare: parsing a text costs enough to prepare it on the connection.
	Prepare bool
	// The most items that one statement of each kind takes.
	EnqueueRows, ClaimRows                                int
	AckItems, NackItems, ReleaseItems, BuryItems, FindIDs int
}

// Class is what an error means for the statement that returned it.
type Class uint8

// The classes.
const (
	// Unknown: the statement may or may not have been applied (a broken
	// connection, a timeout, or an error that the dialect does not know).
	Unknown Class = iota
	// RolledBack: the database undid the statement (deadlock, lock timeout, busy).
	// Repeat at once, with jitter.
	RolledBack
	// Refused: the statement was not run (throttling, failover, no connection).
	// Repeat after a longer pause.
	Refused
	// Duplicate: a unique key exists already; nothing was applied.
	Duplicate
	// BadRow: a value does not fit; the other rows of the batch would.
	BadRow
	// NoSchema: a table or column is missing.
	NoSchema
	// Permanent: repeating cannot help (permission, syntax, read-only database).
	Permanent
)

func (c Class) String() string {
	return [...]string{"unknown", "rolled back", "refused", "duplicate", "bad row", "no schema", "permanent"}[c]
}

// Statement is one round trip: text and arguments for ExecContext or
// QueryContext.
type Statement struct {
	Text string
	Args []any
	// Prior are statements to run before it in the same transaction, where the
	// dialect cannot say all in one.
	Prior []Statement
}

// Priority lanes. They are claimed from the highest down.
const (
	PriorityLow    = -1
	PriorityUrgent = 2
)

// MaxKey is the most bytes of a dedup key, MaxError the most of an error text
// that is kept with a message (longer ones are cut).
const (
	MaxKey   = 200
	MaxError = 2000
)

// MaxDelay is the longest delay, lease or retention that every dialect can add
// to a time.
const MaxDelay = 100 * 365 * 24 * time.Hour

// Row is one message to enqueue.
type Row struct {
	ID       [16]byte
	Priority int8
	Delay    time.Duration // until it is due; rounded up to milliseconds
	Key      string        // dedup key; "" is none
	Headers  []byte        // nil is none
	Body     []byte
}

// Item names one lease: its message's id and its fence.
type Item struct {
	ID    [16]byte
	Fence int32
}

// NackItem gives a message back, due after Delay, with the error that caused it.
type NackItem struct {
	Item
	Delay time.Duration
	Error string // "" keeps what is there
}

// ReleaseItem gives a message back as if it had not been claimed: due at its
// former time (Unix milliseconds by the database's clock, as claimed).
type ReleaseItem struct {
	Item
	Due int64
}

// BuryItem sets a message aside in the dead table.
type BuryItem struct {
	Item
	Error string
}

// Order is how a claim chooses within a priority.
type Order uint8

// The orders.
const (
	FIFO     Order = iota // by due time, then id
	OrderAny              // whatever the database finds first
)

// ClaimParams are the values of a claim.
type ClaimParams struct {
	Rows  int // at most Traits.ClaimRows
	Lease time.Duration
	By    string // the consumer's name, for operators
	Order Order
}

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

// Queue builds the statements of one queue. Its methods are pure and safe for
// concurrent use; slices passed in are not kept after the statement has run.
// Times in results are Unix milliseconds of the database's clock.
type Queue interface {
	// InTx builds the same statements for a transaction of the caller: without
	// session settings or transaction control of their own.
	InTx() Queue

	// Enqueue stores all rows, or none and fails with class Duplicate when an id
	// or key is there already. No result.
	Enqueue([]Row) Statement
	// EnqueueNew stores the rows whose id and key are not there and returns their
	// ids. No two rows may have the same key.
	EnqueueNew([]Row) Statement
	// Find returns the live rows that have one of the ids or keys:
	// id, dedup_key, fence, leased (1 or 0).
	Find(ids [][16]byte, keys []string) Statement

	// Claim leases up to Rows ready messages, highest priority first, and returns
	// id, priority, fence, attempts, enqueued_at, due_at, dedup_key, headers, body,
	// in any order and in one or more result sets. A paused queue yields none.
	Claim(ClaimParams) Statement
	// NextDue returns one row: milliseconds until a message may be claimed
	// (zero or less: now), NULL when there is none or the queue is paused. It
	// writes nothing and takes no lock.
	NextDue() Statement

	// These apply to the items whose id and fence match and return id, fence of
	// each such item.
	Ack([]Item) Statement                   // deletes
	Archive([]Item) Statement               // moves to the done table
	Nack([]NackItem) Statement              // ends the lease; attempts stay counted
	Release([]ReleaseItem) Statement        // ends the lease; the attempt is refunded
	Bury([]BuryItem) Statement              // moves to the dead table
	Extend([]Item, time.Duration) Statement // the lease ends that long from now

	// Version returns one row: the schema's version and whether the queue is
	// paused (1 or 0). No row: the queue was never migrated.
	Version() Statement
	// Record notes the queue and its version after a migration.
	Record(version int) Statement
	// Stats returns one row: ready, scheduled, leased, dead, done, ms since the
	// oldest ready message was due (NULL: none), paused (1 or 0). Each count
	// stops at limit.
	Stats(limit int) Statement
	// Peek returns up to n messages of a state, first due (or last ended) first:
	// state, id, priority, fence, attempts, enqueued_at, due_at (lease end of a leased one,
	// end of a dead or done one), leased_by, dedup_key, last_error, headers, body.
	Peek(State, int) Statement
	// Get returns the columns of Peek for one message, wherever it is.
	Get([16]byte) Statement
	// Cancel deletes live messages, leased ones too, and returns their ids.
	Cancel([][16]byte) Statement
	// Purge deletes up to n messages of a state and returns the id of each.
	Purge(s State, n int) Statement
	// Redrive moves up to n dead messages back, oldest first, or those with the ids if any are
	// given, due now and with no attempts counted, and returns the id of each.
	Redrive(n int, ids [][16]byte) Statement
	// Pause and Resume set whether claims yield messages. No result.
	Pause() Statement
	Resume() Statement
	// Trim deletes up to n done messages that ended longer than age ago and
	// returns the id of each.
	Trim(age time.Duration, n int) Statement
}

// Milliseconds rounds up, so that a delay is never shortened.
func milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// cut shortens an error text to MaxError bytes without splitting a character.
func cut(s string) string {
	if len(s) <= MaxError {
		return s
	}
	n := MaxError
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
