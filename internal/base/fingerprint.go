package base

import (
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
)

// part matches the parts of an error's text that might be variable. The first alternative that matches counts: quoted
// parts; SQL states; status codes of HTTP and SMTP, after a word that names one, after a colon, or at the beginning;
// hosts with ports; numbers of a path; durations; numbers with points; UUIDs; words.
var part = regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`" +
	`|SQLSTATE\W{0,2}[0-9A-Z]{5}\b` +
	`|` + statusCode +
	`|(?:(?:[0-9A-Za-z-]+\.)+[0-9A-Za-z-]+|localhost|\]):[0-9]+\b` +
	`|[/#][0-9]+\b` +
	`|(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+\b` +
	`|[0-9]+(?:[.,][0-9]+)+` +
	`|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}` +
	`|[0-9A-Za-z]+`)

const statusCode = `(?i:\b(?:status|code|https?|http/[0-9.]+|returned|returns|got|received|response|responded|` +
	`answered|error|with)\W{1,3}|: )[2-5][0-5][0-9]\b|^[2-5][0-5][0-9] `

var (
	digits     = regexp.MustCompile(`[0-9]+`)
	status     = regexp.MustCompile(`^(` + statusCode + `)$`)
	identifier = regexp.MustCompile(`^["'` + "`" + `0-9]|^[0-9a-fA-F]{8,}$`)
)

const (
	lastPort   = 32767 // greater ports are those that a system gives to a connection
	mostDigits = 5     // of a word such as sha256 or E11000
	longWord   = 16    // with digits, it is an identifier
)

// constant replaces the pieces of a part in which errors of one kind differ.
func constant(part string) string {
	host, port, addressed := strings.Cut(part, ":")
	number := digits.FindString(part)
	switch {
	case strings.HasPrefix(part, "SQLSTATE"), status.MatchString(part):
		return part
	case addressed && digits.FindString(port) == port:
		if n, err := strconv.Atoi(port); err != nil || n > lastPort {
			port = "#"
		}
		return withoutVariables(host) + ":" + port
	case identifier.MatchString(part), number != "" && len(part) >= longWord:
		return "#"
	case strings.ContainsAny(part[:1], "/#"), len(number) > mostDigits:
		return digits.ReplaceAllString(part, "#")
	}
	return part
}

func withoutVariables(text string) string { return part.ReplaceAllStringFunc(text, constant) }

// fingerprintRule is the first byte of a fingerprint. Each change of the rule must raise it, to keep groups of two
// rules apart.
const fingerprintRule = 2

// Fingerprint returns a number for the group of an error, by its text without the variable parts; 0 for no text.
func Fingerprint(text string) int64 {
	if text == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(withoutVariables(text)))
	return fingerprintRule<<56 | int64(h.Sum64()>>8)
}
