package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
)

// A program links only the packages that it needs: its own driver, no server for tests, and apart from the standard
// library only these packages.
func TestTheRootPackagePullsInNoDriverAndNoCommand(t *testing.T) {
	t.Chdir(root)
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	allowed := []string{"jackc/puddle/v2", "sourcegraph/conc", "golang.org/x/sync", "golang.org/x/text/", "google/uuid", "chanq/chanq/sqlbatch", "chanq/chanq/internal/"}
	for dep := range strings.FieldsSeq(string(out)) {
		require.True(t, dep == "github.com/chanq/chanq" || slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(dep, a) }), dep)
		for _, proof := range []string{"prove", "prove/testdb"} {
			require.NotContains(t, dep, proof)
		}
	}
	require.Contains(t, string(out), "github.com/chanq/chanq/sqlbatch/sqlserver")
}

// apart are modules that only the command, the metrics and the browser tests need. Those are separate modules, so
// that a program that imports chanq may pin other versions.
var apart = []string{"github.com/chromedp/", "github.com/prometheus/", "github.com/spf13/cobra", "github.com/schollz/progressbar"}

func TestNoModuleOfTheCommandIsInTheBuildList(t *testing.T) {
	t.Chdir(root)
	for _, file := range []string{"go.mod", "go.sum"} { // go.sum lists indirect requirements
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), "github.com/jackc/pgx/v5 ", file)
		for _, module := range apart {
			require.NotContains(t, string(text), module, file)
		}
	}
}

// A workspace makes these replacements, and go install refuses a command whose go.mod has a replace directive.
func TestModulesThatAreInstalledReplaceNothing(t *testing.T) {
	t.Chdir(root)
	for _, file := range []string{"go.mod", "chanqprom/go.mod", "otelchanq/go.mod", "watermillchanq/go.mod", "gocloudchanq/go.mod", "cmd/chanq/go.mod"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotRegexp(t, `(?m)^(replace|exclude)\b`, string(text), file)
	}
}

// A program with chanq and a driver, outside of the repository, has few modules in its build list and in its go.mod.
// Go reads the go.mod of each module in the list, so this needs the network or a module cache that has them.
func TestAProgramThatImportsChanqHasFewModules(t *testing.T) {
	t.Chdir(root)
	testdb.Long(t)
	const (
		mostListed = 45 // 41 when this was written
		mostLines  = 21 // of go.mod: 20 when this was written
	)
	root, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	program := "package main\n\nimport (\n\t_ \"github.com/chanq/chanq\"\n\t_ \"github.com/jackc/pgx/v5/stdlib\"\n)\n\nfunc main() {}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	run := func(args ...string) string {
		for tries := 1; ; tries++ { // the network may fail for a moment
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
			out, err := cmd.Output()
			if err != nil && tries < 3 {
				continue
			}
			require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
			return string(out)
		}
	}
	run("mod", "init", "example.com/program")
	run("mod", "edit", "-go=1.25.0", "-replace=github.com/chanq/chanq="+root)
	run("mod", "edit", "-require=github.com/jackc/pgx/v5@"+strings.TrimSpace(run("list", "-C", root, "-m", "-f", "{{.Version}}", "github.com/jackc/pgx/v5")))
	run("mod", "tidy")
	listed := strings.Fields(run("list", "-m", "-f", "{{.Path}}", "all"))
	require.Contains(t, listed, "github.com/chanq/chanq")
	require.LessOrEqual(t, len(listed), mostListed, listed)
	for _, module := range apart {
		require.False(t, slices.ContainsFunc(listed, func(path string) bool { return strings.HasPrefix(path, module) }), module)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(mod), "\n"), mostLines, string(mod))
}

// Small computers run programs with a SQLite file on 32-bit systems, where an int has 32 bits.
func TestTheLibraryBuildsFor32Bits(t *testing.T) {
	t.Chdir(root)
	testdb.Soak(t) // SQLite is compiled for each: three minutes of a core
	for _, arch := range []string{"386", "arm"} {
		build := exec.Command("go", "build", ".", "./embedded", "./chanqadmin", "./chanqshards", "./chanqweb", "./pgnotify", "./mssqlnotify")
		build.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s: %s", arch, out)
	}
}

// The library is configured only by its arguments: it reads no environment variable and opens no connections itself.
func TestTheLibraryReadsNoEnvironmentAndOpensNoConnection(t *testing.T) {
	t.Chdir(root)
	forbidden := regexp.MustCompile(`\b(os\.(Getenv|LookupEnv|Environ|ExpandEnv)|sql\.(Open|OpenDB)|net\.Dial\w*)\(([^n]|n[^i])`) // OpenDB(nil) has no connections
	looked := 0
	for _, pattern := range []string{"*.go", "internal/*/*.go", "mssqlnotify/*.go", "pgnotify/*.go", "sqlbatch/*.go", "sqlbatch/*/*.go"} {
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
