package chanqweb

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// What errors have in common: a text without what is of one message alone. Ten thousand of
// them are looked at for a page, so this reads each once.

// mostOfCause is how many bytes of an error make its cause.
const mostOfCause = 300

// causeOf is what an error has in common with others of its kind: its first line, with dots
// for what stands in quotes, for IDs and for numbers. A number at the beginning, or behind a
// word that announces a code, stays: it says more of a cause than anything else.
func causeOf(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(first) > mostOfCause {
		first = strings.ToValidUTF8(first[:mostOfCause], "")
	}
	g := generalizer{rest: first, coded: true}
	g.out.Grow(len(first))
	for g.rest != "" {
		g.step()
	}
	general := strings.TrimSpace(printable(g.out.String()))
	if general == "" {
		return "no cause was given"
	}
	return general
}

// generalizer makes the cause of an error.
type generalizer struct {
	rest  string
	out   strings.Builder
	coded bool // a code may follow
	last  rune // before rest
	// since is what was written behind the last dots, while that is only what stands
	// between particulars: then the next dots need not be written.
	dotted bool
	since  strings.Builder
}

// step takes the next thing of the text.
func (g *generalizer) step() {
	r, size := utf8.DecodeRuneInString(g.rest)
	switch {
	case r == '"' || r == '`' || r == '\'' && !unicode.IsLetter(g.last) && !unicode.IsDigit(g.last):
		if end := strings.IndexByte(g.rest[1:], byte(r)); end >= 0 {
			g.dots(end + 2)
			return
		}
	case isWord(r):
		g.word()
		return
	case unicode.IsSpace(r):
		r = ' '
		if g.last == ' ' || g.out.Len() == 0 && !g.dotted {
			g.rest = g.rest[size:]
			return
		}
	}
	g.coded = g.coded && strings.ContainsRune(" :=#/.", r)
	g.write(string(r), strings.ContainsRune(" .,:/_-", r))
	g.rest, g.last = g.rest[size:], r
}

// dots stand for the next n bytes.
func (g *generalizer) dots(n int) {
	if !g.dotted {
		g.out.WriteString("…")
	}
	g.since.Reset()
	g.dotted, g.coded, g.last, g.rest = true, false, '…', g.rest[n:]
}

// write writes a text, which may stand between particulars, or not.
func (g *generalizer) write(text string, between bool) {
	if g.dotted && between {
		g.since.WriteString(text)
		return
	}
	if g.dotted {
		g.out.WriteString(g.since.String())
		g.dotted = false
	}
	g.out.WriteString(text)
}

func isWord(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// word takes letters and digits.
func (g *generalizer) word() {
	n, digits, hex := 0, 0, true
	for n < len(g.rest) && isWord(rune(g.rest[n])) {
		c := g.rest[n] | 0x20 // lower case; digits are as they were
		if '0' <= c && c <= '9' {
			digits++
		} else {
			hex = hex && c <= 'f'
		}
		n++
	}
	word := g.rest[:n]
	switch {
	case digits > 0 && isUUID(g.rest):
		g.dots(36)
	case digits > 0 && (hex && n >= 8 || len(word) > 2 && (word[:2] == "0x" || word[:2] == "0X")):
		g.dots(n)
	case digits > 0 && g.coded && word[0] <= '9' && n >= 3 && n <= 5:
		g.keep(n)
		g.coded = false
	case digits > 0 && g.coded && n < 3 && g.out.Len() > 0: // a code, or the version of HTTP before one
		g.keep(n)
	case digits > 0:
		g.numbers(n)
	default:
		g.keep(n)
		g.coded = announces(word)
	}
}

// keep writes the next n bytes as they are.
func (g *generalizer) keep(n int) {
	g.write(g.rest[:n], false)
	g.last, g.rest = rune(g.rest[n-1]), g.rest[n:]
}

// numbers has dots for the digits of the next n bytes.
func (g *generalizer) numbers(n int) {
	for n > 0 {
		i := 0
		digit := isDigit(g.rest[0])
		for i < n && isDigit(g.rest[i]) == digit {
			i++
		}
		if digit {
			g.dots(i)
		} else {
			g.keep(i)
		}
		n -= i
	}
	g.coded = false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// announces reports a word behind which a code may stand.
func announces(word string) bool {
	switch strings.ToLower(word) {
	case "status", "code", "http", "error", "errno", "sqlstate":
		return true
	}
	return false
}

// isUUID reports that a text begins with one.
func isUUID(s string) bool {
	if len(s) < 36 || len(s) > 36 && isWord(rune(s[36])) {
		return false
	}
	for i := range 36 {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		c := s[i] | 0x20
		if dash != (s[i] == '-') || !dash && !isDigit(s[i]) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
