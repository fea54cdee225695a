package chanq

import (
	"cmp"
	"crypto/rand"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/sqlbatch"
)

// Priority of a message: a claim takes every ready message of a higher priority before any of a lower one.
type Priority int8

// The priorities. The zero value is PriorityNormal.
const (
	PriorityLow    Priority = -1
	PriorityNormal Priority = 0
	PriorityHigh   Priority = 1
	PriorityUrgent Priority = 2
)

func (p Priority) String() string {
	if p < PriorityLow || p > PriorityUrgent {
		return fmt.Sprintf("Priority(%d)", int8(p))
	}
	return [...]string{"low", "normal", "high", "urgent"}[p-PriorityLow]
}

// Message is a message to send.
type Message[T any] struct {
	// ID identifies the message. Set it to send a message again whose outcome was unknown: while the first is in the
	// queue, the second is not stored. Any 16 bytes but zeros are valid, for example part of a hash. On a plain queue,
	// messages with the same due time are claimed by ID, so your own IDs give up the order of sends. Default: a new ID.
	ID   ID
	Body T
	// Type names the kind of job: see package chanqjobs. Without it, return a plain error from your handler for an
	// unknown Type: during a deployment a newer process then handles the message. Default: none. Range: at most 100
	// printable ASCII characters.
	Type string
	// Headers are sent with the body. Default: none. Range: at most 64, in UTF-8, 16 KiB in all when encoded.
	Headers map[string]string
	// Priority orders the messages of a plain queue. On an ordered queue it must be unset. Default: PriorityNormal.
	// Range: PriorityLow to PriorityUrgent.
	Priority Priority
	// Delay is how long after the send the message is due. The database's clock decides, in milliseconds, rounded up.
	// On an ordered queue it must be 0. Default: 0. Range: 0 to 100 years.
	Delay time.Duration
	// TTL is how long after the send the message can be claimed. It is rounded like Delay. Later the message is
	// dead-lettered with CauseExpired. A lease that started in time continues. A redriven message does not expire.
	// Default: 0, none. Range: 1 ms more than Delay (both rounded) to 100 years.
	TTL time.Duration
	// DedupKey deduplicates: while a message with this key is ready, scheduled or leased, another one is not stored.
	// Its Receipt is then marked Duplicate. A change that you send while a handler works on the first message is
	// therefore lost: set OnDuplicate. While an open SendTx has the key, other sends of the key wait, and later
	// sends of their Producer with them, unless InFlight is above 1. Default: none. Range: at most 200 bytes of UTF-8
	// without NUL.
	DedupKey string
	// OnDuplicate is what to do if a message with the DedupKey is in the queue. On an ordered queue it must be unset.
	// Default: KeepFirst.
	OnDuplicate OnDuplicate
	// DebounceMax is how long after the first send a message is due at the latest. It is for Debounce. Default: 10
	// times Delay. Range: Delay to 100 years.
	DebounceMax time.Duration
	// Key of an ordered queue: the message is delivered after all earlier messages with this key are acked or dead.
	// Messages of one Send or SendTx keep the order of its arguments. A message without a key waits for no other, and
	// no other waits for it. Default: none. Range: at most 200 bytes of UTF-8 without NUL.
	Key string
}

// Msg returns a Message with this body and no other field set.
func Msg[T any](body T) Message[T] { return Message[T]{Body: body} }

// OnDuplicate is what a send does if a message with its DedupKey is in the queue: see Message.OnDuplicate and
// docs/guides/scheduling.md.
type OnDuplicate = sqlbatch.OnDuplicate

// What a send does with a message that has its DedupKey. KeepFirst also keeps a leased message. With the others, a
// leased message loses its key and the new one is stored: a change that you send while a handler works is handled
// again. A message in the buffer of a consumer is leased too.
const (
	// KeepFirst stores nothing while a message with the key is ready, scheduled or leased.
	KeepFirst OnDuplicate = sqlbatch.KeepFirst
	// KeepQueued stores nothing while a message with the key is ready or scheduled.
	KeepQueued OnDuplicate = sqlbatch.KeepQueued
	// Replace gives the ready or scheduled message the Body, Type, Headers, Priority and TTL of the new one. It keeps
	// its ID and its due time, at which its TTL begins, and its attempts start again.
	Replace OnDuplicate = sqlbatch.Replace
	// Debounce is Replace with a new due time: Delay after the last send, and at most DebounceMax after the first.
	// Delay must be above 0.
	Debounce OnDuplicate = sqlbatch.Debounce
)

// Receipt is the result of a send of one message.
type Receipt struct {
	// ID of the message; if Duplicate or Replaced, of the one that was in the queue.
	ID ID
	// Duplicate: a message with this DedupKey was in the queue, and this one was not stored.
	Duplicate bool
	// Replaced: a message with this DedupKey was in the queue, and has the contents of this one now.
	Replaced bool
}

// row checks and encodes a message. It always sets the ID.
func (m *Message[T]) row(q *queue) (row sqlbatch.Row, given bool, err error) {
	if given = !m.ID.IsZero(); !given {
		m.ID = q.newID()
	}
	row = sqlbatch.Row{ID: m.ID, Priority: int8(m.Priority), Delay: m.Delay, TTL: m.TTL, Key: m.DedupKey,
		OnDuplicate: m.OnDuplicate, DebounceMax: m.DebounceMax, OrderKey: m.Key, Type: m.Type}
	if err := q.check(&row); err != nil {
		return row, given, err
	}
	if row.Headers, err = encodeHeaders(m.Headers); err != nil {
		return row, given, fmt.Errorf("Message.Headers: %w", err)
	}
	if row.Body, err = encodeBody(q.cfg.Codec, &m.Body); err != nil {
		return row, given, fmt.Errorf("Message.Body: %w", err)
	}
	if most := q.table.Policy().MaxBody; len(row.Body) > most {
		return row, given, fmt.Errorf("%w: Message.Body is %d bytes: must be at most Spec.MaxBody, which is %d",
			ErrTooLarge, len(row.Body), most)
	}
	return row, given, nil
}

// check checks a message without its headers and body, and sets its slot on an ordered queue.
func (q *queue) check(row *sqlbatch.Row) error {
	priority, ordered := Priority(row.Priority), q.table.Ordered
	switch {
	case priority < PriorityLow || priority > PriorityUrgent:
		return fmt.Errorf("Message.Priority is %d: must be from PriorityLow (%d) to PriorityUrgent (%d)", priority,
			PriorityLow, PriorityUrgent)
	case row.Delay < 0 || row.Delay > sqlbatch.MaxDelay:
		return fmt.Errorf("Message.Delay is %v: must be from 0 to %v", row.Delay, sqlbatch.MaxDelay)
	case row.TTL < 0 || row.TTL > sqlbatch.MaxDelay:
		return fmt.Errorf("Message.TTL is %v: must be from 0 (none) to %v", row.TTL, sqlbatch.MaxDelay)
	case row.TTL > 0 && ceilMS(row.TTL) <= ceilMS(row.Delay):
		return fmt.Errorf("Message.TTL is %v: must be longer than Message.Delay, which is %v", row.TTL, row.Delay)
	case len(row.Type) > sqlbatch.MaxType:
		return fmt.Errorf("%w: Message.Type is %d bytes: must be at most %d", ErrTooLarge, len(row.Type),
			sqlbatch.MaxType)
	case strings.ContainsFunc(row.Type, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("Message.Type is %q: must be printable ASCII", row.Type)
	case !ordered && row.OrderKey != "":
		return fmt.Errorf("Message.Key is %q: must be empty, since queue %s is plain (Spec.Kind)", row.OrderKey,
			q.names.Queue)
	case ordered && priority != 0:
		return fmt.Errorf("Message.Priority is %v: must be unset, since queue %s is ordered and delivers the "+
			"messages of a Key in the order of their sends", priority, q.names.Queue)
	case ordered && row.Delay != 0:
		return fmt.Errorf("Message.Delay is %v: must be 0, since queue %s is ordered and a message that is not due "+
			"would delay all later ones of its Key", row.Delay, q.names.Queue)
	}
	if err := cmp.Or(checkKey("Message.DedupKey", row.Key, sqlbatch.MaxKey),
		checkKey("Message.Key", row.OrderKey, sqlbatch.MaxOrderKey), checkDuplicate(row, ordered)); err != nil {
		return err
	}
	if i, mark := shardOf(row.OrderKey, row.Key, row.ID, q.cfg.Shard.Count), q.cfg.Shard.Index; i != mark {
		return fmt.Errorf("by its Key, DedupKey or ID the message belongs to shard %d, and %s is shard %d: send it "+
			"to the shard of ShardOf", i, q.cfg.Label, mark)
	}
	if ordered {
		row.Slot = sqlbatch.SlotOf(row.OrderKey, row.ID, q.names.Slots)
	}
	return nil
}

// debounceTimes is the default of DebounceMax, in delays.
const debounceTimes = 10

// checkDuplicate checks what a message does with duplicates, and completes its DebounceMax.
func checkDuplicate(row *sqlbatch.Row, ordered bool) error {
	does, most := row.OnDuplicate, row.DebounceMax
	switch {
	case does > Debounce:
		return fmt.Errorf("Message.OnDuplicate is %v: must be KeepFirst, KeepQueued, Replace or Debounce", does)
	case does != KeepFirst && ordered:
		return fmt.Errorf("Message.OnDuplicate is %v: must be KeepFirst, since the queue is ordered: its consumers "+
			"deliver a message without a write to its row, and its contents must not change places", does)
	case does != KeepFirst && row.Key == "":
		return fmt.Errorf("Message.OnDuplicate is %v: must be unset, since Message.DedupKey is empty", does)
	case does != Debounce && most != 0:
		return fmt.Errorf("Message.DebounceMax is %v: must be 0, since Message.OnDuplicate is %v", most, does)
	case does != Debounce:
		return nil
	case row.Delay == 0:
		return errors.New("Message.Delay is 0: must be above 0, since Message.OnDuplicate is debounce")
	case most != 0 && most < row.Delay || most > sqlbatch.MaxDelay:
		return fmt.Errorf("Message.DebounceMax is %v: must be from Message.Delay, which is %v, to %v", most, row.Delay,
			sqlbatch.MaxDelay)
	}
	row.DebounceMax = cmp.Or(most, debounceTimes*min(row.Delay, sqlbatch.MaxDelay/debounceTimes))
	return nil
}

// checkKey checks a key of a message.
func checkKey(field, key string, most int) error {
	switch {
	case len(key) > most:
		return fmt.Errorf("%w: %s is %d bytes: must be at most %d", ErrTooLarge, field, len(key), most)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return fmt.Errorf("%s is %q: must be UTF-8 without NUL", field, key)
	}
	return nil
}

// ceilMS returns a delay or a TTL in milliseconds, as it is stored.
func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// rowsOf checks and encodes messages, and returns receipts with their IDs. keyed reports that an ID or a key might
// already be in the queue.
func rowsOf[T any](q *queue, ms []Message[T]) (rows []sqlbatch.Row, receipts []Receipt, keyed bool, err error) {
	rows, receipts = make([]sqlbatch.Row, len(ms)), make([]Receipt, len(ms))
	for i := range ms {
		m := ms[i]
		row, given, err := m.row(q)
		if err != nil {
			return nil, nil, false, &OpError{Op: "send", Queue: q.cfg.Label, ID: m.ID, Err: err}
		}
		rows[i], receipts[i].ID = row, row.ID
		keyed = keyed || given || row.Key != ""
	}
	return rows, receipts, keyed, nil
}

// addDuplicates marks the receipts of messages that met another one in the queue, and counts them.
func addDuplicates(receipts []Receipt, stored []send.Receipt) (duplicates int) {
	for i, r := range stored {
		if r.Duplicate || r.Replaced {
			receipts[i] = receiptOf(r)
			duplicates++
		}
	}
	return duplicates
}

// ID identifies a message. The sender generates it: a UUIDv7. IDs of one process are in the order of their generation.
type ID [16]byte

// NewID generates an ID, greater than every earlier one of this process.
func NewID() (id ID) {
	ids.Lock()
	defer ids.Unlock()
	now := time.Now().UnixNano()
	ids.last = max(ids.last+1, now/1e6<<12|now%1e6>>8)
	if ids.used == 0 {
		_, _ = rand.Read(ids.random[:]) // never fails
	}
	copy(id[8:], ids.random[ids.used:ids.used+8])
	ids.used = (ids.used + 8) % len(ids.random)
	binary.BigEndian.PutUint64(id[:], uint64(ids.last>>12<<16|7<<12|ids.last&0xfff))
	id[8] = id[8]&0x3f | 0x80
	return id
}

// ids makes IDs: UUIDs of version 7, in which 1/4096 of milliseconds follow the milliseconds. Random bytes are read
// many at a time: a read for each ID takes a twentieth of a sender's CPU time. Package uuid would allocate each ID.
var ids struct {
	sync.Mutex
	last   int64 // time of the last ID
	random [4096]byte
	used   int // of random; 0: it is to be read
}

// ParseID parses the form of String.
func ParseID(s string) (ID, error) {
	u, err := uuid.Parse(s)
	if err != nil {
		return ID{}, fmt.Errorf("chanq: id %q: %w", s, err)
	}
	return ID(u), nil
}

// String returns the usual form of a UUID, 36 characters.
func (id ID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether id is the zero value, which no message has.
func (id ID) IsZero() bool { return id == ID{} }

// Time returns when the ID was generated, by the sender's clock, to the millisecond. It is meaningless for an ID that
// is not a UUIDv7.
func (id ID) Time() time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// MarshalText returns the form of String, readable in JSON.
func (id ID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText parses the form of String.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// Value implements driver.Valuer with the text of String: for a text column, a uuid of PostgreSQL or a uniqueidentifier
// of SQL Server. For a column of 16 bytes pass id[:].
func (id ID) Value() (driver.Value, error) { return id.String(), nil }

// Scan implements sql.Scanner for 16 bytes, and for text as in ParseID. For NULL use a sql.Null[ID]. SQL Server returns
// the bytes in another order: select CONVERT(char(36), id).
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		return errors.New("chanq: id: the column is NULL, use a sql.Null[chanq.ID]")
	case string:
		return id.UnmarshalText([]byte(v))
	case []byte:
		if len(v) == len(id) {
			copy(id[:], v)
			return nil
		}
		return id.UnmarshalText(v)
	}
	return fmt.Errorf("chanq: id: the column has a %T: must be text or 16 bytes", src)
}

// ShardOf returns the index of the shard, from 0 to shards - 1, that a message belongs to by its Key, or else its
// DedupKey, or else its ID. It is -1 if the message has none of them and can go to any. Programs in other languages
// must compute the same: CRC-32 (IEEE) of the key, or the last two bytes of the ID, modulo shards.
func ShardOf[T any](m Message[T], shards int) int { return shardOf(m.Key, m.DedupKey, m.ID, shards) }

// The hash is not FNV as for slots: the keys of a shard would use only some of its slots.
func shardOf(key, dedupKey string, id ID, shards int) int {
	switch key = cmp.Or(key, dedupKey); {
	case key != "":
		return int(crc32.ChecksumIEEE([]byte(key)) % uint32(max(shards, 1)))
	case id.IsZero():
		return -1
	}
	return (int(id[14])<<8 | int(id[15])) % max(shards, 1)
}

// newID generates an ID. On a shard the ID belongs to that shard.
func (q *queue) newID() ID {
	id, mark := NewID(), q.cfg.Shard
	if mark.Count > 1 {
		tail := int(id[14])<<8 | int(id[15])
		if tail += mark.Index - tail%mark.Count; tail > math.MaxUint16 {
			tail -= mark.Count
		}
		id[14], id[15] = byte(tail>>8), byte(tail)
	}
	return id
}
