package chanq

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ID names a message. Producers make one for each message: a UUIDv7, whose
// order is the order of making within one process.
type ID [16]byte

// NewID makes an ID greater than every one that this process made before.
func NewID() ID { return ID(uuid.Must(uuid.NewV7())) }

// ParseID reads the form that String writes.
func ParseID(s string) (ID, error) {
	u, err := uuid.Parse(s)
	if err != nil {
		return ID{}, fmt.Errorf("chanq: id %q: %w", s, err)
	}
	return ID(u), nil
}

// String is the usual form of a UUID, 36 characters.
func (id ID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether id is the zero value, which no message has.
func (id ID) IsZero() bool { return id == ID{} }

// Time is when the ID was made by the clock of its producer, to the
// millisecond. It is meaningless for an ID that is no UUIDv7.
func (id ID) Time() time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// MarshalText writes the form of String, so that IDs are readable in JSON.
func (id ID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText reads the form of String.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
