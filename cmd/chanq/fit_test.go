package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
)

func TestTopFitsTheTerminal(t *testing.T) {
	list := []topLine{
		{queueStats{name: "orders", Stats: chanqadmin.Stats{Ready: 10_000, Scheduled: 12, Leased: 1000, Dead: 3, Limit: 10_000, OldestReady: 6 * time.Hour}}, trend{known: true, in: 1234, out: 999, depths: make([]int, 60)}, nil, "moving", nil},
		{queueStats{name: "a_queue_with_a_name_that_is_rather_long_for_what_it_does", Stats: chanqadmin.Stats{Limit: 10_000, Paused: true}}, trend{}, nil, "paused", nil},
	}
	for width, want := range map[int]string{
		0:   "QUEUE READY SCHEDULED LEASED DEAD OLDEST IN/S OUT/S WAIT HANDLER LAST HOUR CONSUMERS STATE",
		200: "QUEUE READY SCHEDULED LEASED DEAD OLDEST IN/S OUT/S WAIT HANDLER LAST HOUR CONSUMERS STATE",
		132: "QUEUE READY SCHEDULED LEASED DEAD OLDEST IN/S OUT/S WAIT HANDLER CONSUMERS STATE",
		80:  "QUEUE READY LEASED DEAD OLDEST IN/S OUT/S STATE",
		60:  "QUEUE READY DEAD OLDEST STATE",
		40:  "QUEUE READY DEAD OLDEST STATE",
	} {
		var out bytes.Buffer
		a := &app{out: &out}
		require.NoError(t, a.table(fit(topTable(list), width, 0)))
		lines := strings.Split(out.String(), "\n")
		require.Equal(t, want, strings.Join(strings.Fields(lines[0]), " "), width)
		for _, line := range lines {
			if width > 0 {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, " ")), width, line)
			}
		}
	}
	low := fit(topTable(append(list, list...)), 0, 3)
	require.Equal(t, []string{"orders", "… and 3 more"}, []string{low[1][0], low[2][0]})
}
