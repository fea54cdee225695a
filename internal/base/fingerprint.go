package base

import (
	"hash/fnv"
	"regexp"
)

// variable matches the parts of an error's text in which errors of one kind differ: quoted parts, UUIDs, hexadecimal
// numbers, runs of eight or more hexadecimal characters, and numbers.
var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`" +
	`|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|[0-9]+`)

// fingerprintRule is the first byte of a fingerprint. Each change of the rule must raise it, to keep groups of two
// rules apart.
const fingerprintRule = 1

// Fingerprint returns a number for the group of an error, by its text without the variable parts; 0 for no text.
func Fingerprint(text string) int64 {
	if text == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write(variable.ReplaceAll([]byte(text), []byte("#")))
	return fingerprintRule<<56 | int64(h.Sum64()>>8)
}
