package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestVisibleTextHasNoTerminalCommands(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"Grüße, 世界 🙂":          "Grüße, 世界 🙂",
		`{"a":"b\n","c":"\\"}`: `{"a":"b\n","c":"\\"}`,
		"red \x1b[31malert":    `red \x1b[31malert`,
		"a\r\nb\tc\x00\x7f":    `a\r\nb\tc\x00\x7f`,
		"\u009b31m":            `\u009b31m`,
		"\x9b31m\xff":          `\x9b31m\xff`,
		"exe.\u202etxt":        `exe.\u202etxt`,
		"line\u2028break":      `line\u2028break`,
		"\ufffd":               "\ufffd",
		"\U000e0041":           `\U000e0041`,
	} {
		require.Equal(t, want, visible(text), "%q", text)
	}
}

func TestErrorsAreVisibleText(t *testing.T) {
	a := &app{}
	a.hide("p\x1bw")
	require.Equal(t, `a \x1b]0;title b; c ***`, a.clean(errors.New("chanq: a \x1b]0;title\tb\nc p\x1bw")))
}

func TestVisibleJSONIsTheSameValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := map[string]string{"x": rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("\x1b\x7f\u0085\u009b\u202e\u2066\U000e0041\ufffd\"\\<a")))).Draw(t, "text")}
		line, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		shown := visibleJSON(append(line, '\n'))
		var back map[string]string
		if err := json.Unmarshal(shown, &back); err != nil || back["x"] != strings.ToValidUTF8(value["x"], "\ufffd") {
			t.Fatalf("%q became %q: %v", value["x"], shown, err)
		}
		if text := strings.TrimSuffix(string(shown), "\n"); visible(text) != text {
			t.Fatalf("%q is not visible", text)
		}
	})
}
