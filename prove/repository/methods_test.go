package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// mostMethods is how many methods a type of the root and of internal/ may have, including those of embedded structs.
const mostMethods = 25

func TestTypesHaveFewMethods(t *testing.T) {
	t.Chdir(root)
	own, embeds := map[string]int{}, map[string][]string{}
	for _, pattern := range []string{"*.go", "internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Recv != nil {
						own[typeName(file, n.Recv.List[0].Type)]++
					}
				case *ast.TypeSpec:
					of := typeName(file, n.Name)
					own[of] += 0
					if s, ok := n.Type.(*ast.StructType); ok {
						for _, f := range s.Fields.List {
							if f.Names == nil {
								embeds[of] = append(embeds[of], typeName(file, f.Type))
							}
						}
					}
				}
				return true
			})
		}
	}
	var methods func(of string) int
	methods = func(of string) int {
		n := own[of]
		for _, e := range embeds[of] {
			n += methods(e)
		}
		return n
	}
	require.Greater(t, methods("chanq.HandledEvent"), own["chanq.Delivery"]-1, "it embeds a Delivery")
	for of := range own {
		n := methods(of)
		require.LessOrEqual(t, n, mostMethods,
			"%s has %d methods. Give those that use the same few of its fields a type of their own, with these fields, and have %s hold one in a named field", of, n, of)
	}
}

// A newcomer sees in the root what chanq consists of.
func TestTheRootHasFewFiles(t *testing.T) {
	t.Chdir(root)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	tests := slices.DeleteFunc(slices.Clone(files), func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
	require.LessOrEqual(t, len(files)-len(tests), 15, "of the product")
	require.LessOrEqual(t, len(tests), 10, "tests: those of the repository belong to prove/repository, others of one subject in one file")
	require.Subset(t, files, []string{"chanq.go", "producer.go", "consumer.go", "lease.go"})
}

// Two files fit on the screen together. Only tables in comments may be wider.
func TestLinesHaveAtMost120Columns(t *testing.T) {
	t.Chdir(root)
	for _, pattern := range []string{"*.go", "internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			for i, line := range strings.Split(string(text), "\n") {
				wide := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > 120
				if wide && !strings.HasPrefix(strings.TrimSpace(line), "//\t") {
					t.Errorf("%s:%d has more than 120 columns: break the line", name, i+1)
				}
			}
		}
	}
}

// typeName returns the package and the name of a type: that of a receiver, or of an embedded field.
func typeName(file *ast.File, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(file, e.X)
	case *ast.IndexExpr:
		return typeName(file, e.X)
	case *ast.IndexListExpr:
		return typeName(file, e.X)
	case *ast.SelectorExpr:
		return e.X.(*ast.Ident).Name + "." + e.Sel.Name
	case *ast.Ident:
		return file.Name.Name + "." + e.Name
	}
	panic("a receiver or an embedded field of another form")
}
