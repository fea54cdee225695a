package chanq

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/sqlbatch"
)

// The page of limits has numbers in many of its rows. They must be those of the code.
func TestTheDocumentedLimitsAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile("docs/limits.md")
	require.NoError(t, err)
	for row, limit := range map[string]int{
		"| body, as it is encoded":      sqlbatch.MaxBody >> 20,
		"| headers |":                   maxHeaders,
		"| `DedupKey`, `Key` |":         sqlbatch.MaxKey,
		"| `Type` |":                    sqlbatch.MaxType,
		"| attempts (":                  mostAttempts,
		"| consumer (":                  sqlbatch.MaxConsumerText,
		"| settles that wait |":         consume.LeastBacklog,
		"| databases of one queue":      sqlbatch.MaxShards,
		"| slots of an ordered queue |": sqlbatch.MaxSlots,
		"| `BatchRows`, `BatchBytes`":   DefaultBatchRows,
		"| `LeaseFor` |":                int(minLease.Milliseconds()),
		"| blocked keys of a consumer":  claim.BlockedMost,
	} {
		_, cells, found := strings.Cut(string(text), "\n"+row)
		require.True(t, found, row)
		cells, _, _ = strings.Cut(cells, "\n")
		require.Regexp(t, fmt.Sprintf(`(^|[^0-9,])%s([^0-9,]|,? |$)`, grouped(limit)), cells, row)
	}
}

// grouped formats a number as documents do: 10,000.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return grouped(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
