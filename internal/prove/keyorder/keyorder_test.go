package keyorder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/prove/keyorder"
)

func TestJudge(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, int64(ms)*1e6) }
	h := func(n, from, until int, ended bool) keyorder.Handled {
		return keyorder.Handled{Key: "a", Number: n, From: at(from), Until: at(until), Ended: ended}
	}
	for _, test := range []struct {
		name                       string
		history                    []keyorder.Handled
		inversions, overlaps, lost int
	}{
		{"in order", []keyorder.Handled{h(2, 20, 30, true), h(1, 0, 10, true)}, 0, 0, 0},
		{"again", []keyorder.Handled{h(1, 0, 10, false), h(1, 10, 20, true), h(2, 20, 30, true)}, 0, 0, 0},
		{"an ack that nobody heard of", []keyorder.Handled{h(1, 0, 10, false), h(2, 20, 30, true)}, 0, 0, 0},
		{"inverted", []keyorder.Handled{h(2, 0, 10, true), h(1, 10, 20, true)}, 1, 0, 0},
		{"overlapping", []keyorder.Handled{h(1, 0, 10, true), h(2, 9, 20, true)}, 0, 1, 0},
		{"never came", []keyorder.Handled{h(2, 9, 20, true)}, 0, 0, 1},
		{"never ended", []keyorder.Handled{h(1, 0, 10, true), h(2, 10, 20, false)}, 0, 0, 1},
		{"nothing", nil, 0, 0, 2},
	} {
		v := keyorder.Judge(test.history, map[string]int{"a": 2})
		require.Len(t, v.Inversions, test.inversions, test.name)
		require.Len(t, v.Overlaps, test.overlaps, test.name)
		require.Len(t, v.Lost, test.lost, test.name)
		require.Equal(t, test.inversions+test.overlaps+test.lost == 0, v.OK())
	}
}
