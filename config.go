package chanq

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Config is how your program uses a queue. The zero value suits most programs.
type Config struct {
	// Spec has the settings that the database stores. Default: the stored value, or the defaults of Spec for a queue
	// that Migrate makes.
	Spec
	// Dialect of the database. Set it for any driver but go-mssqldb, pgx, lib/pq, modernc.org/sqlite and embedded, for
	// example for a tracing driver around one of them. Default: the driver's.
	Dialect Dialect
	// Shard identifies one shard of a queue over several databases. Set it to migrate or operate one shard; package
	// chanqshards sets it for the rest. Migrate stores it, and generates the Set of shard 0, which the others need. A
	// different stored value is ErrShards. Default: the queue has no shards.
	Shard ShardMark
	// Label names the queue in errors, hooks, logs, metrics and Lease.Queue. Set it for queues with the same name in
	// several databases, for example to "orders/east", as chanqshards does. Default: the queue's name. Range: at most
	// 256 bytes. It must be UTF-8 without control characters.
	Label string
	// Schema is the database schema of the tables. Default: dbo on SQL Server, public on PostgreSQL, main on SQLite.
	// Range: at most 63 bytes. It must be UTF-8 without control characters and line breaks.
	Schema string
	// Codec encodes bodies that are neither []byte, string nor json.RawMessage. Default: JSON.
	Codec Codec
	// Durability controls whether Open and Migrate accept a database that can lose confirmed commits. See
	// docs/operate/schema.md. Default: DurabilityRequired.
	Durability Durability
	// Notifier wakes idle consumers of other processes. Without one, or with NoNotifier, they find messages at their
	// next poll. Default: the one of embedded.Open; otherwise none. (It is the driver of the *sql.DB, if that is a
	// Notifier.)
	Notifier Notifier
	// Hooks are functions that chanq calls on events, for example LogHooks. Default: none.
	Hooks Hooks
	// MaxCrashes is how many leases of a message can expire in a row before it is dead-lettered. A lease expires if its
	// process dies, pauses, or cannot reach the database for longer than ConsumerConfig.LeaseFor, or if its handler
	// hangs until ConsumerConfig.MaxExtend. When a handler returns, the count is cleared. Default: 8. Range: 1 to
	// 10,000.
	//
	// From the second lease on, the message is due after a random time of up to 1, 2, 4, … min, at most 1 h, so its
	// neighbours are not dead-lettered with it. On an ordered queue its key waits too.
	MaxCrashes int
	// VacuumEvery is the least time between two checks of a consumer for dead rows on PostgreSQL. If there are many, it
	// vacuums the table. Hooks.Housekeeping reports a missing permission. 100 years leaves vacuuming to autovacuum.
	// Default: 1 s. Range: 10 ms to 100 years.
	VacuumEvery time.Duration
	// History controls whether this program adds to the history that chanqadmin.Queue.History returns. If it cannot
	// write the table chanq__samples, Hooks.Housekeeping tells you. Default: HistoryKept.
	History History
	// SessionMaxAge is the age at which a connection of this queue's producers, consumers and Notifier is replaced. So
	// they follow a switch to another server by DNS; SetConnMaxLifetime does not replace connections in constant use.
	// After 1 min of idleness it is replaced too. No statement is interrupted. SQLite keeps its connections. Default:
	// 30 min. Range: 100 ms to 100 years.
	SessionMaxAge time.Duration
	// StatementTimeout is the deadline of every statement of this queue. Then producers, consumers and Queue.Send
	// repeat it; Open, Cancel, Empty and package chanqadmin return an error. Default: 30 s. Range: 1 ms to 1 h.
	//
	//   - Migrate, chanqadmin.Configure and Drop, and calls with a Tx have the deadline of their context alone. For
	//     chanqadmin.Open the default is 1 h.
	//   - A message that takes longer to store gets more time with each try, up to 2 min.
	//   - Settles and extensions are repeated sooner, after a part of LeaseFor. So are claims, each for half as many
	//     messages. If contents cannot be read twice, the attempt fails.
	StatementTimeout time.Duration
}

// History controls whether a program records its operations on a queue.
type History uint8

const (
	// HistoryKept adds this program's counts to the table chanq__samples every 10 s, with one statement per queue. One
	// process also counts the messages, with one Stats and one statement per 10 s. Sends without a Producer are added
	// 10 s later.
	HistoryKept History = iota
	// HistoryOff: this program records nothing.
	HistoryOff
)

// Dialect names the SQL of a database.
type Dialect string

// The dialects. The zero value means the dialect of the *sql.DB.
const (
	DialectSQLServer Dialect = "sqlserver"
	DialectPostgres  Dialect = "postgres"
	DialectSQLite    Dialect = "sqlite"
)

const (
	defaultMaxCrashes = 8
	mostCrashes       = 10_000
	maxLabel          = 256
)

func (c Config) withDefaults() (Config, error) {
	v := validator{}
	if c.Dialect != "" {
		if _, err := table.DialectNamed("Config.Dialect", string(c.Dialect)); err != nil {
			v.errs = append(v.errs, err)
		}
	}
	limit(&v, "Config.MaxCrashes", &c.MaxCrashes, defaultMaxCrashes, 1, mostCrashes)
	limit(&v, "Config.VacuumEvery", &c.VacuumEvery, time.Second, 10*time.Millisecond, sqlbatch.MaxDelay)
	limit(&v, "Config.StatementTimeout", &c.StatementTimeout, defaultStatementTimeout, time.Millisecond, time.Hour)
	limit(&v, "Config.SessionMaxAge", &c.SessionMaxAge, 30*time.Minute, 100*time.Millisecond, sqlbatch.MaxDelay)
	if c.Durability > DurabilityAsIs {
		v.wrong("Config.Durability is %d: must be DurabilityRequired (%d, the default) or DurabilityAsIs (%d)",
			c.Durability, DurabilityRequired, DurabilityAsIs)
	}
	if c.History > HistoryOff {
		v.wrong("Config.History is %d: must be HistoryKept (%d, the default) or HistoryOff (%d)", c.History,
			HistoryKept, HistoryOff)
	}
	if c.Notifier != nil && base.IsNil(c.Notifier) {
		v.wrong("Config.Notifier is a nil %T: leave it unset for no Notifier", c.Notifier)
	}
	if c.Codec == nil {
		c.Codec = JSON
	} else if base.IsNil(c.Codec) {
		v.wrong("Config.Codec is a nil %T: leave it unset for JSON", c.Codec)
	}
	if len(c.Label) > maxLabel || !utf8.ValidString(c.Label) || strings.ContainsFunc(c.Label, unicode.IsControl) {
		v.wrong("Config.Label is %.63q, %d bytes: must be at most %d bytes of UTF-8 without control characters",
			c.Label, len(c.Label), maxLabel)
	}
	c.Shard.check(&v)
	c.Spec.check(&v)
	c.Spec = c.Spec.whole()
	return c, v.err()
}

// names returns the names of the queue's tables.
func (c *Config) names(queue string, slots int) sqlbatch.Names {
	return sqlbatch.Names{Schema: c.Schema, Queue: queue, Slots: slots, Shard: c.Shard.Index, Shards: c.Shard.Count,
		ShardSet: c.Shard.Set}
}

// ProducerConfig tunes a Producer. The zero value suits most programs.
type ProducerConfig struct {
	// BatchRows and BatchBytes bound one statement: its rows, and the bytes of their bodies. A larger body has its own.
	// Default: 500 and 4 MiB. Range: 1 to 512, and 1 byte to 32 MiB.
	BatchRows, BatchBytes int
	// Linger is the longest time that a message waits for others to share its statement, if no statement is running. A
	// single message does not wait. Default: 5 ms. Range: 1 µs to 1 min.
	Linger time.Duration
	// InFlight is how many statements can run simultaneously. With 1, messages that one goroutine sends by C, or by
	// Send, are claimed in the order of the sends, unless you set Message.ID; on an ordered queue always. More gives up
	// the order for throughput, and is an error on an ordered queue. Default: 1. Range: 1 to 64.
	InFlight int
	// BufferBytes bounds the messages in memory: not stored yet, or waiting for Unsent or Close. At the bound sends
	// block. Default: 16 MiB. Range: 1 byte to 1 TiB, or 2 GiB where an int has 32 bits.
	BufferBytes int
}

// Defaults of ProducerConfig and ConsumerConfig, for your own limits.
const (
	DefaultBatchRows     = 500
	DefaultLinger        = 5 * time.Millisecond
	DefaultBufferBytes   = 16 << 20
	DefaultPrefetch      = 1000
	DefaultPrefetchBytes = 64 << 20
	DefaultDrainFor      = 20 * time.Second
)

const (
	defaultStatementTimeout = 30 * time.Second
	defaultBatchBytes       = 4 << 20
)

func (c ProducerConfig) withDefaults(d sqlbatch.Dialect) (ProducerConfig, error) {
	v := validator{}
	limit(&v, "ProducerConfig.BatchRows", &c.BatchRows, DefaultBatchRows, 1, min(512, d.Traits().EnqueueRows))
	limit(&v, "ProducerConfig.BatchBytes", &c.BatchBytes, defaultBatchBytes, 1, sqlbatch.MaxBody)
	limit(&v, "ProducerConfig.Linger", &c.Linger, DefaultLinger, time.Microsecond, time.Minute)
	limit(&v, "ProducerConfig.InFlight", &c.InFlight, 1, 1, 64)
	limit(&v, "ProducerConfig.BufferBytes", &c.BufferBytes, DefaultBufferBytes, 1, mostBytes)
	return c, v.err()
}

// ConsumerConfig tunes a Consumer. The zero value suits most programs.
type ConsumerConfig struct {
	// Name of this consumer for operators, in chanqadmin.ConsumerInfo and chanqadmin.Entry.LeasedBy. Default: host/pid.
	// Range: at most 200 bytes of UTF-8 without NUL.
	Name string
	// Prefetch is the most leases that wait in the buffer for a reader. Other consumers cannot claim these messages.
	// For long jobs set 1: one more message then waits. An ordered queue also keeps unread messages of keys in work,
	// within PrefetchBytes. Default: 1000. Range: 1 to 100,000.
	Prefetch int
	// PrefetchBytes is the most bytes of bodies in the buffer. It is estimated, so one claim can exceed it. A larger
	// body is claimed alone. Default: 64 MiB. Range: 1 byte to 1 TiB, or 2 GiB where an int has 32 bits.
	PrefetchBytes int
	// LeaseFor is how long a claim or an extension leases a message. If a process dies, its messages are redelivered
	// about LeaseFor later. Default: 30 s. Range: 100 ms to 24 h.
	LeaseFor time.Duration
	// MaxExtend is how long the consumer extends an unsettled lease after a reader has taken it. A handler that hangs
	// then loses its message. If readers take no lease for MaxExtend, a consumer of a plain queue releases its buffer
	// and claims nothing for LeaseFor. The time can start up to a third of LeaseFor earlier. Default: 1 h. Range:
	// 100 ms to 100 years.
	MaxExtend time.Duration
	// PollEvery is the longest pause between two polls of an empty queue by an idle consumer, and so the longest wait
	// of another process' message. Each poll costs one read. The pauses start at 10 ms and double. Sends, nacks and
	// releases of this process, the next due time, and Config.Notifier end a pause. Default: 1 s. Range: 1 ms to 1 h.
	//
	// A busy consumer claims from its cursor. It scans from the head for late commits, released messages and expired
	// leases, every second, or PollEvery if less. Slow scans are rarer. While handlers run for PollEvery or longer, it
	// looks up their messages every PollEvery, or every 100 ms if that is longer: see Queue.Cancel.
	PollEvery time.Duration
	// DrainFor is how long calls of Handle, HandleBatches and Pipe continue after the consumer has stopped. They return
	// at most 6 s later. Give your process longer than both: see docs/guides/deploying.md. For your own loops only the
	// context of Shutdown counts: call it while they run. Default: 20 s. Range: 1 ms to 100 years.
	DrainFor time.Duration
	// Backoff returns the delay of a nack. It gets the handler's error, or the cause of Delivery.Nack (nil for none),
	// and must not settle d. If contents cannot be read, d has no DedupKey and no Headers. After a panic, a negative
	// delay, or one above 100 years, the default is used. Default: ExponentialBackoff(1 s, 1 h).
	Backoff func(d *Delivery, err error) time.Duration
	// Middleware is called around each handler of Handle and Pipe, the first one outermost. HandleBatches returns an
	// error if there is one. Default: none.
	Middleware []Middleware
	// StopWhenIdle stops the consumer, as Stop does, when the queue is drained: each settle is stored, no handler runs,
	// and no message is due and unleased. Default: false.
	//
	//   - Messages do not keep it running if they are scheduled, leased by other consumers, or wait for a retry or for
	//     an earlier one of their key: Queue.Empty counts them. A paused queue counts as drained.
	//   - A locked row counts as due, until its transaction is over. A lease acked by AckTx counts as settled.
	//   - An outage does not stop it. What you send while it stops can be left for the next consumer.
	//   - Each check costs one round trip after an empty claim (ordered: two). While it holds leases it claims once per
	//     PollEvery, and it does not use Config.Notifier.
	StopWhenIdle bool
}

const minLease = 100 * time.Millisecond

func (c ConsumerConfig) withDefaults() (ConsumerConfig, error) {
	v := validator{}
	if len(c.Name) > sqlbatch.MaxConsumerText {
		v.wrong("ConsumerConfig.Name is %d bytes: must be at most %d", len(c.Name), sqlbatch.MaxConsumerText)
	}
	if !utf8.ValidString(c.Name) || strings.ContainsRune(c.Name, 0) {
		v.wrong("ConsumerConfig.Name is %q: must be UTF-8 without NUL", c.Name)
	}
	limit(&v, "ConsumerConfig.Prefetch", &c.Prefetch, DefaultPrefetch, 1, 100_000)
	limit(&v, "ConsumerConfig.PrefetchBytes", &c.PrefetchBytes, DefaultPrefetchBytes, 1, mostBytes)
	limit(&v, "ConsumerConfig.LeaseFor", &c.LeaseFor, 30*time.Second, minLease, 24*time.Hour)
	limit(&v, "ConsumerConfig.MaxExtend", &c.MaxExtend, time.Hour, minLease, sqlbatch.MaxDelay)
	limit(&v, "ConsumerConfig.DrainFor", &c.DrainFor, DefaultDrainFor, time.Millisecond, sqlbatch.MaxDelay)
	limit(&v, "ConsumerConfig.PollEvery", &c.PollEvery, time.Second, time.Millisecond, time.Hour)
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
	for i, m := range c.Middleware {
		if m == nil {
			v.wrong("ConsumerConfig.Middleware[%d] is nil: must be a function", i)
		}
	}
	return c, v.err()
}

// validator collects all errors of a config.
type validator struct{ errs []error }

func (v *validator) wrong(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

func (v *validator) err() error { return errors.Join(v.errs...) }

// mostBytes is the greatest value of limits in bytes. An int may have 32 bits.
const mostBytes = min(1<<40, math.MaxInt)

// limit sets a zero field to its default, or checks its bounds.
func limit[N int | time.Duration](v *validator, field string, value *N, standard, low, high N) {
	if *value == 0 {
		*value = standard
	} else if *value < low || *value > high {
		v.wrong("%s is %v: must be 0 (the default, %v) or from %v to %v", field, *value, standard, low, high)
	}
}
