package chanq

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/text"
)

// FuzzHeaders: accepted headers are decoded unchanged, and any stored bytes are decoded without a
// panic.
func FuzzHeaders(f *testing.F) {
	f.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", "", []byte(`{"a":"b"}`))
	f.Add("\x00", "<&>\u2028", "é", "😀", []byte(`{"a":1}`))
	f.Add("\xff", "a", "\xfe", "b", []byte("null"))
	f.Add("k", strings.Repeat("v", maxHeaderBytes), "k", "", []byte(`[{}]`))
	f.Add("k", "v", "k", "", []byte("{\x00}\x00"))
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string, stored []byte) {
		given := map[string]string{k1: v1, k2: v2}
		valid := true
		for k, v := range given {
			valid = valid && utf8.ValidString(k) && utf8.ValidString(v)
		}
		data, err := encodeHeaders(given)
		if err != nil {
			require.True(t, !valid || len(k1)+len(v1)+len(k2)+len(v2) > maxHeaderBytes/6-20, "JSON writes a byte in six at most: %v", err)
		} else {
			require.True(t, valid, "text that JSON would change is refused")
			require.LessOrEqual(t, len(data), maxHeaderBytes)
			got, err := decodeHeaders(data)
			require.NoError(t, err)
			require.Equal(t, given, got)
		}

		read, err := decodeHeaders(stored)
		var want map[string]string
		decoded, wrong := text.UTF8(stored)
		if len(stored) > 0 && (wrong != nil || json.Unmarshal(decoded, &want) != nil) {
			require.ErrorContains(t, err, "headers")
			require.Nil(t, read)
			return
		}
		require.NoError(t, err)
		require.True(t, maps.Equal(want, read))
	})
}
