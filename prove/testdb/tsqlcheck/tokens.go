package tsqlcheck

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
)

type token struct {
	text string
	line int
	pos  int // byte offset
}

// tokens splits a text and leaves out comments.
func tokens(text string) ([]token, error) {
	var out []token
	line := 1
	for i := 0; i < len(text); {
		start, c := i, text[i]
		switch {
		case c == '\n':
			line++
			i++
			continue
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case strings.HasPrefix(text[i:], "--"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		case c == '\'' || c == '[' || c == '"' || (c == 'N' || c == 'n') && strings.HasPrefix(text[i+1:], "'"):
			if c == 'N' || c == 'n' {
				i++
			}
			end := text[i]
			if end == '[' {
				end = ']'
			}
			for i++; ; i++ {
				if i >= len(text) {
					return nil, fmt.Errorf("line %d: %c is not closed", line, c)
				}
				if text[i] == end {
					if i+1 < len(text) && text[i+1] == end {
						i++
						continue
					}
					break
				}
			}
			i++
		case word(rune(c)):
			for i < len(text) && word(rune(text[i])) {
				i++
			}
		case strings.HasPrefix(text[i:], "<=") || strings.HasPrefix(text[i:], ">=") || strings.HasPrefix(text[i:], "<>"):
			i += 2
		case strings.IndexByte("(),.;=<>+-*/%", c) >= 0:
			i++
		default:
			return nil, fmt.Errorf("line %d: unexpected %q", line, c)
		}
		out = append(out, token{text: text[start:i], line: line, pos: start})
	}
	return out, nil
}

func word(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '@' || r == '#' || r == '$'
}

// TokensOf yields where each token of a text begins and ends, for tests that remove one.
func TokensOf(text string) iter.Seq2[int, int] {
	return func(yield func(start, end int) bool) {
		all, err := tokens(text)
		if err != nil {
			return
		}
		for _, t := range all {
			if !yield(t.pos, t.pos+len(t.text)) {
				return
			}
		}
	}
}
