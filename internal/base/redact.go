package base

import "strings"

// ReasonExpired is the last error of a message whose TTL has ended.
const ReasonExpired = "expired"

// The beginnings of last errors of chanq that continue with the text of a codec or a driver. Such a text quotes what
// could not be read, and might have pieces of a body or of headers.
const (
	ReasonHeaders = "chanq: cannot decode: headers: "
	ReasonDecode  = "chanq: cannot decode: "
	ReasonRead    = "chanq: could not be read: "
	ReasonOutput  = "chanq: an output cannot be stored: "
	ReasonBody    = "Message.Body: " // of an output of a Pipe that cannot be encoded
	ReasonHeader  = "Message.Headers: "
)

// Redact cuts a last error after the first of these beginnings.
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
