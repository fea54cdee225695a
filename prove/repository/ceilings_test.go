// Package repository tests the repository itself: its texts, imports, names, sizes and dependencies.
package repository

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the root of the repository, where the tests run. Each changes into it itself: what runs before the tests is not
// known to the cache of results.
const root = "../.."

// ceilingsFile has the most of everything that a reader of a package must hold in mind, a line per package.
const ceilingsFile = "prove/repository/ceilings.txt"

var lower = flag.Bool("lower", false, "write the ceilings that have become lower to "+ceilingsFile)

// counts are what a reader of the product files of a package must hold in mind.
type counts struct {
	tokens    int // of Go, without comments and automatic semicolons
	fields    int // of structs, embedded ones included
	functions int // fields that have a type of a function
	times     int // constants and variables of packages whose value names a unit of package time
	errors    int // types with a method Error
}

// These are the columns of ceilings.txt.
func (c *counts) columns() []*int {
	return []*int{&c.tokens, &c.fields, &c.functions, &c.times, &c.errors}
}

var columnNames = []string{"tokens", "fields", "function-typed fields", "times", "error types"}

// TestNoPackageHoldsMoreThanItsCeiling covers the root and internal. State is what makes this library hard to change, so a package that
// grows must say why, in the commit that raises its ceiling.
func TestNoPackageHoldsMoreThanItsCeiling(t *testing.T) {
	t.Chdir(root)
	ceilings := readCeilings(t)
	packages, err := filepath.Glob("internal/*")
	require.NoError(t, err)
	lowered := map[string]counts{}
	for _, dir := range append(packages, ".") {
		name := strings.TrimPrefix(filepath.ToSlash(dir), "internal/")
		if dir == "." {
			name = "chanq"
		}
		got := count(t, dir)
		if got.tokens == 0 {
			continue
		}
		ceiling, known := ceilings[name]
		if !known {
			t.Errorf("package %s has no line in %s: add %s", name, ceilingsFile, got.line(name))
		}
		now := got
		for i, most := range ceiling.columns() {
			if n := *now.columns()[i]; known && n > *most {
				t.Errorf("package %s has %d %s, and may have %d. Look for what your change makes superfluous, and delete it. If the package has "+
					"to grow, raise its ceiling in %s, and give the reason in the commit", name, n, columnNames[i], *most, ceilingsFile)
				*now.columns()[i] = *most
			}
		}
		lowered[name] = now
	}
	for name := range ceilings {
		if _, is := lowered[name]; !is {
			t.Errorf("there is no package %s: remove its line from %s", name, ceilingsFile)
		}
	}
	if *lower && !t.Failed() {
		require.NoError(t, os.WriteFile(ceilingsFile, write(lowered), 0o644))
	}
}

func (c counts) line(name string) string {
	return fmt.Sprintf("%-8s %6d %6d %9d %5d %6d", name, c.tokens, c.fields, c.functions, c.times, c.errors)
}

func readCeilings(t *testing.T) map[string]counts {
	data, err := os.ReadFile(ceilingsFile)
	require.NoError(t, err)
	ceilings := map[string]counts{}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var c counts
		_, err := fmt.Sscan(line, &name, &c.tokens, &c.fields, &c.functions, &c.times, &c.errors)
		require.NoError(t, err, "%s: %s", ceilingsFile, line)
		if name != "together" {
			ceilings[name] = c
		}
	}
	return ceilings
}

func write(packages map[string]counts) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The most that each package of root and internal may hold. go test ./prove/repository -run Ceiling -lower lowers it.\n")
	fmt.Fprintf(&b, "#%7s %6s %6s %9s %5s %6s\n", "", "tokens", "fields", "functions", "times", "errors")
	var all counts
	names := make([]string, 0, len(packages))
	for name, c := range packages {
		names = append(names, name)
		for i, n := range c.columns() {
			*all.columns()[i] += *n
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintln(&b, packages[name].line(name))
	}
	fmt.Fprintln(&b, all.line("together"))
	return b.Bytes()
}

// count counts the product files of a folder.
func count(t *testing.T, dir string) (c counts) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	failing := map[string]bool{} // types with a method Error
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		c.tokens += tokens(source)
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				for _, field := range n.Fields.List {
					names := max(1, len(field.Names))
					c.fields += names
					if _, is := field.Type.(*ast.FuncType); is {
						c.functions += names
					}
				}
			case *ast.FuncDecl:
				if n.Name.Name == "Error" && n.Recv != nil && len(n.Type.Params.List) == 0 {
					failing[receiver(n.Recv.List[0].Type)] = true
				}
			}
			return true
		})
		for _, decl := range file.Decls {
			if d, is := decl.(*ast.GenDecl); is && (d.Tok == token.CONST || d.Tok == token.VAR) {
				for _, spec := range d.Specs {
					for _, value := range spec.(*ast.ValueSpec).Values {
						if namesTime(value) {
							c.times++
						}
					}
				}
			}
		}
	}
	c.errors = len(failing)
	return c
}

func tokens(source []byte) (n int) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), source, nil, 0)
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return n
		case tok != token.SEMICOLON || text != "\n":
			n++
		}
	}
}

// receiver returns the name of the type of a receiver.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// namesTime reports whether an expression has a unit of package time, such as time.Second.
func namesTime(value ast.Expr) (is bool) {
	units := []string{"Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}
	ast.Inspect(value, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			of, _ := s.X.(*ast.Ident)
			is = is || of != nil && of.Name == "time" && slices.Contains(units, s.Sel.Name)
		}
		return true
	})
	return is
}
