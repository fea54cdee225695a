package chanq

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// What other programs insert may be JSON in another encoding: CONVERT(varbinary(max), N'…') of
// SQL Server gives UTF-16, and many a tool puts a mark before its UTF-8.

// foreign reports that data is JSON in another encoding than UTF-8, has a mark before it, or is
// none. A JSON text begins with a character of ASCII, so in UTF-16 one of its first two bytes is
// zero, and in UTF-8 none (RFC 4627, section 3); the marks begin with bytes that nothing of JSON
// begins with.
func foreign(data []byte) bool {
	return len(data) >= 2 && (data[0] == 0 || data[1] == 0 || data[0] >= 0xEF)
}

// utf8JSON returns JSON in UTF-8, whichever of the encodings it is in: data itself if it is
// that already. UTF-32, which no database makes, stays as it is. What is in none of them is an error,
// with data as it is: encoding/json would read U+FFFD in the place of bytes that nobody then has.
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
	switch a, b := data[0], data[1]; {
	case a == 0xEF && bytes.HasPrefix(data, []byte("\xEF\xBB\xBF")):
		return data[3:], nil
	case a == 0xFF && b == 0xFE:
		return fromUTF16(data[2:], 0)
	case a == 0xFE && b == 0xFF:
		return fromUTF16(data[2:], 1)
	case a != 0 && b == 0:
		return fromUTF16(data, 0)
	case a == 0 && b != 0:
		return fromUTF16(data, 1)
	}
	return data, nil
}

var (
	errOddUTF16  = errors.New("UTF-16 of an odd number of bytes: its end is missing")
	errHalfUTF16 = errors.New("UTF-16 with half of a surrogate pair")
	errNoUnicode = errors.New("bytes that are neither UTF-8 nor UTF-16")
)

// fromUTF16 reads pairs of bytes, of which the one at low is the lower.
func fromUTF16(data []byte, low int) ([]byte, error) {
	if len(data)%2 != 0 {
		return nil, errOddUTF16
	}
	text := make([]byte, 0, len(data)/2+len(data)/8)
	unit := func(i int) rune { return rune(data[i+low]) | rune(data[i+1-low])<<8 }
	for i := 0; i < len(data); i += 2 {
		r := unit(i)
		if utf16.IsSurrogate(r) {
			if i+2 < len(data) {
				r = utf16.DecodeRune(r, unit(i+2))
			} else {
				r = utf8.RuneError
			}
			if r == utf8.RuneError {
				return nil, errHalfUTF16
			}
			i += 2
		}
		text = utf8.AppendRune(text, r)
	}
	return text, nil
}

// unmarshal is json.Unmarshal of any of the encodings.
func unmarshal(data []byte, into any) error {
	data, err := utf8JSON(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// rawJSON returns data as it is, unless that is JSON in another encoding than UTF-8, which
// no reader of a json.RawMessage expects.
func rawJSON(data []byte) json.RawMessage {
	if !foreign(data) {
		return data
	}
	if text, err := utf8JSON(data); err == nil && json.Valid(text) {
		return text
	}
	return data
}
