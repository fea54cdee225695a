package chanq

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
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
	// ID identifies the message. Set it to send a message again whose outcome was unknown: while the first is in the queue, the
	// second is not stored. Default: a new ID.
	ID   ID
	Body T
	// Type says what kind of job the message is, for programs that send several kinds to one queue. Such a program opens the queue with
	// the T json.RawMessage and decodes each body by its Type (examples/service). For an unknown Type its handler returns a plain error:
	// while a new version is being deployed, a program of that version then handles the message later. A redriven message keeps its
	// Type. Default: none. Range: at most 100 printable ASCII characters.
	Type string
	// Headers are sent with the body. Default: none. Range: at most 64, in UTF-8, 16 KiB in all when encoded.
	Headers map[string]string
	// Priority orders the messages of a plain queue. An ordered queue has none: a message comes after the earlier ones of its Key.
	// Default: PriorityNormal. Range: PriorityLow to PriorityUrgent.
	Priority Priority
	// Delay is how long after the send the message is due, by the database's clock, rounded up to milliseconds. On an ordered queue
	// it must be 0. Default: 0. Range: 0 to 100 years.
	Delay time.Duration
	// TTL is how long after the send the message may be claimed, by the database's clock, rounded up to milliseconds. Later it is
	// dead-lettered with CauseExpired, also if it was nacked before. A lease that began in time continues. A redriven message does
	// not expire. Default: 0, it does not expire. Range: 1 ms more than Delay (both rounded) to 100 years.
	TTL time.Duration
	// DedupKey deduplicates: while a message with this key is ready, scheduled or leased, another one is not stored, and its Receipt
	// says Duplicate. While an open transaction has stored the key (SendTx), another send of the key waits for the end of that
	// transaction. Later sends of the same Producer wait with it, unless ProducerConfig.InFlight is above 1. Default: none. Range: at
	// most 200 bytes of UTF-8 without NUL.
	DedupKey string
	// Key of an ordered queue: the message is delivered after all earlier messages with this key are acked or dead. Messages of one call
	// of Send or SendTx are in the order of its arguments. A message without
	// a key waits for no other message, and no other message waits for it. A message that follows one with a DedupKey under the same
	// Key is stored by another statement. Default: none. Range: at most 200 bytes of UTF-8 without NUL.
	Key string
}

// Msg returns a Message with this body and no other field set.
func Msg[T any](body T) Message[T] { return Message[T]{Body: body} }

// Receipt is the result of a send of one message.
type Receipt struct {
	// ID of the message. If Duplicate, it is the ID of the message that is in the queue.
	ID ID
	// Duplicate: a message with this DedupKey was in the queue, and this message was not stored.
	Duplicate bool
}

// row checks and encodes a message. The ID is set in any case.
func (m *Message[T]) row(q *queue) (row sqlbatch.Row, given bool, err error) {
	if given = !m.ID.IsZero(); !given {
		m.ID = q.newID()
	}
	row = sqlbatch.Row{ID: m.ID, Priority: int8(m.Priority), Delay: m.Delay, TTL: m.TTL, Key: m.DedupKey, Type: m.Type}
	switch {
	case m.Priority < PriorityLow || m.Priority > PriorityUrgent:
		return row, given, fmt.Errorf("Message.Priority is %d: must be from PriorityLow (%d) to PriorityUrgent (%d)", m.Priority, PriorityLow, PriorityUrgent)
	case m.Delay < 0 || m.Delay > sqlbatch.MaxDelay:
		return row, given, fmt.Errorf("Message.Delay is %v: must be from 0 to %v", m.Delay, sqlbatch.MaxDelay)
	case m.TTL < 0 || m.TTL > sqlbatch.MaxDelay:
		return row, given, fmt.Errorf("Message.TTL is %v: must be from 0 (none) to %v", m.TTL, sqlbatch.MaxDelay)
	case m.TTL > 0 && ceilMS(m.TTL) <= ceilMS(m.Delay):
		return row, given, fmt.Errorf("Message.TTL is %v: must be longer than Message.Delay, which is %v", m.TTL, m.Delay)
	case len(m.DedupKey) > sqlbatch.MaxKey:
		return row, given, fmt.Errorf("%w: Message.DedupKey is %d bytes: must be at most %d", ErrTooLarge, len(m.DedupKey), sqlbatch.MaxKey)
	case !utf8.ValidString(m.DedupKey) || strings.ContainsRune(m.DedupKey, 0):
		return row, given, fmt.Errorf("Message.DedupKey is %q: must be UTF-8 without NUL", m.DedupKey)
	case len(m.Type) > sqlbatch.MaxType:
		return row, given, fmt.Errorf("%w: Message.Type is %d bytes: must be at most %d", ErrTooLarge, len(m.Type), sqlbatch.MaxType)
	case strings.ContainsFunc(m.Type, unprintable):
		return row, given, fmt.Errorf("Message.Type is %q: must be printable ASCII", m.Type)
	}
	if i := ShardOf(*m, q.cfg.Shard.Count); i != q.cfg.Shard.Index {
		return row, given, q.wrongShard(i)
	}
	if err := m.line(q, &row); err != nil {
		return row, given, err
	}
	if row.Headers, err = encodeHeaders(m.Headers); err != nil {
		return row, given, fmt.Errorf("Message.Headers: %w", err)
	}
	if row.Body, err = encodeBody(q.cfg.Codec, &m.Body); err != nil {
		return row, given, fmt.Errorf("Message.Body: %w", err)
	}
	if most := q.table.Policy().MaxBody; len(row.Body) > most {
		return row, given, fmt.Errorf("%w: Message.Body is %d bytes: must be at most Spec.MaxBody, which is %d", ErrTooLarge, len(row.Body), most)
	}
	return row, given, nil
}

// ceilMS returns a delay or a TTL in milliseconds, as it is stored.
func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// rowsOf checks and encodes messages, and returns receipts with their IDs. keyed reports that an ID or a key may be in the queue
// already.
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

// addDuplicates marks the receipts of messages that were not stored, and counts them.
func addDuplicates(receipts []Receipt, stored []send.Receipt) (duplicates int) {
	for i, r := range stored {
		if r.Duplicate {
			receipts[i] = receiptOf(r)
			duplicates++
		}
	}
	return duplicates
}

// unprintable reports a character that is not printable ASCII.
func unprintable(r rune) bool { return r < ' ' || r > '~' }

// line checks and sets the key and the slot of a message of an ordered queue. For a plain queue it checks that there is no key.
func (m *Message[T]) line(q *queue, row *sqlbatch.Row) error {
	switch {
	case !q.table.Ordered && m.Key != "":
		return fmt.Errorf("Message.Key is %q: must be empty, since queue %s is plain (Spec.Kind)", m.Key, q.names.Queue)
	case !q.table.Ordered:
		return nil
	case m.Priority != 0:
		return fmt.Errorf("Message.Priority is %v: must be unset, since queue %s is ordered and delivers the messages of a Key in the order of their sends", m.Priority, q.names.Queue)
	case m.Delay != 0:
		return fmt.Errorf("Message.Delay is %v: must be 0, since queue %s is ordered and a message that is not due would delay all later ones of its Key", m.Delay, q.names.Queue)
	case len(m.Key) > sqlbatch.MaxOrderKey:
		return fmt.Errorf("%w: Message.Key is %d bytes: must be at most %d", ErrTooLarge, len(m.Key), sqlbatch.MaxOrderKey)
	case !utf8.ValidString(m.Key) || strings.ContainsRune(m.Key, 0):
		return fmt.Errorf("Message.Key is %q: must be UTF-8 without NUL", m.Key)
	}
	row.OrderKey, row.Slot = m.Key, sqlbatch.SlotOf(m.Key, m.ID, q.names.Slots)
	return nil
}

// ID identifies a message. Producers generate one for each message: a UUIDv7. IDs of one process are in the order of their
// generation.
type ID [16]byte

// NewID generates an ID that is greater than every ID that this process generated before.
func NewID() ID { return ID(uuid.Must(uuid.NewV7())) }

// ParseID parses the form that String returns.
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

// Time returns when the ID was generated, by the clock of its producer, to the millisecond. It is meaningless for an ID that is not a
// UUIDv7.
func (id ID) Time() time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// MarshalText returns the form of String, so that IDs are readable in JSON.
func (id ID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText parses the form of String.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// Value implements driver.Valuer with the text of String. An ID is therefore an argument for a column of text, for a uuid of
// PostgreSQL or a uniqueidentifier of SQL Server. For a column of 16 bytes pass id[:].
func (id ID) Value() (driver.Value, error) { return id.String(), nil }

// Scan implements sql.Scanner for text that ParseID reads, and for 16 bytes. NULL is an error: scan a nullable column into a
// sql.Null[ID]. The driver of SQL Server returns a uniqueidentifier as 16 bytes in another order: select it as text, by
// CONVERT(char(36), id).
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

// ShardOf returns the index of the shard, from 0 to shards - 1, to which a message belongs by its Key, or else its DedupKey, or else
// its ID. It is -1 if the message has none of them and may go to any shard. Package chanqshards uses it, and each shard refuses the
// messages of other shards. Programs in other languages must compute the same: CRC-32 (IEEE) of the key, or the last two bytes of the
// ID, modulo shards.
//
// The hash is not FNV as for slots: the keys of a shard would use only some of its slots.
func ShardOf[T any](m Message[T], shards int) int {
	key := m.Key
	if key == "" {
		key = m.DedupKey
	}
	switch {
	case key != "":
		return int(crc32.ChecksumIEEE([]byte(key)) % uint32(max(shards, 1)))
	case m.ID.IsZero():
		return -1
	}
	return (int(m.ID[14])<<8 | int(m.ID[15])) % max(shards, 1)
}

// newID generates an ID. For a shard it belongs to that shard.
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

func (q *queue) wrongShard(i int) error {
	return fmt.Errorf("by its Key, DedupKey or ID the message belongs to shard %d, and %s is shard %d: send it to the shard of ShardOf", i, q.cfg.Label, q.cfg.Shard.Index)
}
