// Package build has what the engines of sqlbatch share to build their statements
// and arguments.
package build

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Milliseconds rounds up, so that a delay is never shortened.
func Milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Cut shortens an error text to MaxError bytes without splitting a character.
func Cut(s string) string {
	if len(s) <= sqlbatch.MaxError {
		return s
	}
	n := sqlbatch.MaxError
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// InOrder is the rows in ascending order, so that every statement locks in the
// same order; the caller's slice is left as it is.
func InOrder[T any](rows []T, compare func(a, b T) int) []T {
	if slices.IsSortedFunc(rows, compare) {
		return rows
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, compare)
	return rows
}

// CompareIDs orders ids as their bytes.
func CompareIDs(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }

// Quote puts open and shut around a name and doubles shut inside it.
func Quote(open, name, shut string) string {
	return open + strings.ReplaceAll(name, shut, shut+shut) + shut
}
