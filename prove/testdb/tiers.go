package testdb

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// With Go's default the garbage collector takes a third of the tests' CPU time, since a world is small and produces
// much garbage. Benchmarks keep the default, which users have.
func init() {
	bench := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench=") })
	if testing.Testing() && !bench && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
		debug.SetMemoryLimit(1 << 30) // bytes, above which it collects more often
	}
}

// Tier is the environment variable that selects how much the tests run. Empty: quick enough for a new contributor.
// "long": also real clocks, files, sockets, PostgreSQL, killed processes. "soak": also each test of more than 20 s, and
// every operation.
const Tier = "CHANQ_TEST"

// Long skips a test of the long tier in the other ones.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("SKIPPED: runs with %s=long", Tier)
	}
}

// Soak skips a test of the soak tier in the other ones.
func Soak(t testing.TB) {
	t.Helper()
	if !IsSoak() {
		t.Skipf("SKIPPED: runs with %s=soak", Tier)
	}
}

// Of returns short in the default tier, long in the tiers above it, and soak in the soak tier if there is one.
func Of[V any](short, long V, soak ...V) V {
	switch {
	case IsSoak() && len(soak) > 0:
		return soak[0]
	case IsLong():
		return long
	}
	return short
}

// IsLong reports whether the long tier or the soak tier runs. It panics if the
// variable has another value, which would hide tests.
func IsLong() bool {
	switch tier := os.Getenv(Tier); tier {
	case "":
		return false
	case "long", "soak":
		return true
	default:
		panic(Tier + "=" + tier + `: want "", "long" or "soak"`)
	}
}

// IsSoak reports whether the soak tier runs.
func IsSoak() bool { return os.Getenv(Tier) == "soak" }
