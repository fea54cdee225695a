package chanqweb

import (
	"bytes"
	"encoding/json"
	"html/template"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
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

func TestHiddenCharactersAreShownAsNumbers(t *testing.T) {
	require.Equal(t, "a\nb\tc", printable("a\nb\tc"))
	require.Equal(t, `\u202eabc\u0000\u001b[0m\u000d`, printable("\u202eabc\x00\x1b[0m\r"))
	require.Equal(t, "é \uFFFD", printable("é \xff"))
	require.Equal(t, "first …", brief("first\nsecond", 20))
	require.Equal(t, "fir…", brief("first", 4))
}

func TestABodyIsShownInItsBestFormat(t *testing.T) {
	as, forms, text, cut := bodyAs([]byte(`{"a":[1]}`), false, "")
	require.Equal(t, "json", as)
	require.Equal(t, []string{"json", "text", "hex"}, forms)
	require.Equal(t, "{\n  \"a\": [\n    1\n  ]\n}", text)
	require.False(t, cut)
	as, forms, _, _ = bodyAs([]byte{0xff, 0}, false, "json")
	require.Equal(t, "hex", as)
	require.Equal(t, []string{"hex"}, forms)
	as, _, text, cut = bodyAs([]byte(strings.Repeat("é", bodyShown)), false, "")
	require.Equal(t, "text", as)
	require.True(t, cut)
	require.True(t, utf8.ValidString(text))
	require.Len(t, text, bodyShown)
	as, _, text, _ = bodyAs([]byte("x"+strings.Repeat("é", bodyShown)), false, "") // the cut is inside a character
	require.Equal(t, "text", as)
	require.Len(t, text, bodyShown-1)
	_, _, text, cut = bodyAs(make([]byte, 1<<20), false, "hex")
	require.True(t, cut)
	require.Less(t, len(text), bodyShown)
}

func TestALineIsInterruptedWhereSamplesAreMissing(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	var samples []chanqadmin.Sample
	for _, minute := range []int{0, 1, 2, 10, 11} {
		samples = append(samples, chanqadmin.Sample{At: begin.Add(time.Duration(minute) * time.Minute), Counted: true, Ready: 10 * minute})
	}
	path, last := trace(samples, begin, time.Hour, time.Minute, 100, counted(func(s chanqadmin.Sample) int { return s.Ready }))
	require.Equal(t, 2, strings.Count(path, "M"), path)
	require.Equal(t, 3, strings.Count(path, "L"), path)
	require.Equal(t, 110, last.Ready)
	require.Equal(t, 2, strings.Count(below(path), "Z"))
	samples[1].Counted = false
	path, _ = trace(samples[:2], begin, time.Hour, time.Minute, 100, counted(func(s chanqadmin.Sample) int { return s.Ready }))
	require.Equal(t, "M0.0 99.0"+dot, path, "a missing count is not 0, and a single point is a dot")
	require.Empty(t, below(path))
}

func TestTheUpperEdgeIsARoundFigure(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 3: 5, 7: 10, 4200: 5000} {
		require.InEpsilon(t, want, roundUp(v), 1e-9, v)
	}
}

// The current period is incomplete, and would be drawn as a drop.
func TestRatesUseCompleteIntervalsOnly(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var samples []chanqadmin.Sample
	for i := 6; i >= 0; i-- {
		sent := int64(1000)
		if i == 0 {
			sent = 10 // the last one has just begun
		}
		samples = append(samples, chanqadmin.Sample{At: now.Add(-time.Second - time.Duration(i)*chanqadmin.StepFine), Counted: true, Ready: 10 + i, Sent: sent})
	}
	all := charts(samples, now, spans[0], 10_000)
	require.Equal(t, "100", all[1].Lines[0].Last)
	points := func(c chart) int { return strings.Count(c.Lines[0].Path, "M") + strings.Count(c.Lines[0].Path, "L") }
	require.Equal(t, 6, points(all[1]))
	require.Equal(t, "100", all[1].Rows[0][1])
	require.Equal(t, 1, strings.Count(all[1].Lines[0].Path, "M"))
	y := regexp.MustCompile(`[ML][0-9.]+ ([0-9.]+)`)
	for _, at := range y.FindAllStringSubmatch(all[1].Lines[0].Path, -1) {
		require.Equal(t, "3.0", at[1], "it is level")
	}
	require.Equal(t, "10", all[0].Lines[0].Last, "a depth is known at once")
	// Clocks that differ: the database's clock is behind by almost a step.
	require.Equal(t, 6, points(charts(samples, now.Add(8*time.Second), spans[0], 10_000)[1]))
}

// Without deliveries there is no wait, which differs from a wait of zero.
func TestTheWaitHasAGapWithoutDeliveries(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var samples []chanqadmin.Sample
	for i := 30; i >= 1; i-- {
		s := chanqadmin.Sample{At: now.Add(-time.Duration(i) * chanqadmin.StepFine), Counted: true}
		if i > 20 || i < 5 || i == 12 {
			s.Waits = chanqadmin.Times{12: 2}
		}
		samples = append(samples, s)
	}
	wait := charts(samples, now, spans[0], 10_000)[2]
	require.Equal(t, 3, strings.Count(wait.Lines[0].Path, "M"), wait.Lines[0].Path)
	require.Equal(t, 1, strings.Count(wait.Lines[0].Path, dot), "a single point is a dot")
	require.Equal(t, 2, strings.Count(wait.Lines[0].Area, "Z"))
	require.Equal(t, "3 s", wait.Lines[0].Last, "half of 2 s to 4 s")
	require.Equal(t, "3 s", wait.Rows[0][1])
	require.Equal(t, "–", wait.Rows[1][1], "a minute before")
}

func TestACountThatHasEndedHasAPlus(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	depth := charts([]chanqadmin.Sample{{At: now.Add(-chanqadmin.StepFine), Counted: true, Ready: 10_000, Dead: 9_999}}, now, spans[0], 10_000)[0]
	require.Equal(t, "10\u2009000+", depth.Lines[0].Last)
	require.Equal(t, "9\u2009999", depth.Lines[2].Last)
	require.Equal(t, "10\u2009000+", depth.Rows[0][1])
	require.Equal(t, "10\u2009000", depth.Top)
}

// Whatever a body is, its text is bounded: HTML escapes make it at most five times as long.
func TestTheTextOfABodyIsBoundedByItsLength(t *testing.T) {
	deep := func(open, end string, n int) string { return strings.Repeat(open, n) + strings.Repeat(end, n) }
	for name, body := range map[string]string{
		"nested lists":        deep("[", "]", 9_000),
		"nested objects":      strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000),
		"a list in the depth": strings.Repeat("[", 1_000) + "1" + strings.Repeat(",1", 20_000) + strings.Repeat("]", 1_000),
		"too deep for JSON":   deep("[", "]", 30_000),
		"a long list":         "[1" + strings.Repeat(",1", 30_000) + "]",
		"a long line":         `"` + strings.Repeat("x", bodyShown-2) + `"`,
		"hidden characters":   strings.Repeat("\x00", bodyShown),
		"bytes":               strings.Repeat("\xff", 4*bodyShown),
	} {
		for _, wanted := range []string{"", "json", "text", "hex"} {
			_, _, text, _ := bodyAs([]byte(body), false, wanted)
			require.LessOrEqual(t, len(text), 6*bodyShown, "%s as %s", name, wanted)
			require.LessOrEqual(t, len(template.HTMLEscapeString(text)), 1<<20, "%s as %s", name, wanted)
		}
	}
	_, _, text, cut := bodyAs([]byte(deep("[", "]", 9_000)), false, "")
	require.Equal(t, deep("[", "]", 9_000), text, "it is shown as it is")
	require.False(t, cut)
}

func TestTheUpperEdgeOfTimesIsARoundTime(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 3: 5, 15: 20, 25: 30, 31: 60, 700: 900, 1000: 1800, 80_000: 86_400, 100_000: 2 * 86_400} {
		require.InEpsilon(t, want, roundUpTime(v), 1e-9, v)
	}
}

func TestTheSizeOfIndentedJSONIsKnownBefore(t *testing.T) {
	for _, body := range []string{`{}`, `[1,2,[3,{"a":"]\\\"[[","b":[]}]]`, `"[[["`, `{"a":{"b":{"c":[1,2,3]}}}`, `  [ 1 , 2 ]`} {
		var b bytes.Buffer
		require.NoError(t, json.Indent(&b, []byte(body), "", "  "))
		require.GreaterOrEqual(t, indentedSize([]byte(body)), b.Len(), body)
		require.LessOrEqual(t, indentedSize([]byte(body)), b.Len()+16, body)
	}
}
