package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bare are the go statements of the root and of internal, by their functions. Callers of those that wait for other
// goroutines wait by a channel, for a limited time: the others may be in a hook or in the driver, which might not return.
var bare = map[string]string{
	"internal/base/group.go Crash":        "a panic where nothing recovers",
	"internal/consume/consumer.go Start":  "supervises the goroutines of a consumer",
	"internal/session/connect.go connect": "the driver might connect too late, or never",
	"producer.go Close":                   "waits for the goroutines of a producer",
}

// A Group starts the other goroutines: it has an owner that waits for them.
func TestGoroutinesHaveOwners(t *testing.T) {
	t.Chdir(root)
	found := map[string]bool{}
	for _, pattern := range []string{"*.go", "internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, decl := range file.Decls {
				ast.Inspect(decl, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.GoStmt:
						at := filepath.ToSlash(name) + " " + decl.(*ast.FuncDecl).Name.Name
						require.NotEmpty(t, bare[at], "%s has a go statement: give the goroutine to a base.Group that its owner waits for", at)
						require.False(t, found[at], "%s has two go statements", at)
						found[at] = true
					case *ast.SelectorExpr:
						of, _ := n.X.(*ast.Ident)
						require.False(t, of != nil && of.Name == "sync" && n.Sel.Name == "WaitGroup", "%s has a sync.WaitGroup: use base.Group", name)
					}
					return true
				})
			}
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(bare)), slices.Sorted(maps.Keys(found)))
}
