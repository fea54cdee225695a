package text

import (
	"encoding/binary"
	"encoding/json"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// encodings returns a text in each encoding that a program might store.
func encodings(text string) map[string][]byte {
	in := func(order binary.AppendByteOrder, mark bool) (data []byte) {
		if mark {
			data = order.AppendUint16(data, 0xFEFF)
		}
		for _, unit := range utf16.Encode([]rune(text)) {
			data = order.AppendUint16(data, unit)
		}
		return data
	}
	return map[string][]byte{
		"UTF-8":                    []byte(text),
		"UTF-8 with a mark":        []byte("\xEF\xBB\xBF" + text),
		"UTF-16, low byte first":   in(binary.LittleEndian, false),
		"UTF-16, marked":           in(binary.LittleEndian, true),
		"UTF-16, high byte first":  in(binary.BigEndian, false),
		"UTF-16, marked, the same": in(binary.BigEndian, true),
	}
}

func TestJSONIsReadInEveryEncodingThatADatabaseMakes(t *testing.T) {
	for _, text := range []string{`1`, `{}`, `""`, `"é"`, `"日本"`, `{"a":"\ud83d\ude00 😀","b":[1,2]}`, "\r\n[\"ÿþ\"]",
		`{"日":null}`} {
		var want any
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		for name, data := range encodings(text) {
			var got any
			require.NoError(t, Unmarshal(data, &got), "%s in %s", text, name)
			require.Equal(t, want, got, "%s in %s", text, name)
			require.JSONEq(t, text, string(Raw(data)), "%s in %s", text, name)
		}
	}
	for name, data := range encodings(`{"a":"b"}`) {
		var headers map[string]string
		require.NoError(t, Unmarshal(data, &headers), name)
		require.Equal(t, map[string]string{"a": "b"}, headers, name)
	}
}

func TestWhatIsNoJSONInAnyEncodingIsRefusedAndStaysAsItIs(t *testing.T) {
	for _, data := range []string{"", "\x00", "\x00\x00", "\xFF\xFE", "\xFE\xFF", "\xEF\xBB\xBF", "\xEF", "{\x00}",
		"{\x00}\x00\x00", "\x00\x00\x00{\x00\x00\x00}", "\xFF\xFE{\x00}", "no\x00"} {
		var got any
		require.Error(t, Unmarshal([]byte(data), &got), "%q", data)
		require.Equal(t, data, string(Raw([]byte(data))), "%q", data)
	}
	var got any
	require.ErrorIs(t, Unmarshal([]byte("{\x00}"), &got), errOddUTF16)
}

// encoding/json alone would read U+FFFD for each of these, and a reader could not detect
// that.
func TestWhatIsNotUnicodeIsRefusedAndNotAltered(t *testing.T) {
	for data, want := range map[string]error{
		"\"\x00\x3D\xD8\"\x00":         errHalfUTF16,
		"\"\x00\x00\xDEa\x00\"\x00":    errHalfUTF16,
		"\"\x00\x3D\xD8\x3D\xD8\"\x00": errHalfUTF16,
		"\xFE\xFF\x00\"\xD8\x3D":       errHalfUTF16,
		"\"\xFF\"":                     errNoUnicode,
		"\"caf\xE9\"":                  errNoUnicode, // Latin-1
		"\"\xED\xA0\xBD\"":             errNoUnicode,
		"\xEF\xBB\xBF\"\xC3\"":         errNoUnicode,
	} {
		got := "as it was"
		require.ErrorIs(t, Unmarshal([]byte(data), &got), want, "%q", data)
		require.Equal(t, "as it was", got)
		require.Equal(t, data, string(Raw([]byte(data))), "%q", data)
	}
	var got string
	require.NoError(t, Unmarshal([]byte("\"\x00\x3D\xD8\x00\xDE\"\x00"), &got))
	require.Equal(t, "😀", got)
}

func TestReadingUTF8CopiesNothing(t *testing.T) {
	data := []byte(`{"a": 1}`)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if text, _ := UTF8(data); &text[0] != &data[0] {
			t.Fatal("another text")
		}
	}))
}
