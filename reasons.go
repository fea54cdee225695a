package chanq

import (
	"strings"

	"github.com/chanq/chanq/internal/claim"
)

// What chanq itself writes as the last error of a message.

// ReasonExpired is the last error of a message that was set aside because its TTL
// was over.
const ReasonExpired = claim.ReasonExpired

// How the last errors begin that go on in the words of a codec, or of a driver: those repeat what
// they could not make sense of, so they may have pieces of a body or of headers in them.
const (
	reasonHeaders = "chanq: cannot decode: headers: "
	reasonDecode  = "chanq: cannot decode: "
	reasonRead    = claim.ReasonRead
	reasonOutput  = "chanq: an output cannot be stored: "
	reasonBody    = "Message.Body: " // of an output of a Pipe that cannot be encoded
	reasonHeader  = "Message.Headers: "
)

// DiscreetError is LastError for those who may not see bodies: what chanq wrote itself because a
// message could not be decoded, read or encoded is cut to that, without the words of the codec or
// the driver, which may repeat pieces of a body or of headers. What handlers return is
// theirs, and is left as it is.
func (e *Entry) DiscreetError() string { return discreet(e.LastError) }

// discreet cuts a text behind the first of these beginnings: what follows may quote others.
func discreet(text string) string {
	cut, first := -1, len(text)
	for _, begin := range []string{reasonHeaders, reasonDecode, reasonRead, reasonOutput, reasonBody, reasonHeader} {
		if at := strings.Index(text, begin); at >= 0 && at < first {
			cut, first = at+len(begin)-len(": "), at
		}
	}
	if cut < 0 {
		return text
	}
	return text[:cut] + " (why is hidden, as bodies are)"
}
