// Command tier runs go test and prints how many tests ran.
//
//	go run ./.ci/tier NAME GO-TEST-ARGUMENTS…
//
// It prints what go test prints without -v (the packages, and the output of failed tests), then a
// table: for each package of the tier NAME the tests and subtests that passed, were skipped and
// failed. Its exit status is that of go test.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// tally counts a package's tests by result: pass, skip, fail.
type tally map[string]int

func main() {
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

func run(tier string, args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	packages, panics, err := report(out, os.Stdout)
	if waited := cmd.Wait(); waited != nil {
		err = waited
	}
	if printed := print(os.Stdout, tier, packages); printed != nil {
		return errors.Join(err, printed)
	}
	// Repeated at the end, because thousands of lines may precede.
	for _, name := range slices.Sorted(maps.Keys(panics)) {
		fmt.Print("\n", panics[name])
	}
	return err
}

// report copies the relevant output, counts tests, and returns the messages of panics without their
// stacks.
func report(from io.Reader, to io.Writer) (packages map[string]tally, panics map[string]string, err error) {
	packages, panics = map[string]tally{}, map[string]string{}
	written, panicking := map[string]*strings.Builder{}, map[string]bool{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return packages, panics, nil
		} else if err != nil {
			return packages, panics, err
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
		case e.Test == "" && e.Action == "fail":
			// A binary that panicked or timed out has reported it in the tests that were running.
			for _, running := range slices.Sorted(maps.Keys(written)) {
				if strings.HasPrefix(running, e.Package+" ") {
					_, _ = io.WriteString(to, written[running].String())
					delete(written, running)
				}
			}
		case e.Test != "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail"):
			if packages[e.Package] == nil {
				packages[e.Package] = tally{}
			}
			packages[e.Package][e.Action]++
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

func print(to io.Writer, tier string, packages map[string]tally) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\ntier %s\tpassed\tskipped\tfailed\t\n", tier)
	sum := tally{}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		t := packages[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", strings.TrimPrefix(name, "github.com/chanq/chanq/"), t["pass"], t["skip"], t["fail"])
		for action, n := range t {
			sum[action] += n
		}
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t\n", sum["pass"], sum["skip"], sum["fail"])
	return w.Flush()
}
