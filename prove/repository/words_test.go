package repository

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainWords are expressions that documents, comments and texts for users must not have, with what to write instead.
var plainWords = []struct{ pattern, instead string }{
	{`whoever|nobody|somebody|anybody|everybody`, "the name of the process, consumer, connection or call"},
	{`he|him|his|himself|she|hers?`, "it, its, they, their"},
	{`in vain`, "without success, without getting a message"},
	{`anew`, "again"},
	{`mends|mended|mending`, "fix"},
	{`for ever`, "permanently"},
	{`reckon(s|ed)?`, "estimate"},
	{`heeds?|heeded`, "respect"},
	{`comes? again`, "is redelivered"},
	{`(give|gives|given|giving|gave) back`, "return, release"},
	{`(hand|hands|handed|handing) out`, "deliver"},
	{`sets? aside|buried|bury`, "dead-letter"},
	{`stands? still`, "is paused"},
	{`dear to|dearer`, "expensive"},
	{`likewise`, "also"},
	{`beside`, "with, while, compared with"},
	{`stand-in`, "emulator"},
	{`lies|lain`, "is"},
	{`(ran|runs?|running) out of (its|their) time`, "exceed the timeout"},
	{`leases? (that )?(ran|runs|run) out`, "lease that expires"},
}

// spared are the texts that have such words for a reason.
var spared = []string{
	`"nobody"`, "trouble-nobody.png", // names
}

// TestTextsUsePlainWords reads the documents without their code, the comments of all Go files, and the texts of the product.
func TestTextsUsePlainWords(t *testing.T) {
	t.Chdir(root)
	words := make([]*regexp.Regexp, len(plainWords))
	for i, w := range plainWords {
		words[i] = regexp.MustCompile(`(?i)\b(` + w.pattern + `)\b`)
	}
	checked := 0
	check := func(path string, line int, text string) {
		checked++
		for _, name := range spared {
			text = strings.ReplaceAll(text, name, "")
		}
		for i, word := range words {
			if found := word.FindString(text); found != "" {
				t.Errorf("%s:%d: %q: write %s", path, line, found, plainWords[i].instead)
			}
		}
	}
	span := regexp.MustCompile("`[^`]*`")
	for path, text := range documents(t, ".md") {
		code, n := false, 0
		for line := range strings.Lines(text) {
			n++
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			} else if !code {
				check(path, n, span.ReplaceAllString(line, ""))
			}
		}
	}
	for path, text := range documents(t, ".go") {
		eachText(path, text, check)
	}
	require.Greater(t, checked, 10_000)
}

// eachText calls check with the comments of a Go file and, unless it is of a test or a proof, its texts.
func eachText(path, text string, check func(path string, line int, text string)) {
	texts := !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "prove/")
	file := token.NewFileSet().AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	for {
		at, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return
		case tok == token.COMMENT, tok == token.STRING && texts:
			check(path, file.Line(at), text)
		}
	}
}
