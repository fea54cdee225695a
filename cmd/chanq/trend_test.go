package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
)

func TestRatesUseCompleteSamplesOnly(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	sample := func(i int, sent, acked int64) chanqadmin.Sample {
		return chanqadmin.Sample{At: at.Add(time.Duration(i) * chanqadmin.StepFine), Step: chanqadmin.StepFine, Sent: sent, Acked: acked}
	}
	in, out, known := rates([]chanqadmin.Sample{sample(0, 100, 50), sample(1, 300, 50), sample(2, 7, 7)})
	require.Equal(t, []any{20.0, 5.0, true}, []any{in, out, known})
	in, _, _ = rates([]chanqadmin.Sample{sample(0, 100, 0), sample(3, 100, 0), sample(4, 7, 7)})
	require.Equal(t, 5.0, in, "a missing sample counts as zero")
	in, _, known = rates([]chanqadmin.Sample{sample(0, 100, 0)})
	require.Equal(t, []any{10.0, true}, []any{in, known}, "the first one")
	_, _, known = rates(nil)
	require.False(t, known)
}

func TestASparklineDrawsAnHour(t *testing.T) {
	require.Equal(t, "-", sparkline(nil))
	now := time.UnixMilli(1_700_000_000_000)
	ago := func(d time.Duration, ready int) chanqadmin.Sample {
		return chanqadmin.Sample{At: now.Add(-d), Step: chanqadmin.StepMinute, Counted: true, Ready: ready}
	}
	line := sparkline(depths(now, []chanqadmin.Sample{ago(2*time.Hour, 9), ago(59*time.Minute, 0), ago(30*time.Minute, 4), ago(2*time.Minute, 1), ago(time.Minute, 8), {At: now}}))
	require.Equal(t, "▁········▄·········█", line, "the greatest of three minutes each; a missing sample is no zero")
	require.Equal(t, "····················", sparkline(depths(now, []chanqadmin.Sample{ago(2*time.Hour, 9)})))
	require.Equal(t, []string{"0", "0.3", "9.9", "12", "12345"}, []string{rate(0), rate(.3), rate(9.9), rate(12.3), rate(12345)})
}
