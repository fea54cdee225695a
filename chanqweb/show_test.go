package chanqweb

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

func TestFiguresAreShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1\u2009000", 1234567: "1\u2009234\u2009567", -1000: "-1\u2009000"} {
		require.Equal(t, want, grouped(n))
	}
	require.Equal(t, "10\u2009000+", limited(10_000, 10_000))
	require.Equal(t, "9\u2009999", limited(9_999, 10_000))
	for d, want := range map[time.Duration]string{
		-time.Second: "0 ms", 0: "0 ms", 250 * time.Millisecond: "250 ms", time.Second: "1 s", 61 * time.Second: "1 min 1 s", time.Hour: "1 h",
		90 * time.Minute: "1 h 30 min", 49 * time.Hour: "2 d 1 h",
	} {
		require.Equal(t, want, lasting(d))
	}
	now := time.Unix(1_700_000_000, 0)
	require.Equal(t, "–", ago(time.Time{}, now))
	require.Equal(t, "in 5 s", ago(now.Add(5*time.Second), now))
	require.Equal(t, "5 s ago", ago(now.Add(-5*time.Second), now))
	require.Equal(t, "1.5 KiB", sized(1536))
	require.Equal(t, "–", perSecond(math.NaN()))
	require.Equal(t, "0.25", perSecond(0.25))
}

func TestWhatIsConcealedIsShownByItsNumber(t *testing.T) {
	require.Equal(t, "a\nb\tc", printable("a\nb\tc"))
	require.Equal(t, `\u202eabc\u0000\u001b[0m\u000d`, printable("\u202eabc\x00\x1b[0m\r"))
	require.Equal(t, "é \uFFFD", printable("é \xff"))
	require.Equal(t, "first …", brief("first\nsecond", 20))
	require.Equal(t, "fir…", brief("first", 4))
}

func TestABodyIsShownAsItIsBestRead(t *testing.T) {
	as, forms, text, cut := bodyAs([]byte(`{"a":[1]}`), "")
	require.Equal(t, "json", as)
	require.Equal(t, []string{"json", "text", "hex"}, forms)
	require.Equal(t, "{\n  \"a\": [\n    1\n  ]\n}", text)
	require.False(t, cut)
	as, forms, _, _ = bodyAs([]byte{0xff, 0}, "json")
	require.Equal(t, "hex", as)
	require.Equal(t, []string{"hex"}, forms)
	as, _, text, cut = bodyAs([]byte(strings.Repeat("é", bodyShown)), "")
	require.Equal(t, "text", as)
	require.True(t, cut)
	require.True(t, utf8.ValidString(text))
	require.Len(t, text, bodyShown)
	as, _, text, _ = bodyAs([]byte("x"+strings.Repeat("é", bodyShown)), "") // the cut is inside of a character
	require.Equal(t, "text", as)
	require.Len(t, text, bodyShown-1)
	_, _, text, cut = bodyAs(make([]byte, 1<<20), "hex")
	require.True(t, cut)
	require.Less(t, len(text), bodyShown)
}

func TestALineBeginsAnewWhereSamplesAreMissing(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	var samples []chanq.Sample
	for _, minute := range []int{0, 1, 2, 10, 11} {
		samples = append(samples, chanq.Sample{At: begin.Add(time.Duration(minute) * time.Minute), Counted: true, Ready: 10 * minute})
	}
	path, last := trace(samples, begin, time.Hour, time.Minute, 100, counted(func(s chanq.Sample) int { return s.Ready }))
	require.Equal(t, 2, strings.Count(path, "M"), path)
	require.Equal(t, 3, strings.Count(path, "L"), path)
	require.InDelta(t, 110, last, 0)
	require.Equal(t, 2, strings.Count(below(path), "Z"))
	samples[1].Counted = false
	path, _ = trace(samples[:2], begin, time.Hour, time.Minute, 100, counted(func(s chanq.Sample) int { return s.Ready }))
	require.Equal(t, "M0.0 99.0", path, "what was not counted is not 0")
}

func TestTheUpperEdgeIsARoundFigure(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 3: 5, 7: 10, 4200: 5000} {
		require.InEpsilon(t, want, roundUp(v), 1e-9, v)
	}
}

// Names that no queue has cost no memory.
func TestQueuesThatDoNotExistAreNotRemembered(t *testing.T) {
	s := &store{known: map[string]*known{}}
	for i := range 100 {
		name := fmt.Sprintf("queue%d", i)
		s.knownAs(name)
		s.forget(name)
	}
	require.Empty(t, s.known)
}
