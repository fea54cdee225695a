// Package sqlbatch builds the SQL of chanq: pure functions from values to statement text and arguments, one Dialect per database. Nothing
// here uses a connection.
//
// The dialects are packages below this one, sqlserver, postgres and sqlite, each with one value, Dialect. Users of chanq need only that
// value. The interfaces here are internal to chanq and might get more methods at any time.
//
// Every statement works on a batch of rows in one round trip. Its text depends neither on the count of rows nor on the length of any value,
// so that a database plans each text once. SQL Server's enqueue has ten sizes, and names only columns that its rows have. Result columns are
// the same for every dialect and are documented on the methods of Queue.
package sqlbatch

import (
	"time"

	"github.com/chanq/chanq/sqlbatch/internal/seal"
)

// Dialect is the SQL of one kind of database. The dialects are values without state: sqlserver.Dialect, postgres.Dialect and
// sqlite.Dialect. Other packages cannot implement it.
type Dialect interface {
	Sealed(seal.Seal)
	// Name is "sqlserver", "postgres" or "sqlite".
	Name() string
	// Traits returns how statements of this dialect are best run.
	Traits() Traits
	// Classify returns what an error of the driver means for the statement that returned it. It compares error numbers, never texts.
	Classify(error) Class
	// Migrations lists the steps that bring the tables of one queue up to date, in order. Each statement is idempotent. The first creates the
	// table of queues, if anything is created. The last statement of each migration raises the queue's version to at least the number of the
	// migration, so that migrations run by hand are also recorded.
	Migrations(Names) []Migration
	// View creates chanq_<queue>__messages, which shows the messages of the queue to people and programs. Procedures creates
	// chanq_<queue>__send, which sends to the queue; it is empty if the database has no procedures. Each statement can be repeated, and is a
	// separate batch.
	View(Names) []string
	Procedures(Names) []string
	// Fresh prepares a database for its first tables, outside of a transaction.
	Fresh(Names) Fresh
	// Begin is run before migrations on their connection, and Commit after them. Together they are a transaction that excludes every other
	// migration of this database.
	Begin() []string
	Commit() string
	// Text returns a text in the words of this database, for packages above chanq: see chanq.Names.SQL, which lists the words.
	Text(n Names, text string) string
	// Queue prepares the statements of one queue.
	Queue(Names) Queue
	// Watch waits in the server, for at most atMost, until one of the queues has something to claim. It looks after each pause of every. It is
	// for processes that have nothing else to do. For each queue with Watched.Look it first takes one of WatchListeners locks, without
	// waiting, and keeps it while the statement runs. At most WatchListeners sessions read a queue, however many processes there are. A queue
	// without a free lock is not read, and if no queue is left, the statement ends at once. It returns a row for each queue, in order: its
	// index among queues; 1 if it had a lock, or 0; 1 if there is something to claim, or 0; and the Watched.Head of the next request. It
	// writes nothing, opens no transaction, and keeps no lock longer than a read, except for these. If it fails, its session might keep the
	// locks: close it.
	//
	// The text depends only on the names of the queues, at most MostWatched. If the database has no such wait, the statement has no text.
	Watch(queues []Watched, every, atMost time.Duration) Statement
}

// WatchListeners is how many sessions of all processes watch a queue at once: see Dialect.Watch. The second session covers the case that
// the first one is stopped.
const WatchListeners = 2

// MostWatched is the most queues of one Dialect.Watch.
const MostWatched = 32

// Watched is a queue of Dialect.Watch.
type Watched struct {
	Names
	Look bool // false: it is only named, to keep the text of the statement
	// Head is where the first look begins, for all priorities: at messages that were due then, in Unix milliseconds of the database's clock,
	// or later. It is the head that the previous request returned: a HeadMargin before the first message that it saw, or before a look that
	// saw none. 0 means a HeadMargin before now.
	Head int64
}

// Names selects the tables. CheckNames has the form of the queue's name; both names are quoted wherever they are written.
type Names struct {
	Schema string // "" is the dialect's default: dbo, public, main
	Queue  string
	Slots  int // of an ordered queue, up to MaxSlots; 0: a plain queue
	// Policy is written by the migrations of a queue that does not exist yet. Nothing else depends on it. The zero value is DefaultPolicy.
	Policy Policy

	// Shard, Shards and ShardSet are set if the queue is one shard of several: its number, their count, and the name of the set. Shards is 0
	// for a queue that is not sharded.
	Shard, Shards int
	ShardSet      [16]byte
}

// Migration is one numbered step of the schema.
type Migration struct {
	Number     int
	Formers    []Former
	Statements []string // create what is missing; each can be run again
	// Registry is how many of the first migration's statements create the table of queues. After them the version can be read, before the rest
	// is run.
	Registry int
}

// Former adds columns to a table of an earlier version, before the statements of a migration, where no statement can itself look whether
// they exist.
type Former struct {
	Ask string // returns a row if Add must be run
	Add []string
}

// Fresh is what must be done in a database without tables. It is zero if nothing is required.
type Fresh struct {
	Ask     string // returns a row if Set and Rewrite must be run
	Set     string // has no effect in a database that has a table
	Rewrite string // applies Set in a database that is not empty, though it has no table
}

// Version is the number of the last migration, the same in every dialect. A queue's row also has min_version, the lowest version of a
// program that may use the queue, and features, a bit for each property that a program must know. A program refuses a greater min_version
// and a bit that is not in Features. A greater version alone does not keep a program from working.
//
// Version 3 has columns, noticed_at, history and heard_at, that programs of version 2 (Least) do not need.
const (
	Version  = 3
	Least    = 2
	Features = 0
)

// Traits are what a runner of statements must know about a dialect.
type Traits struct {
	// OneWriter: the database admits one writing statement at a time, so all statements to one *sql.DB share one connection and its page
	// cache.
	OneWriter bool
	// Prepare: parsing a text costs enough to prepare it on the connection.
	Prepare bool
	// PrepareTells: the database has one error for a missing table and for many other faults. Class NoSchema of a statement that was run is
	// right only if preparing its text fails as well. If it can be prepared, wrap the error in a RunError.
	PrepareTells bool
	// Schema is the schema that an empty Names.Schema means.
	Schema string
	// Remedies has the remedy for each of the Problems kinds.
	Remedies map[string]string
	// PlacesBegun: the position of a transaction is fixed when it begins. What EnqueueBegun stores in it comes before what it stores in a
	// transaction that begins later.
	PlacesBegun bool
	// WatermarkFirst: the last number drawn of a Read is a watermark from before it reads rows.
	WatermarkFirst bool
	// These are the most items that one statement of each kind takes.
	EnqueueRows, ClaimRows                        int
	AckItems, NackItems, DeadLetterItems, FindIDs int
}

// Class is what an error means for the statement that returned it.
type Class uint8

// The classes.
const (
	// Unknown: whether the statement was applied is unknown (a broken connection, a timeout, or an error that the dialect does not know).
	Unknown Class = iota
	// RolledBack: the database undid the statement (deadlock, lock timeout, busy).
	// Repeat at once, with jitter.
	RolledBack
	// Refused: the statement was not run (throttling, failover, no connection).
	// Repeat after a longer pause.
	Refused
	// Duplicate: a unique key already exists; nothing was applied.
	Duplicate
	// BadRow: a value does not fit, or a trigger of another program refuses the row; the other rows of the batch could be stored.
	BadRow
	// NoSchema: a table or column is missing.
	NoSchema
	// Permanent: repeating does not help (permission, syntax, read-only database).
	Permanent
)

func (c Class) String() string {
	return [...]string{"unknown", "rolled back", "refused", "duplicate", "bad row", "no schema", "permanent"}[c]
}

// RunError is an error of a statement that the database has compiled since, so everything that it names exists: see Traits.PrepareTells.
type RunError struct{ Err error }

func (e *RunError) Error() string { return e.Err.Error() }
func (e *RunError) Unwrap() error { return e.Err }

// ShrinkPages is how many pages a Queue.Shrink returns at most. Meanwhile it holds the write lock of SQLite.
const ShrinkPages = 256

// Statement is one round trip: text and arguments for ExecContext or QueryContext.
type Statement struct {
	Text string
	Args []any
	// Prior are statements to run before it in the same transaction, where the
	// dialect needs more than one statement.
	Prior []Statement
}

// Queue builds the statements of one queue. Its methods are pure and safe for
// concurrent use; slices passed in are not kept after the statement has run.
// Times in results are Unix milliseconds of the database's clock. As with Dialect,
// only chanq's own packages can implement it.
type Queue interface {
	Sealed(seal.Seal)
	ordered

	// InTx builds the same statements for a transaction of the caller: they set no session options and begin or end no transaction. There
	// an Ack or Archive, the only settles there, waits for rows that other transactions have locked, until the caller's context ends.
	InTx() Queue
	// InOwnTx builds them for a transaction of chanq's own. There settles treat rows that others have locked as they do outside of one. If
	// settles wait for LockWait, the statements after them do too.
	InOwnTx() Queue
	// SkipLocked builds settles and extensions that leave out rows that other transactions have locked. Without it, and outside of a caller's
	// transaction, they leave out some of them or none, and wait for the others for up to LockWait and fail with class RolledBack, whichever
	// costs the database less if nothing is locked. A row that a settle does not return is gone, belongs to another consumer, or is locked: see Look.
	SkipLocked() Queue

	// Enqueue stores all rows. If an id or key already exists, it stores none and fails with class Duplicate. No result.
	Enqueue([]Row) Statement
	// EnqueueBegun is Enqueue for a transaction of chanq that does nothing else: with Traits.PlacesBegun, the rows are due and enqueued at the
	// time when it began. In an ordered queue they have the number that Begun has drawn, so use it once per transaction.
	EnqueueBegun([]Row) Statement
	// EnqueueNew stores the rows whose id and key do not exist yet and returns their ids. No two rows may have the same key.
	EnqueueNew([]Row) Statement
	// EnqueueOver is EnqueueNew for rows of a plain queue whose keys, if they have one, have the same OnDuplicate, not KeepFirst, and the same
	// DebounceMax. A live message that has the key of a row, and that no consumer leases, stays as it is or is replaced; its row is locked until
	// the end of the transaction in any case. A leased one loses its key. A row whose id exists changes nothing. It returns id, dedup_key
	// (bytes) of each message that was stored, kept or replaced. A row is left out if its message was leased meanwhile. For an ordered queue
	// the statement has no text.
	EnqueueOver([]Row) Statement
	// Find returns id, dedup_key, fence of the live rows that have one of the ids, and id, dedup_key, 0 of those that have one of the keys. It
	// might wait for an insert of one of them that is in progress.
	Find(ids [][16]byte, keys []string) Statement
	// Look returns id, fence of the live rows that have one of the ids, and never
	// blocks. For a row that another transaction has locked it returns the last committed
	// version, or the whole statement fails with class RolledBack.
	Look(ids [][16]byte) Statement

	// Claim leases up to Rows ready messages, highest priority first, within a priority by due time and then id, beginning at the Heads, and
	// returns id, priority, fence, attempts, lapses, expired (1 or 0), enqueued_at, due_at, expires_at (or NULL), dedup_key (bytes), type
	// (bytes), headers, body, size (bytes of the body), in any order and in one or more result sets. A message whose lease has expired is not
	// ready before its Rescue. From a paused queue it returns none. Messages whose TTL has ended must be dead-lettered, not delivered.
	Claim(ClaimParams) Statement
	// Contents returns dedup_key (bytes), type (bytes), headers, body of the message with this id and fence, or no row. It holds no lock after
	// it ends. If another transaction has locked the row, it might wait for up to LockWait, and fail with class RolledBack.
	Contents(Item) Statement
	// NextDue returns one row: milliseconds until a claim from these Heads might find a message that no consumer leases now (zero or less:
	// now). It is NULL when there is none or the queue is paused. It writes nothing and takes no lock.
	NextDue(Heads) Statement
	// DueOrLocked is NextDue from the beginning, except that expired leases count, and that a locked row counts as due if a claim would skip it. On
	// SQL Server it counts messages that an open transaction has sent, deleted or leased. It writes nothing, and never waits for a lock.
	DueOrLocked() Statement
	// Rescan looks from the beginning, and reads all rows that a claim skips: it finds messages that were committed late, messages that were
	// released to their old place, and expired leases. It returns a row for each priority: priority; head, when the first message that can be
	// claimed now was due, or else the database's time; due_in, milliseconds until something can be claimed there, the end of a lease included
	// (zero or less: now; NULL: nothing known); consumers, how many consumers the queue has; ID and lapses of the message of head, or NULL; and when
	// the first message whose lease has expired was due, and its ID (NULL: there is none, or more than PassedRows free messages, which another
	// transaction might have locked, are before it). It returns no row if the queue is paused. It writes nothing and takes no lock.
	Rescan() Statement
	// Rescue ends expired leases of one priority, among the RescueRows messages from a place on, and counts them in lapses. The message keeps
	// its place. From the second expired lease in a row on, and below MaxCrashes, it is due after a random time of up to Scatter instead. It
	// leaves out rows that other transactions have locked. It returns id, priority, due_at of each such message.
	Rescue(RescueParams) Statement

	// These apply to the items whose id and fence match and return id, fence of each such item, with the fence that matched. On an ordered
	// queue they do not check for a current lease, and count the attempt of a delivery that is not in the row because consumer has not marked
	// or extended it.
	Ack([]Item) Statement                  // deletes; may return a row of two NULLs in place of all, except InTx
	Archive([]Item) Statement              // moves to the done table
	Nack([]NackItem) Statement             // ends the lease; the attempt stays counted, lapses are cleared, and do not count as attempts
	Snooze([]NackItem) Statement           // as Nack, but the attempt is refunded
	Release([]ReleaseItem) Statement       // ends the lease; the attempt is refunded, and the message keeps its place
	DeadLetter([]DeadLetterItem) Statement // moves to the dead-letter table
	// Extend: the lease ends d from now, or when it would have ended, whichever is later. On an ordered queue it ends with consumer's
	// membership at the latest, and the row notes that consumer holds it. Plain queues ignore consumer.
	Extend(consumer [16]byte, items []Item, d time.Duration) Statement

	// Version returns one row: version of the schema, min_version, features; paused (1 or 0); kind, slots; the columns of
	// the Policy, in its order; shard, shards (0: not sharded), shard_set (32 hexadecimal digits);
	// paused_at, paused_by, pause_reason (NULL each if it is not paused); identity, which differs from that of a queue with this name in
	// another database. It returns no row if the queue was never migrated.
	Version() Statement
	// Problems returns a row for each reason why this database is unsafe for the queue: one of the Problem kinds, and what was found. It works
	// without the queue's tables.
	Problems() Statement
	// Missing returns one row: how many indexes the live, the dead-letter and the done table lack, or would have if they existed, and how many
	// of the tables are missing that all queues share. It does not count a table that the role can neither see nor create.
	Missing() Statement
	// Clock returns one row: the database's time.
	Clock() Statement
	// Record stores the queue, its version if that is greater than the stored one, and its policy. No result.
	Record(version int, p Policy) Statement
	// Configure changes only the policy of an existing queue. No result.
	Configure(p Policy) Statement
	// Stats returns one row: ready, scheduled, leased, dead, done, ms since the oldest ready message was due (NULL: none), paused (1 or 0).
	// Each count stops at limit. Ready and leased are distinguished among the first messages of each priority that are due, at least 2 * limit
	// of them, and oldest is found among these.
	Stats(limit int) Statement
	// Empty returns one row, of one column: 1 if the live table had no committed row at some moment while the statement ran, or else 0. It
	// never waits for a lock. It might also return 0 if a transaction which has written to the table, or locked it, was open.
	Empty() Statement
	// Browse returns up to n messages of a state, in the order of claims (or last ended first): state, id, priority, fence, attempts,
	// enqueued_at, due_at (NULL of a dead or done one), lease_until (NULL if it was not claimed since it was sent or released; the end of an
	// expired lease), ended_at (NULL of a live one), expires_at, leased_by (16 bytes, as lease_until), holder (the name of that consumer),
	// dedup_key, type, last_error, history, cause and fingerprint (NULL unless it is dead, and none), NULL in place of headers, and how many bytes the
	// body has. With a place it begins behind that place, whether its message still exists or not, and reads nothing before it. On a plain
	// queue Ready and Leased both return messages of either state, so that it reads at most n entries per lane. On an ordered queue slot, seq
	// and order_key (bytes) follow. Live messages are sorted by seq, whatever their slot; Place.At is the seq, and a place with an Upto bounds
	// them.
	//
	// Of live messages of an ordered queue it returns only those that f looks for. Of others it reads f.Among messages, and may leave out those
	// that f does not look for, and those that are not leased if s is Leased. It does not leave out the last one of them: its place is where
	// the next Browse begins.
	Browse(s State, n int, after *Place, f Filter) Statement
	// Peek is Browse with headers and bodies, of dead or done messages.
	Peek(s State, n int, after *Place) Statement
	// Get returns the columns of Peek for one message, wherever it is.
	Get([16]byte) Statement
	// Part is Get with up to n bytes of the body in place of all of it, beginning at byte from, which counts from 0; with n = 0 it is
	// NULL, and the body is not read. The column after it is how many bytes the whole body has.
	Part(id [16]byte, from, n int) Statement
	// Bodies returns id, headers, body of the live messages that have one of the ids, or of the dead ones if the state is Dead. It never
	// waits: SQL Server leaves out locked rows.
	Bodies(s State, ids [][16]byte) Statement
	// Cancel deletes live messages, including leased ones, and returns their ids.
	Cancel([][16]byte) Statement
	// RunNow makes messages of a plain queue due now that are scheduled, and returns their ids.
	RunNow([][16]byte) Statement
	// Surrender ends the leases that a consumer has of these messages, and returns their ids. On a plain queue that is what a Rescue does with
	// expired leases, except that the messages keep their places. On an ordered queue the leases expire, as with the consumer's membership.
	Surrender(consumer [16]byte, ids [][16]byte) Statement
	// Discard deletes dead messages and returns their ids.
	Discard([][16]byte) Statement
	// Purge deletes up to n messages of a state, of live ones those of Window.Priority, and returns id and place of each: when a dead or done
	// one ended, when a live one was or will be due. For live messages Before bounds when they entered their state: due, sent, or claimed. The
	// place of a live message of an ordered queue is its seq.
	Purge(s State, n int, w Window) Statement
	// Redrive moves up to n dead messages back, oldest first, or those with the ids if any are given. They are due now, with no attempts
	// counted and no expiry. It returns id and place (when it ended) of each. In an ordered queue they keep their slot and seq.
	Redrive(n int, ids [][16]byte, w Window) Statement
	// Causes returns a row for each group of dead messages behind after, up to groups of them: cause, fingerprint (NULL: none), how many
	// messages it has, which stops at limit, when the first of them ended, when the last one ended, and id and last_error of the last one. The
	// zero value of after is the beginning. It seeks each group in the index of causes and reads up to limit entries of it. Groups are in the
	// order of that index: within a cause the messages without a fingerprint are first, on PostgreSQL last.
	Causes(after Group, groups, limit int) Statement
	// Deaths returns cause, fingerprint (NULL: none) and minutes ago of the last n dead messages that ended within an hour, by the index of
	// their times.
	Deaths(n int) Statement
	// Walk returns id, place (when it ended), type (bytes) and, of an ordered queue, order_key (bytes) of up to n dead messages of a window,
	// first ended first: those of a group, or all if g is nil. It writes nothing, and reads at most n entries.
	Walk(g *Group, n int, w Window) Statement
	// Queues returns the names of all queues of the schema, in order. It fails with class NoSchema if there has never been a queue.
	Queues() Statement
	// Lock excludes all other access to the queue's tables until the end of the transaction, which Dialect.Begin has begun; no result. Drop
	// has the statements that remove the queue, in order.
	Lock() Statement
	Drop() []Statement
	// Pause and Resume set whether claims return messages. Pause stores when, by whom and why, each text of at most MaxPauseText bytes. No
	// result.
	Pause(by, reason string) Statement
	Resume() Statement
	// Trim deletes up to n dead or done messages that ended longer than age ago, and not before after. It returns id and place (when it ended)
	// of each.
	Trim(s State, age time.Duration, n int, after int64) Statement

	// Bloat returns one row for the live table, or none if that is missing: how many of its rows are dead and wait for a vacuum, and how many
	// are live, both estimated; how often it was vacuumed in total; and why this session may not vacuum it, or NULL. If the database needs no
	// Vacuum, the statement has no text.
	Bloat() Statement
	// Vacuum cleans up the live table. While another vacuum of it runs, it does nothing. No transaction may be open. No result.
	Vacuum() Statement

	// Shrink returns up to ShrinkPages free pages of the file to the file system, and a row without columns for each. It returns none
	// if the file was created without the setting of Fresh. If the database returns pages by itself, the statement has no text.
	Shrink() Statement

	// Join adds a consumer of this queue, or renews its membership. When it adds one, it deletes consumers of any queue that have been gone
	// for a day. Leave deletes a consumer. No result.
	Join(Consumer) Statement
	Leave(id [16]byte) Statement
	// Consumers returns the live consumers of this queue, in the order in which they joined: id, name, host, process, since, until, and when the
	// last Join was (that of a program of version 2: now).
	Consumers() Statement

	// Sample adds to the queue's samples, and creates missing ones. An empty Sample only reads. It returns step, and 1 if that sample has a
	// Depth by now, or, on PostgreSQL, if this session may not write it, or 0. It does this for the least step, and possibly for the others.
	Sample(Sample) Statement
	// Samples returns the samples of a step that begin at since (Unix milliseconds) or later, oldest first: at; ready, scheduled, leased,
	// dead, oldest (milliseconds), NULL each if no Depth was counted; sent, acked, nacked, died, delivered, and those of Times.
	Samples(since int64, step time.Duration) Statement
	// Thin deletes the samples that are older than SampleAges. No result.
	Thin() Statement
}

// LockWait is how long a settle waits for a row that another transaction has locked, if it waits at all. It is longer than any statement of
// chanq holds a row, and short compared with a lease.
const LockWait = 100 * time.Millisecond
