package chanq_test

import (
	"os/exec"
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
		for _, proof := range []string{"internal/prove", "internal/testdb"} {
			require.NotContains(t, dep, proof)
		}
	}
	require.Contains(t, string(out), "github.com/chanq/chanq/sqlbatch/sqlserver")
}
