package order

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/sqlbatch"
)

// The senders draw numbers and end in any order. A sample has all open senders.
func TestTheWatermarkPassesNoNumberOfASenderThatHasNotEnded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Watermark
		open := map[string][]int64{} // the numbers of the senders that are open
		seen := map[string]time.Duration{}
		drawn, born, now := int64(0), 0, time.Second
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(*rapid.T) {
				born++
				open[fmt.Sprint(born)] = nil
			},
			"draw": func(t *rapid.T) {
				for name := range open {
					if rapid.Bool().Draw(t, name) {
						drawn++
						open[name] = append(open[name], drawn)
					}
				}
			},
			"end": func(t *rapid.T) {
				for name := range open {
					if rapid.Bool().Draw(t, name) {
						delete(open, name)
					}
				}
			},
			"sample": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(1, 100).Draw(t, "ms")) * time.Millisecond
				var senders []string
				for name := range open {
					if senders = append(senders, name); seen[name] == 0 {
						seen[name] = now
					}
				}
				_, forgotten := w.Sample(drawn, senders, now)
				require.False(t, forgotten)
				for name, numbers := range open {
					if len(numbers) > 0 && now-seen[name] <= stragglesAfter {
						require.Less(t, w.Ready, numbers[0], "sender %s has not ended", name)
					}
				}
				if len(open) == 0 {
					require.Equal(t, drawn, w.Ready)
				}
			},
			"": func(*rapid.T) {},
		})
	})
}

func TestTheEndOfAStragglerIsReportedWithItsBound(t *testing.T) {
	var w Watermark
	sample := func(at time.Duration, drawn int64, senders ...string) int64 {
		from, forgotten := w.Sample(drawn, senders, at)
		require.False(t, forgotten)
		return from
	}
	require.EqualValues(t, int64(None), sample(0, 5))
	require.EqualValues(t, int64(None), sample(1, 7, "slow"))
	require.Equal(t, int64(5), w.Ready, "numbers from 6 on might be those of the sender")
	require.EqualValues(t, int64(None), sample(2+stragglesAfter, 9, "slow"))
	require.Equal(t, int64(9), w.Ready, "it straggles")
	require.EqualValues(t, int64(None), sample(3+stragglesAfter, 12, sqlbatch.UnknownSender),
		"it might be open under another name")
	require.Equal(t, int64(12), w.Ready, "a sender without a name is one that was known")
	require.Equal(t, int64(5), sample(4+stragglesAfter, 12))
}

func TestASmallerNumberMeansThatNumbersWereForgotten(t *testing.T) {
	var w Watermark
	w.Sample(5, nil, 0)
	_, forgotten := w.Sample(4, []string{"s"}, 1)
	require.True(t, forgotten)
	require.Zero(t, w.Ready)
}
