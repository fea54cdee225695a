package chanq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

// Codec turns message bodies into bytes and back. It must be safe for concurrent use. Bodies of type []byte, string and
// json.RawMessage bypass the codec: they are stored and read unchanged. The only exception is JSON in UTF-16 that another program has
// stored: a json.RawMessage has it in UTF-8.
//
// Encode runs where the message is handed over: within Send and SendTx, in a worker of Pipe, and for Producer.C in the producer's
// intake. Decode runs in the consumer's feed, a goroutine of its own, while the next claim runs. A panic in them is an error of that
// message. They must not call runtime.Goexit, as t.FailNow does: it ends the goroutine that they run in.
//
// A method that does not return blocks only the goroutine that it runs in. Close and Shutdown return when their contexts end. A
// method must not wait for its own caller: Encode not for Flush or Close of that producer, Decode not for Shutdown of that consumer.
type Codec interface {
	// Encode returns the bytes of body, which must not change afterwards.
	Encode(body any) ([]byte, error)
	// Decode reads data into body, a pointer. A body that keeps a part of data also keeps the data of neighbouring messages in
	// memory.
	Decode(data []byte, body any) error
}

// JSON is the default Codec: encoding/json. It writes UTF-8. It also reads UTF-16 and byte order marks, which other programs may
// store. Bytes that are neither UTF-8 nor UTF-16 are an error; encoding/json alone would read U+FFFD.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Encode(body any) ([]byte, error)    { return json.Marshal(body) }
func (jsonCodec) Decode(data []byte, body any) error { return unmarshal(data, body) }

// meetsCodec reports that bodies of this type are encoded by the user's code.
func meetsCodec[T any]() bool {
	switch any((*T)(nil)).(type) {
	case *[]byte, *json.RawMessage, *string:
		return false
	}
	return true
}

// encodeBody never returns nil: an empty body is a body.
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

// decodeBody may keep data, which the caller gives away.
func decodeBody[T any](c Codec, data []byte, body *T) error {
	switch b := any(body).(type) {
	case *[]byte:
		*b = data
		return nil
	case *json.RawMessage:
		*b = rawJSON(data)
		return nil
	case *string:
		*b = string(data)
		return nil
	}
	_, err := guard(func() (struct{}, error) { return struct{}{}, c.Decode(data, body) })
	return err
}

// guard returns a panic of the user's codec as an error: one message must not end the loop that serves all.
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
	for k, v := range h {
		if !utf8.ValidString(k) || !utf8.ValidString(v) { // JSON would change it
			return nil, fmt.Errorf("header %q must be UTF-8", k)
		}
	}
	data, err := json.Marshal(h)
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
	if err := unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	return h, nil
}

// Other programs may store JSON in UTF-16, as CONVERT(varbinary(max), N'…') of SQL Server does, or with a
// byte order mark before its UTF-8.

var (
	errOddUTF16  = errors.New("UTF-16 with an odd number of bytes: its end is missing")
	errHalfUTF16 = errors.New("UTF-16 with half of a surrogate pair")
	errNoUnicode = errors.New("bytes that are neither UTF-8 nor UTF-16")
)

// foreign reports that data is JSON in UTF-16 or after a byte order mark, or is not JSON. JSON begins with
// an ASCII character, so one of its first two bytes is zero in UTF-16 and none in UTF-8 (RFC 4627,
// section 3). No JSON begins with a byte of a mark.
func foreign(data []byte) bool {
	return len(data) >= 2 && (data[0] == 0 || data[1] == 0 || data[0] >= 0xEF)
}

// utf8JSON returns JSON in UTF-8: data itself if it is in UTF-8. UTF-32, which no database writes, is returned unchanged. Other bytes are an
// error: encoding/json would replace them by U+FFFD.
func utf8JSON(data []byte) ([]byte, error) {
	text, err := decodeText(data)
	if err == nil && !utf8.Valid(text) {
		return data, errNoUnicode
	}
	return text, err
}

func decodeText(data []byte) ([]byte, error) {
	if !foreign(data) {
		return data, nil
	}
	order := unicode.LittleEndian
	switch a, b := data[0], data[1]; {
	case bytes.HasPrefix(data, []byte("\xEF\xBB\xBF")):
		return data[3:], nil
	case a == 0xFF && b == 0xFE:
		data = data[2:]
	case a == 0xFE && b == 0xFF:
		data, order = data[2:], unicode.BigEndian
	case a == 0 && b != 0:
		order = unicode.BigEndian
	case a == 0 || b != 0:
		return data, nil
	}
	if len(data)%2 != 0 {
		return nil, errOddUTF16
	}
	utf16 := unicode.UTF16(order, unicode.IgnoreBOM)
	text, err := utf16.NewDecoder().Bytes(data)
	if err != nil {
		return nil, err
	}
	// The decoder replaces half of a pair by U+FFFD.
	if same, err := utf16.NewEncoder().Bytes(text); err != nil || !bytes.Equal(same, data) {
		return nil, errHalfUTF16
	}
	return text, nil
}

// unmarshal is json.Unmarshal for each of the encodings.
func unmarshal(data []byte, into any) error {
	data, err := utf8JSON(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// rawJSON returns data unchanged, unless it is JSON in UTF-16 or with a byte order mark, which readers of a json.RawMessage do not expect.
func rawJSON(data []byte) json.RawMessage {
	if !foreign(data) {
		return data
	}
	if text, err := utf8JSON(data); err == nil && json.Valid(text) {
		return text
	}
	return data
}
