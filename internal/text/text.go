// Package text writes JSON in UTF-8, and reads it in the encodings in which other programs might store it: UTF-8,
// UTF-16 as made by CONVERT(varbinary(max), N'…') of SQL Server, and both with a byte order mark. It has no goroutine
// and no lock.
package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

var (
	errOddUTF16  = errors.New("UTF-16 with an odd number of bytes: its end is missing")
	errHalfUTF16 = errors.New("UTF-16 with half of a surrogate pair")
	errNoUnicode = errors.New("bytes that are neither UTF-8 nor UTF-16")
)

// foreign reports that data is JSON in UTF-16 or after a byte order mark, or is not JSON. JSON begins with an ASCII
// character, so one of its first two bytes is zero in UTF-16 and none in UTF-8 (RFC 4627, section 3). JSON never begins
// with a byte of a mark.
func foreign(data []byte) bool {
	return len(data) >= 2 && (data[0] == 0 || data[1] == 0 || data[0] >= 0xEF)
}

// UTF8 returns JSON in UTF-8: data itself if it is in UTF-8. UTF-32, which no database writes, is returned unchanged.
// Other bytes are an error, because encoding/json would replace them by U+FFFD.
func UTF8(data []byte) ([]byte, error) {
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
	// The decoder replaces half of a surrogate pair by U+FFFD.
	if same, err := utf16.NewEncoder().Bytes(text); err != nil || !bytes.Equal(same, data) {
		return nil, errHalfUTF16
	}
	return text, nil
}

// Unmarshal is json.Unmarshal for all of the encodings.
func Unmarshal(data []byte, into any) error {
	data, err := UTF8(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Raw returns data unchanged, unless it is JSON in UTF-16 or with a byte order mark, which readers of a json.RawMessage
// do not expect.
func Raw(data []byte) json.RawMessage {
	if !foreign(data) {
		return data
	}
	if decoded, err := UTF8(data); err == nil && json.Valid(decoded) {
		return decoded
	}
	return data
}
