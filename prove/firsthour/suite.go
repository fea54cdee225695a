package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	sayEvery = 30 * time.Second // the suite says how far it is
	again    = 6                // failed tests that are run once more; if more fail, the machine is not to blame
)

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
				h.report.failed(what, "the tests run", err)
			}
		}
	}
	h.onlyQuick()
	return nil
}

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// test runs tests, and adds a row for those that failed, with what they printed.
func (h *hour) test(ctx context.Context, what string, t tests, env []string) error {
	tally, err := h.goTest(ctx, t, env)
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		return err
	}
	if err != nil && len(tally.failed) == 0 {
		h.report.attach("Output of go test, "+what, "It failed without a test that failed.", tally.output[""])
		return fmt.Errorf("go test: %w", err)
	}
	failed := 0
	for _, f := range tally.failed {
		name, output := f.pkg+" "+f.test, tally.output[f.pkg+" "+f.test]
		result, about := "fail", "It was not run once more."
		if len(tally.failed) <= again && !crashed(output) {
			h.report.say("    once more, alone: %s", name)
			alone, err := h.goTest(ctx, tests{run: f.pattern(), packages: []string{f.pkg}}, env)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if about = "It failed twice. This is from the first time."; err == nil && len(alone.failed) == 0 && alone.passed > 0 {
				result, about = "failed, then passed alone: probably a busy machine", "It passed when it ran alone."
			}
		}
		h.report.attach("Output of "+name+", "+what, about, output)
		if result == "fail" {
			failed++
			h.report.wrong(what+": "+name, "pass", result)
		} else {
			tally.passed++
			h.report.note(what+": "+name, result)
		}
	}
	if len(tally.reasons) > 0 {
		list := [][]string{{"tests", "reason"}}
		for _, why := range slices.Sorted(maps.Keys(tally.reasons)) {
			list = append(list, []string{fmt.Sprint(tally.reasons[why]), why})
		}
		h.report.attach("Skipped on purpose: "+what, "Why, and how many.", columns(list))
	}
	result := fmt.Sprintf("%d pass, %d fail, %d are skipped on purpose", tally.passed, failed, tally.skipped)
	if failed > 0 {
		h.report.note(what, result) // the tests that fail are differences
		return nil
	}
	h.report.judge(tally.passed > 0, what, "tests that pass on the server, and none that fails", result)
	return nil
}

// goTest runs tests and counts them. It says which package is tested, and now and then how many tests have passed.
func (h *hour) goTest(ctx context.Context, t tests, env []string) (*tally, error) {
	args := append([]string{"test", "-json", "-count=1", "-timeout=40m", "-p=1", "-run=" + t.run}, t.packages...)
	env = append([]string{"CHANQ_TEST=long", "CHANQ_TEST_SQLSERVER=" + h.address.String(), "CHANQ_TEST_SQLSERVER_PREFIX=" + h.tests}, env...)
	tally := &tally{counts: strings.Split(t.counts, ","), output: map[string]string{}, reasons: map[string]int{}}
	var passed atomic.Int64
	ticking, stop := context.WithCancel(ctx)
	defer stop()
	go every(ticking, sayEvery, func() { h.report.say("      %d tests have passed so far", passed.Load()) })
	err := h.child(ctx, env, func(out io.Reader) error {
		return tally.read(out, func(e event) {
			switch {
			case e.Action == "start":
				h.report.say("    %s", e.Package)
			case e.Action == "fail" && e.Test != "":
				h.report.say("      failed: %s", e.Test)
			}
			passed.Store(int64(tally.passed))
		})
	}, "go", args...)
	return tally, err
}

// every calls say in intervals, until ctx ends.
func every(ctx context.Context, interval time.Duration, say func()) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			say()
		case <-ctx.Done():
			return
		}
	}
}

// failure is a test that failed, without subtests that did.
type failure struct{ pkg, test string }

// pattern is what -run needs for this test alone.
func (f failure) pattern() string {
	parts := strings.Split(f.test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// crashed reports whether the output is of a test that ended its process, and with it the tests after it.
func crashed(output string) bool { return strings.Contains("\n"+output, "\npanic: ") }

// tally counts tests that have asked the server.
type tally struct {
	counts          []string
	passed, skipped int
	failed          []failure
	output          map[string]string // by test; "" is of packages
	reasons         map[string]int    // of what is skipped
}

// read reads the events of go test. It calls done with each of them that is no output.
func (t *tally) read(out io.Reader, done func(event)) error {
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
		if e.Action == "output" || e.Action == "build-output" {
			t.output[name] += e.Output
			continue
		}
		if i := strings.LastIndex(name, "/"); e.Action == "run" && i > 0 {
			parents[name[:i]] = true
		}
		if e.Test != "" && !parents[name] {
			t.ended(e, name)
		}
		done(e)
	}
	return lines.Err()
}

// ended counts a test without subtests.
func (t *tally) ended(e event, name string) {
	counts := slices.ContainsFunc(t.counts, func(part string) bool { return strings.Contains(e.Test, part) })
	switch {
	case e.Action == "fail":
		t.failed = append(t.failed, failure{e.Package, e.Test})
	case e.Action == "pass" && counts:
		t.passed++
	case e.Action == "skip" && counts:
		t.skipped++
		t.reasons[reason(t.output[name])]++
	}
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
