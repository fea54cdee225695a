package chanqadmin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
)

func TestTheTextOfACodecIsCutFromAnErrorForOthers(t *testing.T) {
	const hidden = " (why is hidden, as bodies are)"
	for text, want := range map[string]string{
		"":                                     "",
		"expired":                              "expired",
		"no stock of S3CRET":                   "no stock of S3CRET",
		"chanq: cannot decode: S3CRET":         "chanq: cannot decode" + hidden,
		"chanq: cannot decode: headers: S3":    "chanq: cannot decode: headers" + hidden,
		"chanq: could not be read: S3CRET":     "chanq: could not be read" + hidden,
		"chanq: could not be read within 5s":   "chanq: could not be read within 5s",
		"output 3: Message.Body: S3CRET":       "output 3: Message.Body" + hidden,
		"output 3: Message.Headers: S3CRET":    "output 3: Message.Headers" + hidden,
		"chanq: an output cannot be stored: S": "chanq: an output cannot be stored" + hidden,
		"output 3: Message.Body: S3CRET in chanq: cannot decode: S3": "output 3: Message.Body" + hidden,
		"chanq: could not be read: S3CRET: Message.Headers: S3CRET":  "chanq: could not be read" + hidden,
	} {
		require.Equal(t, want, (&chanqadmin.Entry{LastError: text}).RedactedError())
	}
}
