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

// Config configures how a program uses a queue. The zero value suits most programs. Spec has the settings that all programs share.
type Config struct {
	// Spec has the settings that the database stores. Default: the stored value, or the defaults of Spec for a queue that Migrate makes.
	Spec
	// Dialect of the database. Set it if the database accepts the SQL of one of the three but reports another version. Default: the dialect
	// of the *sql.DB's driver if it is go-mssqldb, pgx, lib/pq or modernc.org/sqlite. With another driver, for example one that wraps one
	// of these, chanq queries the version of the database, which costs up to four round trips.
	Dialect Dialect
	// Shard identifies one shard of a queue over several databases. Set it in programs that migrate or operate that shard. Package
	// chanqshards sets it for programs that send and consume. Migrate stores it: for shard 0 a zero Set is generated; for other
	// shards it is an error. Open returns ErrShards if the stored value differs; StoredConfig returns the stored value. Default:
	// the queue has no shards.
	Shard ShardMark
	// Label names the queue in errors, hooks, logs, metrics and Lease.Queue. Set it for queues with the same name in several databases.
	// Package chanqshards sets it, for example to "orders/east". Default: the queue's name. Range: at most 256 bytes.
	// It must be UTF-8 without control characters.
	Label string
	// Schema that holds the tables. Default: dbo on SQL Server, public on PostgreSQL, main on SQLite. Range: at most 63 bytes. It
	// must be UTF-8 without control characters and line breaks.
	Schema string
	// Codec of bodies that are neither []byte, string nor json.RawMessage. Default: JSON.
	Codec Codec
	// Durability controls whether Open and Migrate accept a database that can lose confirmed commits. Such settings are delayed
	// durability of SQL Server, synchronous_commit = off of PostgreSQL, and synchronous below FULL of SQLite: with
	// DurabilityRequired they return ErrNotDurable. Default: DurabilityRequired.
	Durability Durability
	// Notifier wakes idle consumers of other processes. With NoNotifier they find the messages at their next poll, after
	// ConsumerConfig.PollEvery at the latest. Default: that of embedded.Open; otherwise none. (It is the driver
	// of the *sql.DB, if that is a Notifier.)
	Notifier Notifier
	// Hooks are functions that chanq calls on events. Default: none.
	Hooks Hooks
	// MaxCrashes is how many leases of a message may expire in a row before it is dead-lettered. That happens to each message that a
	// process held when it died, was paused, or could not reach the database for longer than ConsumerConfig.LeaseFor, and to a message
	// whose handler hangs until ConsumerConfig.MaxExtend. A handler that returns clears the count. From the second lease in a row on, the
	// message is due again after a random time: up to 1 min, then up to 2, 4, … min, at most 1 h. So it comes together with other
	// messages each time, and only a message that ends each of its processes is dead-lettered. With the default that takes half an hour
	// on average. On an ordered queue its key waits as long, and the first process that it ends is not counted. Default: 8. Range: 1 to
	// 10,000.
	MaxCrashes int
	// VacuumEvery is the least time between two checks of a consumer for dead rows on PostgreSQL. There the rows of ended messages
	// stay in the live table until a vacuum. If there are many, the consumer vacuums the table. Without the permission,
	// Hooks.Housekeeping reports what to grant. 100 years leaves vacuuming to autovacuum. Default: 1 s. Range: 10 ms to 100 years.
	VacuumEvery time.Duration
	// History controls whether this program adds to the history that chanqadmin.Queue.History returns. If the table chanq__samples is
	// missing, or the role lacks permission to write it, the program works without it, and Hooks.Housekeeping reports it. Default:
	// HistoryKept.
	History History
	// SessionMaxAge is the age at which a connection of this queue's producers, consumers and Notifier is replaced.
	// SetConnMaxLifetime does not replace connections that are always in use: after a switch to another server by DNS
	// they would stay with the old one. A connection that was idle for 1 min is also replaced. No statement and no
	// transaction is interrupted. Connections to SQLite are not replaced. Default: 30 min. Range: 100 ms to 100 years.
	SessionMaxAge time.Duration
	// StatementTimeout is the deadline of every statement of this queue. It applies to producers and consumers, to Open,
	// Queue.Send, Cancel and Empty, and to package chanqadmin. A statement that takes longer is cancelled. Producers, consumers and
	// Send repeat it; the other calls return an error. Migrate, chanqadmin.Configure and Drop, and calls with a Tx end only with
	// their context.
	//
	// A message that takes longer to store alone gets more time with each attempt, up to 2 min. Settles and extensions are repeated sooner,
	// after a third or a sixth of LeaseFor, unless leases are short. A claim has at most LeaseFor. A claim that fails is repeated for half
	// as many messages, down to one, and then without the contents. An attempt fails if the contents of the message cannot be read twice,
	// or not within this time, while the database answers. Default: 30 s. Range: 1 ms to 1 h.
	//
	// For chanqadmin.Open the default is 1 h, since one statement may move 1,000 large messages.
	StatementTimeout time.Duration
}

// History controls whether a program records its operations on a queue.
type History uint8

const (
	// HistoryKept makes each Queue with a producer or consumer add its counts to the table chanq__samples every 10 s: one statement for
	// three rows, or one read if it has done nothing. One process at a time also counts the messages: one Stats and one more such statement
	// per 10 s, and one DELETE of old samples per minute. A Queue without producer and consumer adds the counts of Send, SendTx and InTx
	// once, 10 s later.
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
		v.wrong("Config.Durability is %d: must be DurabilityRequired (%d, the default) or DurabilityAsIs (%d)", c.Durability, DurabilityRequired, DurabilityAsIs)
	}
	if c.History > HistoryOff {
		v.wrong("Config.History is %d: must be HistoryKept (%d, the default) or HistoryOff (%d)", c.History, HistoryKept, HistoryOff)
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
		v.wrong("Config.Label is %.63q, %d bytes: must be at most %d bytes of UTF-8 without control characters", c.Label, len(c.Label), maxLabel)
	}
	c.Shard.check(&v)
	c.Spec.check(&v)
	c.Spec = c.Spec.whole()
	return c, v.err()
}

// names returns the names of the queue's tables.
func (c *Config) names(queue string, slots int) sqlbatch.Names {
	return sqlbatch.Names{Schema: c.Schema, Queue: queue, Slots: slots, Shard: c.Shard.Index, Shards: c.Shard.Count, ShardSet: c.Shard.Set}
}

// ProducerConfig tunes a Producer. The zero value suits most programs.
type ProducerConfig struct {
	// BatchRows and BatchBytes bound one statement: its rows, and the bytes of their bodies. A body above BatchBytes gets its own
	// statement. Default: 500 and 4 MiB. Range: 1 to 512, and 1 byte to 32 MiB.
	BatchRows, BatchBytes int
	// Linger is the longest time that a message waits for others to share its statement, while no statement is running. A single message
	// does not wait. Default: 5 ms. Range: 1 µs to 1 min.
	Linger time.Duration
	// InFlight is how many statements may run at once. With 1, messages that one goroutine sends by C, or by Send, are claimed in the order
	// of the sends; on an ordered queue also if it uses both. (Full batches are still inserted in parallel, up to three on as many
	// connections, and commit in order.) A higher value gives up that order for throughput, so on an ordered queue it is an error. Default:
	// 1. Range: 1 to 64.
	InFlight int
	// BufferBytes bounds the messages that are handed over and not stored yet, and those that wait for Unsent or Close. At the bound
	// sends block. Default: 16 MiB. Range: 1 byte to 1 TiB, or 2 GiB where an int has 32 bits.
	BufferBytes int
}

// Defaults of ProducerConfig and ConsumerConfig, for programs that derive limits of their own from them.
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
	// Name of this consumer for operators, in chanqadmin.ConsumerInfo and chanqadmin.Entry.LeasedBy. Default: host/pid. Range: at
	// most 200 bytes of UTF-8 without NUL.
	Name string
	// Prefetch is the most leases that wait in the buffer for a reader. Other consumers cannot claim these messages. A consumer of an
	// ordered queue also keeps the first unread messages of keys that handlers process, within PrefetchBytes. For long jobs set 1: one
	// more message then still waits in this process until a handler is free. Default: 1000. Range: 1 to 100,000.
	Prefetch int
	// PrefetchBytes is the most bytes of bodies in the buffer. It is estimated from the last claim, so one claim may exceed it. The
	// first claim assumes Spec.MaxBody for each body. A body that is larger than PrefetchBytes is claimed alone. Default: 64 MiB.
	// Range: 1 byte to 1 TiB, or 2 GiB where an int has 32 bits.
	PrefetchBytes int
	// LeaseFor is how long a claim or an extension leases a message: the longest time until the messages of a process that died are
	// redelivered. Default: 30 s. Range: 100 ms to 24 h.
	LeaseFor time.Duration
	// MaxExtend is how long the consumer extends an unsettled lease after a reader has taken it: a handler that hangs then loses its
	// message. The time might start up to a third of LeaseFor earlier. Leases in the buffer are extended without this bound. If readers
	// take no lease for MaxExtend, the consumer of a plain queue releases its buffer, and claims nothing for LeaseFor, so that other
	// consumers may claim these messages. Default: 1 h. Range: 100 ms to 100 years.
	MaxExtend time.Duration
	// PollEvery is the longest pause between two polls of an empty queue by an idle consumer. The first pause is 10 ms, and each
	// further one is twice as long. Sends, nacks and releases of this process, the next due time, and Config.Notifier end a pause
	// immediately. An idle consumer costs one read every PollEvery, and finds messages of other processes after PollEvery at the
	// latest.
	//
	// A busy consumer claims from its cursor, and scans from the head of the queue once a second, or every PollEvery if that is less.
	// The scan finds messages of late commits, messages that other processes released, and expired leases: within about 1 s in normal
	// operation. If scans take longer than some milliseconds, all consumers of the queue together spend 5 % of their time on them.
	// Default: 1 s. Range: 1 ms to 1 h.
	PollEvery time.Duration
	// DrainFor is how long calls of Handle, HandleBatches and Pipe continue after the consumer has stopped. See Consumer.Handle.
	// They return at most 6 s later. The process manager must allow both: terminationGracePeriodSeconds of Kubernetes is 30 s by
	// default, TimeoutStopSec of systemd 90 s. Programs that read the channel use the context of Shutdown instead. Default: 20 s.
	// Range: 1 ms to 100 years.
	DrainFor time.Duration
	// Backoff returns the delay of a nack. It is called after a handler of Handle, HandleBatches or Pipe returned err, or
	// Delivery.Nack was called with it (nil for none). It is also called for a message whose contents cannot be read; d then has no
	// DedupKey and no Headers. d.Attempt also counts earlier leases that expired. Backoff must not settle d. If it panics, or
	// returns a negative delay or one above 100 years, the default is used. Default: ExponentialBackoff(1 s, 1 h).
	Backoff func(d *Delivery, err error) time.Duration
	// Middleware is called around each handler of Handle and Pipe, the first one outermost. See Middleware. With a Middleware
	// HandleBatches returns an error. Loops over C, All and Receive do not call it. Default: none.
	Middleware []Middleware
	// StopWhenIdle ends the consumer when the queue is drained: for cron jobs and tools. It ends as after Stop, with a nil Err, when
	// both conditions hold:
	//
	//   - It holds nothing: no lease is buffered or delivered and unsettled, every settle is stored, and no handler runs. A lease
	//     that AckTx has acked counts as settled.
	//   - No message is due and unleased.
	//
	// Messages that other consumers have leased, or that have a delay or a later retry, do not prevent the end. A row that a
	// transaction has locked counts as due: the consumer ends after that transaction. On SQL Server that includes messages that an
	// open transaction has sent or deleted. A paused queue counts as drained. A database that does not answer does not end the
	// consumer.
	//
	// A consumer of an ordered queue ends when each slot has nothing to claim, or belongs to another live consumer. Messages behind
	// one of their key that is scheduled, retried later or dead with DeadKeyHolds do not prevent the end.
	//
	// A message that is sent at the moment of the end may be left for the next consumer. Each check costs one round trip after a
	// claim that found nothing (ordered: a read and a second claim). The consumer checks once when the last lease ends, and then,
	// while a row is locked, after pauses that grow to PollEvery. While it holds leases, it claims once per PollEvery instead of
	// reading the next due time, and does not listen for a Config.Notifier. With a Prefetch of 1 it holds the messages of its readers
	// and one more. Default: false.
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
