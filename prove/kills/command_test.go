package kills

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestAShortSoakViolatesNoGuarantee(t *testing.T) {
	testdb.Long(t)
	t.Parallel()
	soak(t, "-engine", "sqlite", "-rate", "200")
}

func TestAShortSoakOnPostgreSQLViolatesNoGuarantee(t *testing.T) {
	t.Parallel()
	soak(t, "-engine", "postgres", "-dsn", pgtest.DSN(t), "-rate", "200")
}

func soak(t *testing.T, args ...string) {
	var out strings.Builder
	err := Command(t.Context(), append(args, "-for", "8s", "-kill-every", "1s", "-lock-every", "500ms", "-freeze-every", "1s", "-workers", "3", "-faults", "0.01", "-guilty", "0.01"), &out, io.Discard)
	t.Log(out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "0 lost, 0 delivered after a confirmed end, 0 unexplained")
}

func TestInvalidFlagsAreReported(t *testing.T) {
	for want, args := range map[string][]string{
		"-engine \"oracle\"":   {"-engine", "oracle"},
		"-dsn is for":          {"-engine", "sqlite", "-dsn", "x"},
		"needs -dsn":           {"-engine", "postgres"},
		"-for is 0s":           {"-for", "0"},
		"-rate is 0":           {"-rate", "0"},
		"-workers is 0":        {"-workers", "0"},
		"-kill-every is -1s":   {"-kill-every", "-1s"},
		"-lock-every is -1s":   {"-lock-every", "-1s"},
		"-freeze-every is -1s": {"-freeze-every", "-1s"},
		"-faults is 2":         {"-faults", "2"},
		"-guilty is 2":         {"-guilty", "2"},
		"-guilty: -engine sql": {"-engine", "sqlserver", "-dsn", "x", "-guilty", "0.1"},
		"-body is -1":          {"-body", "-1"},
		"-sample is 1ns":       {"-sample", "1ns"},
		"must not exist":       {"-db", "command_test.go"},
		"unknown argument":     {"more"},
	} {
		require.ErrorContains(t, Command(t.Context(), args, io.Discard, io.Discard), want)
	}
}
