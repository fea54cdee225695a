package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bodies, headers, errors and names come from any program that may write to the database.
// A terminal would obey control characters in them, so none reaches one: output to a
// terminal shows them as \x1b or \u009b. A pipe or a file gets the bytes
// as they are.

// visible is a text on one line, without anything that a terminal would obey and
// without what changes the order of letters. Only such characters are written in
// another way; backslashes stay as they are, so that JSON can be copied.
func visible(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 {
		return s
	}
	var b strings.Builder
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case obeyed(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// obeyed also reports a byte that is not UTF-8: some terminals take 0x9b for the
// beginning of a command.
func obeyed(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) }

// screen is a terminal that gets nothing but lines of visible text, whatever a
// command writes to it.
type screen struct{ to io.Writer }

func (s screen) Write(p []byte) (int, error) {
	lines := bytes.Split(p, []byte("\n"))
	for i := range lines {
		lines[i] = []byte(visible(string(lines[i])))
	}
	if _, err := s.to.Write(bytes.Join(lines, []byte("\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// visibleJSON is one line of JSON of the same value in visible text: its encoder
// leaves DEL, the control characters above 0x7f and what changes the order of
// letters as they are, which stand inside strings only.
func visibleJSON(line []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(bytes.TrimSuffix(line, []byte("\n"))) {
		if r == utf8.RuneError || !obeyed(r) {
			b.WriteRune(r)
			continue
		}
		escaped, _ := json.Marshal(string(r)) // a string is always encoded
		if text := string(escaped[1 : len(escaped)-1]); text != string(r) {
			b.WriteString(text)
			continue
		}
		if r > 0xffff {
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x`, 0xd800+r>>10)
			r = 0xdc00 + r&0x3ff
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	b.WriteByte('\n')
	return b.Bytes()
}
