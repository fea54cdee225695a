package chanq

import (
	"encoding/json"
	"fmt"

	"github.com/chanq/chanq/internal/text"
)

// Codec turns message bodies into bytes and back, for example encrypted (docs/guides/data.md). It must be safe for
// concurrent use. Bodies of type []byte, string and json.RawMessage bypass it: they are stored and read unchanged. (But
// a json.RawMessage receives another program's UTF-16 in UTF-8.)
//
// Encode runs within Send and SendTx, in a worker of Pipe, and in the intake of Producer.C, Decode in the consumer's
// feed. A panic is an error of that message. A method must not call runtime.Goexit, as t.FailNow does, and must not
// wait for its caller, for example by Flush or Shutdown.
type Codec interface {
	// Encode returns the bytes of body, which must not change afterwards.
	Encode(body any) ([]byte, error)
	// Decode reads data into body, a pointer. If body keeps a part of data, the data of neighbouring messages stays in
	// memory too.
	Decode(data []byte, body any) error
}

// JSON is the default Codec: encoding/json, in UTF-8. It also reads UTF-16 and byte order marks. Text that is neither
// is an error, both ways: for file names and other bytes use a []byte. As in encoding/json, a number in an any becomes
// a float64, which changes integers beyond 2^53: use an int64 or json.Number. A time.Time loses its monotonic clock
// reading. NaN and infinities are errors.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Encode(body any) ([]byte, error)    { return text.Marshal(body) }
func (jsonCodec) Decode(data []byte, body any) error { return text.Unmarshal(data, body) }

// meetsCodec reports whether user code encodes bodies of this type.
func meetsCodec[T any]() bool {
	switch any((*T)(nil)).(type) {
	case *[]byte, *json.RawMessage, *string:
		return false
	}
	return true
}

// encodeBody never returns nil, because an empty body is a body.
func encodeBody[T any](c Codec, body *T) ([]byte, error) {
	switch b := any(body).(type) {
	case *[]byte:
		return append([]byte{}, *b...), nil
	case *json.RawMessage:
		return append([]byte{}, *b...), nil
	case *string:
		return []byte(*b), nil
	}
	data, err := guard(func() ([]byte, error) { return c.Encode(*body) })
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// decodeBody may retain data: the caller must not use it afterwards.
func decodeBody[T any](c Codec, data []byte, body *T) error {
	switch b := any(body).(type) {
	case *[]byte:
		*b = data
		return nil
	case *json.RawMessage:
		*b = text.Raw(data)
		return nil
	case *string:
		*b = string(data)
		return nil
	}
	_, err := guard(func() (struct{}, error) { return struct{}{}, c.Decode(data, body) })
	return err
}

// guard returns a panic of the user's codec as an error: one message must not end the loop for all messages.
func guard[R any](f func() (R, error)) (r R, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec panicked: %v", p)
		}
	}()
	return f()
}

// Limits of headers, which are for trace contexts and similar short values.
const (
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10 // encoded
)

// encodeHeaders returns nil for no headers. They are stored as JSON, readable
// in the database.
func encodeHeaders(h map[string]string) ([]byte, error) {
	if len(h) == 0 {
		return nil, nil
	}
	if len(h) > maxHeaders {
		return nil, fmt.Errorf("%w: %d headers: must be at most %d", ErrTooLarge, len(h), maxHeaders)
	}
	data, err := text.Marshal(h)
	if err == nil && len(data) > maxHeaderBytes {
		return nil, fmt.Errorf("%w: headers are %d bytes: must be at most %d", ErrTooLarge, len(data), maxHeaderBytes)
	}
	return data, err
}

func decodeHeaders(data []byte) (map[string]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var h map[string]string
	if err := text.Unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	return h, nil
}
