package keyorder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/keyorder"
)

func at(ms int) time.Time { return time.Unix(0, int64(ms)*1e6) }

func handled(n, from, until int, ended bool) keyorder.Handled {
	return keyorder.Handled{Key: "a", Number: n, From: at(from), Until: at(until), Ended: ended}
}

func TestChecker(t *testing.T) {
	h := handled
	unheard := h(1, 0, 10, false)
	unheard.MayHave = true
	heard := h(1, 0, 10, true)
	heard.Heard = at(12)
	for _, test := range []struct {
		name                               string
		history                            []keyorder.Handled
		inversions, overlaps, lost, ghosts int
	}{
		{"in order", []keyorder.Handled{h(2, 20, 30, true), h(1, 0, 10, true)}, 0, 0, 0, 0},
		{"again", []keyorder.Handled{h(1, 0, 10, false), h(1, 10, 20, true), h(2, 20, 30, true)}, 0, 0, 0, 0},
		{"an ack of unknown outcome", []keyorder.Handled{unheard, h(2, 20, 30, true)}, 0, 0, 0, 0},
		{"released, and skipped", []keyorder.Handled{h(1, 0, 10, false), h(2, 20, 30, true)}, 0, 0, 1, 0},
		{"inverted", []keyorder.Handled{h(2, 0, 10, true), h(1, 10, 20, true)}, 1, 0, 0, 0},
		{"overlapping", []keyorder.Handled{h(1, 0, 10, true), h(2, 9, 20, true)}, 0, 1, 0, 0},
		{"overlapping one of before", []keyorder.Handled{h(1, 0, 30, true), h(1, 30, 31, true), h(2, 29, 40, true)}, 1, 2, 0, 0},
		{"never came", []keyorder.Handled{h(2, 9, 20, true)}, 0, 0, 1, 0},
		{"never ended", []keyorder.Handled{h(1, 0, 10, true), h(2, 10, 20, false)}, 0, 0, 1, 0},
		{"nothing", nil, 0, 0, 2, 0},
		{"after its end", []keyorder.Handled{heard, h(1, 13, 14, true), h(2, 20, 30, true)}, 0, 0, 0, 1},
		{"never sent", []keyorder.Handled{h(1, 0, 10, true), h(2, 20, 30, true), h(3, 40, 50, true)}, 0, 0, 0, 1},
		{"of no key", []keyorder.Handled{h(1, 0, 10, true), h(2, 20, 30, true), {Key: "b", Number: 1}}, 0, 0, 0, 1},
	} {
		v := keyorder.Judge(test.history, map[string]int{"a": 2})
		require.Len(t, v.Inversions, test.inversions, test.name)
		require.Len(t, v.Overlaps, test.overlaps, test.name)
		require.Len(t, v.Lost, test.lost, test.name)
		require.Len(t, v.Ghosts, test.ghosts, test.name)
		require.Equal(t, test.inversions+test.overlaps+test.lost+test.ghosts == 0, v.OK())
	}
}

// TestCheckerOfSentMessages: a process that was killed sent 1 and 2 together, 3 was rolled back, and 4 was sent later.
func TestCheckerOfSentMessages(t *testing.T) {
	h := handled
	sent := map[string]keyorder.Sent{"a": {Last: 4, Unsure: map[int]int{1: 2, 2: 2}, Never: map[int]bool{3: true}}}
	for _, test := range []struct {
		name                     string
		history                  []keyorder.Handled
		inversions, lost, ghosts int
	}{
		{"stored", []keyorder.Handled{h(1, 0, 1, true), h(2, 2, 3, true), h(4, 4, 5, true)}, 0, 0, 0},
		{"not stored", []keyorder.Handled{h(4, 4, 5, true)}, 0, 0, 0},
		{"stored late", []keyorder.Handled{h(4, 4, 5, true), h(1, 6, 7, true), h(2, 8, 9, true)}, 0, 0, 0},
		{"inverted among themselves", []keyorder.Handled{h(2, 2, 3, true), h(1, 4, 5, true), h(4, 6, 7, true)}, 1, 0, 0},
		{"stored, and lost", []keyorder.Handled{h(1, 0, 1, false), h(4, 4, 5, true)}, 0, 1, 0},
		{"rolled back, and came", []keyorder.Handled{h(3, 0, 1, true), h(4, 4, 5, true)}, 0, 0, 1},
		{"the one that is sure is lost", nil, 0, 1, 0},
	} {
		v := keyorder.JudgeSent(test.history, sent)
		require.Len(t, v.Inversions, test.inversions, test.name)
		require.Len(t, v.Lost, test.lost, test.name)
		require.Len(t, v.Ghosts, test.ghosts, test.name)
		require.Empty(t, v.Overlaps, test.name)
	}
}
