package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// afterInterrupt is how long a child process may take to end after Ctrl-C.
const afterInterrupt = 20 * time.Second

// tests are tests that run in a child process, on databases of their own.
type tests struct {
	what     string
	run      string // of go test
	packages []string
	counts   string // a test counts if its name has this: others have not asked the server
}

// suites are the tests that a server can be asked. Each setting of the databases is a run.
var (
	suites = []tests{
		{"guarantees and statements", `^(TestSQLServer|TestStatements)$/^(sqlserver|[^/]*[A-Z].*)$`, []string{"./sqlbatch", "./prove/guarantees"}, "SQLServer/,/sqlserver"},
		{"the notifier, the SQL of the documents, the first example", `/^sqlserver$`, []string{"./mssqlnotify", "./prove/foreign", "./examples/hello"}, "/sqlserver"},
	}
	quickSuites = []tests{
		{"statements of a claim", `^TestStatements$/^sqlserver$/^AClaim`, []string{"./sqlbatch"}, "/sqlserver"},
	}
)

// suite is part 5: it runs the tests with each setting of row versions, and on 2025 with optimized locking.
func suite(ctx context.Context, h *hour) error {
	settings := []struct {
		what string
		env  []string
	}{
		{"row versions off", []string{"CHANQ_TEST_SQLSERVER_SNAPSHOT=off", "CHANQ_TEST_SQLSERVER_LOCKING="}},
		{"row versions on", []string{"CHANQ_TEST_SQLSERVER_SNAPSHOT=on", "CHANQ_TEST_SQLSERVER_LOCKING="}},
	}
	list := suites
	if h.major >= 17 {
		settings = append(settings, struct {
			what string
			env  []string
		}{"optimized locking", []string{"CHANQ_TEST_SQLSERVER_SNAPSHOT=on", "CHANQ_TEST_SQLSERVER_LOCKING=optimized"}})
	}
	if h.quick {
		settings, list = settings[:1], quickSuites
	}
	for _, s := range settings {
		for _, t := range list {
			what := t.what + ", " + s.what
			h.report.say("  %s", what)
			if err := h.test(ctx, what, t, s.env); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	return nil
}

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// test runs tests, and adds a row for those that failed, with what they printed.
func (h *hour) test(ctx context.Context, what string, t tests, env []string) error {
	args := append([]string{"test", "-json", "-count=1", "-timeout=40m", "-p=1", "-run=" + t.run}, t.packages...)
	env = append(env, "CHANQ_TEST=long", "CHANQ_TEST_SQLSERVER="+h.address.String())
	tally := tally{counts: strings.Split(t.counts, ","), output: map[string]string{}, reasons: map[string]int{}}
	err := h.child(ctx, env, func(out io.Reader) error { return tally.read(out, func(pkg string) { h.report.say("    %s", pkg) }) }, "go", args...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	for _, name := range tally.failed {
		h.report.wrong(what+": "+name, "pass", "fail")
		h.report.attach("Output of "+name+", "+what, tally.output[name])
	}
	if err != nil && len(tally.failed) == 0 {
		h.report.attach("Output of go test, "+what, tally.output[""])
		return fmt.Errorf("go test: %w", err)
	}
	if len(tally.reasons) > 0 {
		var list strings.Builder
		for _, why := range slices.Sorted(maps.Keys(tally.reasons)) {
			fmt.Fprintf(&list, "%4d  %s\n", tally.reasons[why], why)
		}
		h.report.attach("Skipped: "+what, list.String())
	}
	h.report.judge(tally.passed > 0 && len(tally.failed) == 0, what, "tests that pass on the server, and none that fails",
		fmt.Sprintf("%d pass, %d fail, %d are skipped", tally.passed, len(tally.failed), tally.skipped))
	return nil
}

// tally counts tests that have asked the server.
type tally struct {
	counts          []string
	passed, skipped int
	failed          []string
	output          map[string]string // by test; "" is of packages
	reasons         map[string]int    // of what is skipped
}

// read reads the events of go test. It calls done with each package that has ended.
func (t *tally) read(out io.Reader, done func(string)) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	parents := map[string]bool{} // tests that have others
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			t.output[""] += lines.Text() + "\n" // such as an error of the compiler
			continue
		}
		name := ""
		if e.Test != "" {
			name = e.Package + " " + e.Test
		}
		switch e.Action {
		case "output", "build-output":
			t.output[name] += e.Output
		case "run":
			if i := strings.LastIndex(name, "/"); i > 0 {
				parents[name[:i]] = true
			}
		case "fail":
			if e.Test != "" && !parents[name] {
				t.failed = append(t.failed, name)
			}
		case "pass", "skip":
			if e.Test == "" {
				done(e.Package)
				continue
			}
			if parents[name] || !slices.ContainsFunc(t.counts, func(part string) bool { return strings.Contains(e.Test, part) }) {
				continue
			}
			if e.Action == "pass" {
				t.passed++
			} else {
				t.skipped++
				t.reasons[reason(t.output[name])]++
			}
		}
	}
	return lines.Err()
}

// at is the place that a test prints before its reason.
var at = regexp.MustCompile(`^\s*\w+\.go:\d+: `)

// reason is why a test is skipped, by what it printed.
func reason(output string) string {
	for line := range strings.Lines(output) {
		if at.MatchString(line) {
			return strings.TrimSpace(at.ReplaceAllString(line, ""))
		}
	}
	return "no reason is given"
}

// child runs a program in the checkout, and passes what it prints to read. It ends with ctx.
func (h *hour) child(ctx context.Context, env []string, read func(io.Reader) error, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = h.root
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = afterInterrupt
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	reading := read(out)
	_, _ = io.Copy(io.Discard, out) // if read has returned early, the program must not wait
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, brief(said.String()))
	}
	return reading
}
