package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/behaviours"
	"github.com/chanq/chanq/mssqltest/instance"
)

func TestAnotherBehaviourIsADifference(t *testing.T) {
	report := differs(t, "behaviours", answers(`^SELECT CASE WHEN 0x01 = 0x0100`, instance.Answer{Rows: [][]any{{int64(0)}}}))
	require.Contains(t, report, "| unversioned: trailing zeros of binary values do not count when they are compared | 1 | 0 | **DIFFERS** |")
	require.Contains(t, report, "| versions: trailing zeros of binary values do not count when they are compared | 1 | 0 | **DIFFERS** |")
	require.Equal(t, 2, strings.Count(report, "| **DIFFERS** |"))
	require.Equal(t, 2*(len(behaviours.All())+1)-2, strings.Count(report, "| as expected |"))
}

// Here a claim finds nothing where others have rows locked, as if READPAST did not skip them.
func TestAClaimThatSkipsTooMuchIsADifference(t *testing.T) {
	report := differs(t, "behaviours", func(r instance.Request) (instance.Answer, bool) {
		return instance.Answer{}, strings.HasPrefix(r.Text, "SET NOCOUNT") && strings.Contains(r.Text, "UPDATE a\n") && r.Args[0] == int64(10)
	})
	require.Contains(t, report, "| unversioned: a claim while a SendTx, an AckTx and a claim of two are open | 2 rows within 1s | 0 rows in ")
	require.Equal(t, 2, strings.Count(report, "| **DIFFERS** |"))
}
