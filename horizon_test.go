package chanq

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTheHorizonIsWhatWasDrawnBeforeTheSendersOfThatTimeHadEnded(t *testing.T) {
	var h horizon
	require.Zero(t, h.at(), "nothing is known yet")
	require.True(t, h.due(0, false))
	h.sampled(7, "", 0)
	require.EqualValues(t, 7, h.at(), "nobody was sending")

	h.sampled(9, "a b", second)
	require.EqualValues(t, 7, h.at())
	h.sampled(12, "b c", 2*second)
	require.EqualValues(t, 7, h.at(), "b may have 8")
	h.sampled(12, "c d", 3*second)
	require.EqualValues(t, 9, h.at(), "c came after 9 was drawn; d did after 12")
	h.sampled(20, "d e", 4*second)
	require.EqualValues(t, 12, h.at())
}

// A transaction that was prepared is not known by its name any more.
func TestASenderThatHasLostItsNameMayBeAnyOfThoseBefore(t *testing.T) {
	var h horizon
	h.sampled(7, "", 0)
	h.sampled(9, "a", second)
	h.sampled(9, "*", 2*second)
	require.EqualValues(t, 7, h.at(), "it may be a")
	h.sampled(9, "b", 3*second)
	require.EqualValues(t, 9, h.at())
}

func TestASampleIsDueWhereClaimsReadSomethingAgain(t *testing.T) {
	var h horizon
	h.sampled(7, "", 0)
	require.False(t, h.due(time.Hour, true), "no claim has got beyond the horizon")
	h.claimed(8)
	h.claimed(lastPlace)
	require.False(t, h.due(horizonEvery-1, false))
	require.True(t, h.due(horizonEvery-1, true), "before it sleeps")
	require.True(t, h.due(horizonEvery, false))
	h.sampled(8, "", horizonEvery)
	require.False(t, h.due(time.Hour, true))

	endless := horizon{endless: true}
	require.False(t, endless.due(time.Hour, true))
	require.EqualValues(t, lastPlace, endless.at())
}

func TestADatabaseThatForgetsNumbersTakesTheHorizonBack(t *testing.T) {
	var h horizon
	require.False(t, h.sampled(9, "", 0))
	require.True(t, h.sampled(8, "a", second))
	require.Zero(t, h.at(), "9 may be drawn again")
	require.False(t, h.sampled(9, "", 2*second))
	h.claimed(11)
	require.True(t, h.sampled(10, "", 3*second), "11 was there, and is not any more")
	require.EqualValues(t, 10, h.at())
	h.forget()
	require.Zero(t, h.at())
}

func TestTheHorizonGoesOnBesideSendersThatAlwaysOverlap(t *testing.T) {
	var h horizon
	h.sampled(1, "forever", 0)
	for i := range 10 * mostSamples {
		h.sampled(int64(i+2), fmt.Sprintf("forever s%d s%d", i, i+1), 0)
		require.LessOrEqual(t, len(h.waiting), mostSamples)
	}
	require.Zero(t, h.at())
	last := int64(10*mostSamples + 2)
	h.sampled(last, "x", 0)
	require.Equal(t, last-1, h.at(), "all but the last is over with the one that took long")
	h.sampled(last+1, "y", 0)
	require.Equal(t, last, h.at())
}

func TestTheHorizonGoesOnBesideSendersThatTakeLong(t *testing.T) {
	var h horizon
	for i := range int64(8 * mostSamples) {
		var here []string
		for n := max(0, i-2*mostSamples); n <= i; n++ {
			here = append(here, fmt.Sprint("s", n))
		}
		h.sampled(i+1, strings.Join(here, " "), 0)
	}
	require.Greater(t, h.at(), int64(4*mostSamples), "each of them ends at some time")
}

// modelSender is a transaction that sends. It is noted from its beginning to its end.
type modelSender struct {
	name    string
	numbers []int64
}

// TestTheHorizonIsNeverAboveAMessageThatAppearsLater has senders begin, draw and commit,
// late or never, and samples, whose two reads lie apart, anywhere among them.
func TestTheHorizonIsNeverAboveAMessageThatAppearsLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h horizon
		var open []*modelSender
		var number int64
		born := 0
		reading, drawn := false, int64(0)
		names := func() string {
			var all []string
			for _, s := range open {
				all = append(all, s.name)
			}
			return strings.Join(all, " ")
		}
		end := func(t *rapid.T) {
			if len(open) > 0 {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "sender")
				open = slices.Delete(open, i, i+1)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(*rapid.T) {
				born++
				open = append(open, &modelSender{name: fmt.Sprintf("4/%d", born)})
			},
			"draw": func(t *rapid.T) {
				if len(open) > 0 {
					number++
					s := rapid.SampledFrom(open).Draw(t, "sender")
					s.numbers = append(s.numbers, number)
				}
			},
			"end":  end,
			"read": func(*rapid.T) { reading, drawn = true, number },
			"sample": func(t *rapid.T) {
				if reading {
					require.False(t, h.sampled(drawn, names(), 0))
					reading = false
				}
			},
			"claim": func(t *rapid.T) {
				if seen := rapid.Int64Range(0, number).Draw(t, "seen"); !slices.ContainsFunc(open, func(s *modelSender) bool { return slices.Contains(s.numbers, seen) }) {
					h.claimed(seen)
				}
				reading = false // one goroutine claims and samples
			},
			"forget": func(t *rapid.T) { // another server, which lagged: all are cut off, numbers come again
				open, reading = nil, false
				number = rapid.Int64Range(number/2, number).Draw(t, "number")
				h.forget()
			},
			"": func(t *rapid.T) {
				for _, s := range open {
					for _, n := range s.numbers {
						require.Greater(t, n, h.at(), "%s has not committed", s.name)
					}
				}
			},
		})
		for len(open) > 0 {
			end(t)
		}
		h.sampled(number, "", 0)
		if number > 0 {
			require.Equal(t, number, h.at(), "nobody sends any more")
		}
	})
}
