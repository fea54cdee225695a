package base

import "strings"

// ReasonExpired is the last error of a message whose TTL was over.
const ReasonExpired = "expired"

// The beginnings of last errors that chanq writes and that go on in the words of a codec or of a driver: those repeat what they could
// not read, so that pieces of a body or of headers may be in them.
const (
	ReasonHeaders = "chanq: cannot decode: headers: "
	ReasonDecode  = "chanq: cannot decode: "
	ReasonRead    = "chanq: could not be read: "
	ReasonOutput  = "chanq: an output cannot be stored: "
	ReasonBody    = "Message.Body: " // of an output of a Pipe that cannot be encoded
	ReasonHeader  = "Message.Headers: "
)

// Redact cuts a last error behind the first of these beginnings.
func Redact(text string) string {
	cut, first := -1, len(text)
	for _, begin := range []string{ReasonHeaders, ReasonDecode, ReasonRead, ReasonOutput, ReasonBody, ReasonHeader} {
		if at := strings.Index(text, begin); at >= 0 && at < first {
			cut, first = at+len(begin)-len(": "), at
		}
	}
	if cut < 0 {
		return text
	}
	return text[:cut] + " (why is hidden, as bodies are)"
}
