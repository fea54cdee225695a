package chanqshards

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThePackageStandsAboveTheRoot: it imports only the root package, chanqadmin and internal/lease of chanq, and besides the standard
// library only conc.
func TestThePackageStandsAboveTheRoot(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	imported := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range parsed.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if strings.Contains(path, ".") {
				imported++
				require.True(t, slices.Contains([]string{"github.com/chanq/chanq", "github.com/chanq/chanq/chanqadmin", "github.com/chanq/chanq/internal/lease", "github.com/sourcegraph/conc"}, path), "%s imports %s", file, path)
			}
		}
	}
	require.NotZero(t, imported)
}
