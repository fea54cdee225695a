// Command tier runs go test and prints how many tests ran.
//
//	go run ./.ci/tier NAME GO-TEST-ARGUMENTS…
//
// It does not vet (the step lint does), and prints what go test prints without -v (the packages, and the output of failed tests), then a
// table: for each package of the tier NAME the tests and subtests that passed, were skipped and
// failed, how many seconds it ran and how many of a processor it used, its child processes' included; and the slowest tests,
// whose seconds are shared with the tests that run at the same time.
//
// At most six tests that fail are run once more, each alone, and both results are printed. A test that passes alone is reported as
// UNSTABLE and is no failure: thousands of tests share few cores and real clocks here, and one that a busy machine delayed says nothing
// about chanq. A package that panicked is run once more as a whole. More failures than six, a data race and what fails twice are failures. The exit status is that of go test
// otherwise.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// tally has a package's tests by result (pass, skip, fail), and its seconds.
type tally struct {
	results      map[string]int
	elapsed, cpu float64
}

// slow is a test without subtests.
type slow struct {
	name    string
	elapsed float64
}

// slowest is how many of them are printed.
const slowest = 25

func main() {
	if len(os.Args) > 3 && os.Args[1] == "exec" {
		os.Exit(measure(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./.ci/tier NAME GO-TEST-ARGUMENTS…")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measure runs a test binary, and adds a line to a file: the binary's directory and the seconds of a processor.
func measure(file string, binary []string) int {
	cmd := exec.Command(binary[0], binary[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, _ := os.Getwd()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		_, err = fmt.Fprintf(f, "%s\t%f\n", dir, cpu.Seconds())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

func run(tier string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	measured, err := os.CreateTemp("", "tier")
	if err != nil {
		return err
	}
	defer os.Remove(measured.Name())
	defer measured.Close()
	cmd := exec.Command("go", append([]string{"test", "-json", "-vet=off", "-exec", self + " exec " + measured.Name()}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	packages, tests, failed, panics, err := report(out, os.Stdout)
	if waited := cmd.Wait(); waited != nil {
		err = waited
	}
	addCPU(packages, measured)
	if printed := print(os.Stdout, tier, packages, tests); printed != nil {
		return errors.Join(err, printed)
	}
	// Repeated at the end, because thousands of lines may precede.
	for _, name := range slices.Sorted(maps.Keys(panics)) {
		fmt.Print("\n", panics[name])
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	for name := range panics { // its other tests have not run
		failed = slices.DeleteFunc(failed, func(f failure) bool { return f.pkg == name && !f.final })
		failed = append(failed, failure{pkg: name})
	}
	if len(failed) == 0 || len(failed) > again {
		return err
	}
	return alone(args, failed)
}

// again is how many failed tests are run once more.
const again = 6

// failure is a failed test without failed subtests. The test is empty if the package has panicked, or failed without one.
type failure struct {
	pkg, test string
	final     bool // a data race
}

// alone runs each of the failed tests once more, with the arguments of the first run except its packages.
func alone(args []string, failed []failure) error {
	var flags []string
	for _, arg := range args {
		if arg != "work" && !strings.HasPrefix(arg, ".") && !strings.HasPrefix(arg, "/") {
			flags = append(flags, arg)
		}
	}
	for _, f := range failed {
		if f.final {
			return fmt.Errorf("%s %s: a data race is not run once more", short(f.pkg), f.test)
		}
		fmt.Printf("\n== once more, alone: %s %s\n", short(f.pkg), f.test)
		test := append([]string{"test"}, flags...)
		if f.test != "" {
			parts := strings.Split(f.test, "/")
			for i, part := range parts {
				parts[i] = "^" + regexp.QuoteMeta(part) + "$"
			}
			test = append(test, "-v", "-run", strings.Join(parts, "/"))
		}
		cmd := exec.Command("go", append(test, f.pkg)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	for _, f := range failed {
		fmt.Printf("\n== UNSTABLE: %s %s failed while others ran and passed alone. Its output is above.\n", short(f.pkg), f.test)
	}
	return nil
}

// report copies the relevant output, counts tests, and returns those that failed and the messages of panics without their stacks.
func report(from io.Reader, to io.Writer) (packages map[string]*tally, tests []slow, failed []failure, panics map[string]string, err error) {
	packages, panics = map[string]*tally{}, map[string]string{}
	written, panicking, raced := map[string]*strings.Builder{}, map[string]bool{}, map[string]bool{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return packages, tests, failed, panics, nil
		} else if err != nil {
			return packages, tests, failed, panics, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil { // not a line of go test
			_, _ = to.Write(line)
			continue
		}
		if e.Action == "output" {
			on := strings.HasPrefix(e.Output, "panic: ") || panicking[e.Package] && e.Output != "\n"
			if panicking[e.Package] = on; on {
				panics[e.Package] += e.Output
			}
		}
		if packages[e.Package] == nil && (e.Action == "run" || e.Action == "pass" || e.Action == "fail") {
			packages[e.Package] = &tally{results: map[string]int{}}
		}
		if e.Test == "" && packages[e.Package] != nil {
			packages[e.Package].elapsed += e.Elapsed
		}
		key := e.Package + " " + e.Test
		switch {
		case e.Action == "build-output":
			_, _ = io.WriteString(to, e.Output)
		case e.Action == "output" && e.Test == "" && !strings.HasPrefix(e.Output, "=== ") && e.Output != "PASS\n":
			_, _ = io.WriteString(to, e.Output)
		case e.Action == "output" && e.Test != "":
			if written[key] == nil {
				written[key] = &strings.Builder{}
			}
			written[key].WriteString(e.Output)
			raced[key] = raced[key] || strings.Contains(e.Output, "DATA RACE") || strings.Contains(e.Output, "race detected")
		case e.Test == "" && e.Action == "fail":
			failed = addFailure(failed, failure{pkg: e.Package})
			// A binary that panicked or timed out has reported it in the tests that were running.
			for _, running := range slices.Sorted(maps.Keys(written)) {
				if strings.HasPrefix(running, e.Package+" ") {
					_, _ = io.WriteString(to, written[running].String())
					delete(written, running)
				}
			}
		case e.Test != "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail"):
			packages[e.Package].results[e.Action]++
			// A test with subtests comes directly after the last of them.
			name := short(e.Package) + " " + e.Test
			if n := len(tests); n == 0 || !strings.HasPrefix(tests[n-1].name, name+"/") {
				tests = append(tests, slow{name, e.Elapsed})
			}
			if e.Action == "fail" {
				failed = addFailure(failed, failure{pkg: e.Package, test: e.Test, final: raced[key]})
			}
			if written[key] != nil {
				text := written[key].String()
				if e.Action == "pass" || e.Action == "skip" && !strings.Contains(text, "NOT TESTED") {
					text = behindVerdict(text)
				}
				_, _ = io.WriteString(to, text)
			}
			delete(written, key)
		}
	}
}

// addFailure adds a failure, unless it only says that a subtest of it, or a test of its package, has failed.
func addFailure(failed []failure, f failure) []failure {
	caused := func(other failure) bool {
		return other.pkg == f.pkg && (f.test == "" || strings.HasPrefix(other.test, f.test+"/"))
	}
	if !f.final && slices.ContainsFunc(failed, caused) {
		return failed
	}
	return append(failed, f)
}

// behindVerdict returns the output of a binary after the last line of a test that did not fail. go
// test attributes it to this test, but it may be the panic of another test.
func behindVerdict(text string) string {
	_, rest, _ := strings.Cut(text, "--- ")
	_, rest, _ = strings.Cut(rest, "\n")
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "=== ") {
			return rest
		}
	}
	return ""
}

// addCPU adds what measure has written.
func addCPU(packages map[string]*tally, measured io.Reader) {
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return
	}
	lines := bufio.NewScanner(measured)
	for lines.Scan() {
		dir, seconds, _ := strings.Cut(lines.Text(), "\t")
		cpu, _ := strconv.ParseFloat(seconds, 64)
		if t := packages[path.Join(module, strings.TrimPrefix(dir, strings.TrimSpace(string(root))))]; t != nil {
			t.cpu += cpu
		}
	}
}

const module = "github.com/chanq/chanq"

func short(name string) string { return strings.TrimPrefix(name, module+"/") }

func print(to io.Writer, tier string, packages map[string]*tally, tests []slow) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\ntier %s\tpassed\tskipped\tfailed\tseconds\tof a processor\t\n", tier)
	sum := &tally{results: map[string]int{}}
	line := func(name string, t *tally) {
		r := t.results
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\t%.1f\t\n", name, r["pass"], r["skip"], r["fail"], t.elapsed, t.cpu)
	}
	byTime := func(a, b string) int {
		return cmp.Compare(packages[b].cpu+packages[b].elapsed, packages[a].cpu+packages[a].elapsed)
	}
	for _, name := range slices.SortedStableFunc(maps.Keys(packages), byTime) {
		t := packages[name]
		if len(t.results) == 0 {
			continue // no tests
		}
		line(short(name), t)
		for action, n := range t.results {
			sum.results[action] += n
		}
		sum.elapsed += t.elapsed
		sum.cpu += t.cpu
	}
	line("all", sum)
	if err := w.Flush(); err != nil {
		return err
	}
	slices.SortStableFunc(tests, func(a, b slow) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Fprintln(to, "\nseconds of the slowest tests")
	for _, test := range tests[:min(slowest, len(tests))] {
		fmt.Fprintf(to, "%7.1f  %s\n", test.elapsed, test.name)
	}
	return nil
}
