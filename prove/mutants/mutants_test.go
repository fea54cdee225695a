package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// events returns output of go tool test2json for lines "action test output".
func events(lines ...string) []byte {
	var b strings.Builder
	for _, line := range lines {
		part := strings.SplitN(line, " ", 3)
		output := ""
		if len(part) == 3 {
			output = part[2]
		}
		fmt.Fprintf(&b, "{\"Action\":%q,\"Test\":%q,\"Output\":%q}\n", part[0], part[1], output)
	}
	return []byte(b.String())
}

func TestOnlyAnAssertionCatchesABreak(t *testing.T) {
	failed := "output TestA/b --- FAIL: TestA/b (0.00s)\n"
	for name, c := range map[string]struct {
		want  verdict
		lines []string
	}{
		"t.Error":          {caught, []string{"run TestA/b", "output TestA/b     a_test.go:3: got 1, want 2\n", failed, "fail TestA/b"}},
		"testify":          {caught, []string{"run TestA/b", "output TestA/b     world.go:57: \n", "output TestA/b         \tError Trace:\ta_test.go:3\n", failed, "fail TestA/b"}},
		"of a subtest":     {caught, []string{"run TestA/b", "run TestA/b/c", "output TestA/b/c     a_test.go:3: no\n", "fail TestA/b/c", "fail TestA/b"}},
		"passed":           {survived, []string{"run TestA/b", "output TestA/b     a_test.go:3: a log\n", "pass TestA/b"}},
		"skipped":          {skipped, []string{"run TestA/b", "output TestA/b     a_test.go:3: SKIPPED\n", "skip TestA/b"}},
		"another failed":   {notFound, []string{"run TestA/c", "output TestA/c     a_test.go:3: no\n", "fail TestA/c"}},
		"no test":          {notFound, []string{"output  testing: warning: no tests to run\n"}},
		"a longer name":    {notFound, []string{"run TestA/bc", "output TestA/bc     a_test.go:3: no\n", "fail TestA/bc"}},
		"a panic":          {panicked, []string{"run TestA/b", "output TestA/b     a_test.go:3: no\n", failed, "fail TestA/b", "output TestA/b panic: oh [recovered]\n"}},
		"of rapid":         {panicked, []string{"run TestA/b", "output TestA/b     a_test.go:3: [rapid] panic after 3 tests: oh\n", "fail TestA/b"}},
		"a bubble":         {panicked, []string{"run TestA/b", "output TestA/b panic: deadlock: all goroutines in bubble are blocked\n"}},
		"the runtime":      {panicked, []string{"run TestA/b", "output TestA/b fatal error: all goroutines are asleep - deadlock!\n"}},
		"os.Exit":          {panicked, []string{"run TestA/b", "output TestA/b bye\n"}},
		"a timeout":        {timedOut, []string{"run TestA/b", "output TestA/b panic: test timed out after 3m0s\n"}},
		"a race":           {raced, []string{"run TestA/b", "output TestA/b WARNING: DATA RACE\n", "output TestA/b     testing.go:1712: race detected during execution of test\n", "fail TestA/b"}},
		"without a line":   {noAssertion, []string{"run TestA/b", failed, "fail TestA/b"}},
		"line of testing":  {noAssertion, []string{"run TestA/b", "output TestA/b     testing.go:99: test executed panic(nil)\n", "fail TestA/b"}},
		"prefix in a text": {caught, []string{"run TestA/b", "output TestA/b     a_test.go:3: got panic: oh\n", "output TestA/b         panic: oh\n", "fail TestA/b"}},
	} {
		got, _ := judge(events(c.lines...), "TestA/b")
		require.Equal(t, c.want, got, name)
	}
}

// A change that moves or alters the code of a break must move the break as well.
func TestEveryBreakStillApplies(t *testing.T) {
	dir, err := root()
	require.NoError(t, err)
	all, err := kept()
	require.NoError(t, err)
	path, failures, err := overlay(dir, t.TempDir(), all)
	require.NoError(t, err)
	require.Empty(t, failures)
	if !testing.Short() {
		requireBuilds(t, dir, path, all)
	}
	areas := map[string]int{}
	for _, d := range all {
		require.FileExists(t, filepath.Join(dir, d.file))
		requireTest(t, dir, d)
		if !d.long {
			areas[d.area]++
		}
	}
	for n := 1; n <= 13; n++ {
		require.GreaterOrEqual(t, areas[fmt.Sprintf("G%02d", n)], 2, "breaks of guarantee %d", n)
	}
}

// requireTest requires that there is a function of the test, and that the name of a case of the guarantees is written somewhere.
func requireTest(t *testing.T, dir string, d deliberate) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, d.dir, "*_test.go"))
	require.NoError(t, err)
	var text strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(content)
	}
	function, of, _ := strings.Cut(d.test, "/")
	require.True(t, strings.Contains(text.String(), "func "+function+"("), "%s: there is no %s", d.name, function)
	if strings.HasSuffix(function, "InMemory") {
		of, _, _ = strings.Cut(of, "_in=")
		require.True(t, strings.Contains(text.String(), `"`+of), "%s: there is no %s", d.name, of)
	}
}

// requireBuilds compiles the packages that have breaks.
func requireBuilds(t *testing.T, dir, overlay string, all []deliberate) {
	t.Helper()
	packages := map[string]bool{}
	for _, d := range all {
		packages["./"+filepath.ToSlash(filepath.Dir(d.file))] = true
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay=" + overlay}, slices.Sorted(maps.Keys(packages))...)...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func TestTheDocumentListsTheBreaks(t *testing.T) {
	dir, err := root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "docs", "internals", "reliability.md"))
	require.NoError(t, err)
	all, err := kept()
	require.NoError(t, err)
	require.True(t, strings.Contains(string(text), "\n\n"+table(all)+"\n"),
		"docs/internals/reliability.md must have the table that go run ./prove/mutants -list prints")
}

func TestABreakThatIsIncompleteIsAnError(t *testing.T) {
	whole := "name: a\narea: G01\nsays: It adds.\ntest: . TestA\nfile: a.go\n-x\n+y\n"
	all, err := parse("# a comment\n" + whole + "\n" + whole)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, deliberate{name: "a", area: "G01", says: "It adds.", dir: ".", test: "TestA", file: "a.go", old: "x\n", new: "y\n"}, all[0])
	for _, field := range []string{"name", "area", "says", "test", "file", "-", "+"} {
		var lines []string
		for line := range strings.Lines(whole) {
			if !strings.HasPrefix(line, field) {
				lines = append(lines, line)
			}
		}
		_, err := parse(strings.Join(lines, ""))
		if field == "+" { // a line is deleted
			require.NoError(t, err)
			continue
		}
		require.Error(t, err, field)
	}
	_, err = parse("size: 3\n")
	require.ErrorContains(t, err, `no field is called "size"`)
	_, err = parse("tier: short\n")
	require.ErrorContains(t, err, "want long")
}

// A separate program, with one break for each verdict.
func TestBreaksAreTriedOneAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: compiles programs")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/sum\n\ngo 1.25\n")
	code := `package sum

const unit = "one"

const plural = unit + "s"

type number int

func (number) next(n int) int {
	return n + 1
}

func add[N int | int64](all ...N) (sum N) {
	for _, n := range all {
		sum += n
	}
	return sum
}
`
	write("sum.go", code)
	write("sum_test.go", `package sum

import "testing"

func TestAdd(t *testing.T) {
	if got := add(1, 2); got != 3 {
		t.Errorf("got %d", got)
	}
}

func TestNext(t *testing.T) {
	if got := number(0).next(2); got != 3 {
		t.Errorf("got %d", got)
	}
}

func TestPlural(t *testing.T) {
	if plural != "ones" {
		t.Error(plural)
	}
}

func TestSkips(t *testing.T) { t.Skip() }

func TestFails(t *testing.T) { t.Error("always") }
`)
	write("other/other.go", "package other\n\nfunc one() int {\n\treturn 1\n}\n")
	write("other/other_test.go", "package other\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tone()\n}\n")
	add, next := "\treturn sum\n", "\treturn n + 1\n"
	all := []deliberate{
		{name: "caught", test: "TestAdd", old: add, new: "\treturn sum + 1\n"},
		{name: "also caught", test: "TestAdd", old: "\t\tsum += n\n", new: "\t\tsum -= n\n"},
		{name: "method", test: "TestNext", old: next, new: "\treturn n + 2\n"},
		{name: "constant", test: "TestPlural", old: "const unit = \"one\"\n", new: "const unit = \"two\"\n"},
		{name: "survives", test: "TestNext", old: add, new: "\treturn sum + 1\n"},
		{name: "panics", test: "TestNext", old: next, new: "\tpanic(n)\n"},
		{name: "gone", test: "TestAdd", old: "\treturn 0\n", new: "\n"},
		{name: "twice", test: "TestAdd", old: "}\n", new: "\n"},
		{name: "skipped", test: "TestSkips", old: next, new: "\treturn n\n"},
		{name: "missing", test: "TestNone", old: next, new: "\treturn n\n"},
		{name: "fails anyway", test: "TestFails", old: next, new: "\treturn n\n"},
		{name: "does not compile", dir: "other", test: "TestOne", file: "other/other.go", old: "\treturn 1\n", new: "\treturn \"one\"\n"},
	}
	for i := range all {
		if all[i].dir == "" {
			all[i].dir, all[i].file = ".", "sum.go"
		}
		all[i].area, all[i].says = "sum", "It is wrong."
	}
	var out strings.Builder
	err := runAll(t.Context(), &out, dir, all, 2)
	require.ErrorContains(t, err, "8 of 12 breaks are not caught")
	for name, want := range map[string]verdict{
		"caught": caught, "also caught": caught, "method": caught, "constant": caught, "survives": survived, "panics": panicked,
		"gone": textGone, "twice": textTwice, "skipped": skipped, "missing": notFound, "fails anyway": failsAnyway, "does not compile": notCompiled,
	} {
		require.Regexp(t, fmt.Sprintf(`(?m)^ +\d+\.\d s  %s +sum: %s$`, want, name), out.String())
	}
	now, err := os.ReadFile(filepath.Join(dir, "sum.go"))
	require.NoError(t, err)
	require.Equal(t, code, string(now), "the source is unchanged")

	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, runAll(over, &out, dir, all, 1), "interrupted: 0 of 12")
}
