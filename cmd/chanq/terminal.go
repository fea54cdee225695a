package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Bodies, headers, errors and names come from any program that can write to the database. A
// terminal would execute control characters in them, so output to a terminal shows them as \x1b or
// \u009b. A pipe or a file receives the bytes unchanged.

// pipe writes to standard output. It is closed if its reader has left, as head does.
type pipe struct {
	to     io.Writer
	closed atomic.Bool
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.closed.Store(true)
	}
	return n, err
}

// visible returns a text on one line, without characters that control a terminal or change the
// order of characters. Only such characters are replaced. Backslashes stay unchanged, so that JSON
// can be copied.
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

// obeyed also returns true for a byte that is not UTF-8: some terminals interpret 0x9b as the
// beginning of a command.
func obeyed(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) }

// screen is a terminal that receives only lines of visible text, whatever a command writes to it.
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

// The colours of a line.
const (
	red    = "31"
	yellow = "33"
	faint  = "2"
)

// line writes a text, on a terminal in a colour, unless the user has set NO_COLOR.
func (a *app) line(colour, text string) error {
	if a.terminal == nil || colour == "" || os.Getenv("NO_COLOR") != "" {
		_, err := fmt.Fprintln(a.out, text)
		return err
	}
	var shown bytes.Buffer
	fmt.Fprint(screen{&shown}, text)
	_, err := fmt.Fprintf(a.terminal, "\x1b[%sm%s\x1b[m\n", colour, &shown)
	return err
}

// redraw writes over what a terminal shows, without clearing it before, so that it does not flicker.
func (a *app) redraw(show func(*app) error) error {
	if a.terminal == nil {
		return show(a)
	}
	var page bytes.Buffer
	drawn := *a
	drawn.out, drawn.terminal = screen{&page}, &page
	if err := show(&drawn); err != nil {
		return err
	}
	const corner, restOfLine, restOfScreen = "\x1b[H", "\x1b[K", "\x1b[J"
	_, err := fmt.Fprint(a.terminal, corner, strings.ReplaceAll(page.String(), "\n", restOfLine+"\n"), restOfScreen)
	return err
}

// visibleJSON returns one line of JSON with the same value in visible text. Its encoder leaves DEL,
// the control characters above 0x7f and characters that change the order unchanged. They occur only
// inside strings.
func visibleJSON(line []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(bytes.TrimSuffix(line, []byte("\n"))) {
		if r == utf8.RuneError || !obeyed(r) {
			b.WriteRune(r)
			continue
		}
		escaped, _ := json.Marshal(string(r)) // encoding a string cannot fail
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
