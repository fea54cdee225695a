package chanq_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program links what it uses: no driver but its own, no server of the tests, and
// besides the standard library nothing but these.
func TestTheRootPackagePullsInNoDriverAndNoCommand(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	allowed := []string{"jackc/puddle/v2", "sourcegraph/conc", "golang.org/x/sync", "google/uuid", "chanq/chanq/sqlbatch", "chanq/chanq/internal/"}
	for dep := range strings.FieldsSeq(string(out)) {
		require.True(t, dep == "github.com/chanq/chanq" || slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(dep, a) }), dep)
		for _, proof := range []string{"prove", "prove/testdb"} {
			require.NotContains(t, dep, proof)
		}
	}
	require.Contains(t, string(out), "github.com/chanq/chanq/sqlbatch/sqlserver")
}

// The library is configured by what it is given: it reads no environment variable, and opens no
// connection of its own.
func TestTheLibraryReadsNoEnvironmentAndDialsNobody(t *testing.T) {
	forbidden := regexp.MustCompile(`\b(os\.(Getenv|LookupEnv|Environ|ExpandEnv)|sql\.(Open|OpenDB)|net\.Dial\w*)\(`)
	looked := 0
	for _, pattern := range []string{"*.go", "internal/group/*.go", "internal/retry/*.go", "internal/session/*.go", "pgbell/*.go", "sqlbatch/*.go", "sqlbatch/*/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NotRegexp(t, forbidden, string(source), file)
			looked++
		}
	}
	require.Greater(t, looked, 100)
}
