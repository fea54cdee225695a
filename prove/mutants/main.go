// Command mutants verifies that the tests still fail where chanq is broken on purpose.
//
//	go run ./prove/mutants [-run REGEXP] [-p N] [-long]
//	go run ./prove/mutants -list
//
// Each break of breaks/*.txt edits one file and names one test. The command applies the breaks
// one at a time, to a copy of the source (go test -overlay). A break is caught
// if its test passes without it, and with it fails by an assertion: not by a panic, a
// timeout, or a program that does not compile. The exit status is 1 if a break is not caught.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	list := flag.Bool("list", false, "print the table of breaks, as docs/internals/reliability.md has it, and run nothing")
	run := flag.String("run", "", "only breaks of which name or area matches this regular expression")
	parallel := flag.Int("p", 2, "how many breaks are tried at once")
	long := flag.Bool("long", false, "also breaks whose test is of the long tier")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	all, err := kept()
	dir := ""
	if err == nil {
		dir, err = root()
	}
	var chosen *regexp.Regexp
	if err == nil {
		chosen, err = regexp.Compile(*run)
	}
	if err == nil && (flag.NArg() > 0 || *parallel < 1) {
		err = errors.New("usage: go run ./prove/mutants [-list] [-run REGEXP] [-p N, from 1] [-long]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	all = slices.DeleteFunc(all, func(d deliberate) bool {
		return d.long && !*long && !*list || !chosen.MatchString(d.name) && !chosen.MatchString(d.area)
	})
	if *list {
		fmt.Print(table(all))
		return
	}
	if err := runAll(ctx, os.Stdout, dir, all, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// table is a Markdown table of breaks.
func table(all []deliberate) string {
	var b strings.Builder
	b.WriteString("| break | of | what is broken | test that fails |\n|---|---|---|---|\n")
	for _, d := range all {
		tier := ""
		if d.long {
			tier = " (long tier)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` of `%s`%s |\n", d.name, d.area, d.says, d.test, d.dir, tier)
	}
	return b.String()
}

// runner tries breaks.
type runner struct {
	root, temp string
	out        io.Writer

	mu     sync.Mutex // guards the following fields, and out
	counts map[verdict]int
	seen   map[string]bool    // tests that were run without a break
	fails  map[string]failure // the reason why a break, a package or a test cannot be tried
}

func runAll(ctx context.Context, out io.Writer, dir string, all []deliberate, parallel int) error {
	began := time.Now()
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	r := &runner{root: dir, temp: temp, out: out, counts: map[verdict]int{}, seen: map[string]bool{}}
	path, fails, err := overlay(dir, temp, all)
	if err != nil {
		return err
	}
	r.fails = fails
	r.build(ctx, path, all, parallel)
	fmt.Fprintf(out, "%6.1f s  compiled, all breaks together\n", time.Since(began).Seconds())
	each(ctx, parallel, all, func(d deliberate) { r.baseline(ctx, d) })
	each(ctx, parallel, all, func(d deliberate) {
		began := time.Now()
		r.mu.Lock()
		f := cmp.Or(r.fails[d.name], r.fails[d.dir], r.fails[d.dir+" "+d.test])
		r.mu.Unlock()
		if f.verdict == "" {
			f = r.test(ctx, d, d.name)
		}
		if ctx.Err() == nil {
			r.report(d, f, time.Since(began))
		}
	})
	return r.summary(ctx, len(all), time.Since(began))
}

// each calls f for all breaks, several at once, until ctx ends.
func each(ctx context.Context, parallel int, all []deliberate, f func(deliberate)) {
	calls := errgroup.Group{}
	calls.SetLimit(parallel)
	for _, d := range all {
		calls.Go(func() error {
			if ctx.Err() == nil {
				f(d)
			}
			return nil
		})
	}
	_ = calls.Wait() // they return nil
}

type failure struct {
	verdict verdict
	why     string
}

// build compiles the test binaries, with all breaks in them.
func (r *runner) build(ctx context.Context, overlay string, all []deliberate, parallel int) {
	one := slices.Clone(all)
	slices.SortStableFunc(one, func(a, b deliberate) int { return strings.Compare(a.dir, b.dir) })
	one = slices.CompactFunc(one, func(a, b deliberate) bool { return a.dir == b.dir })
	each(ctx, parallel, one, func(d deliberate) {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay, "-o", r.binary(d), ".")
		cmd.Dir = filepath.Join(r.root, filepath.FromSlash(d.dir))
		cmd.WaitDelay = 10 * time.Second // a compiler might outlive the go command
		if output, err := cmd.CombinedOutput(); err != nil {
			r.fail(d.dir, failure{notCompiled, string(output)})
		}
	})
}

func (r *runner) binary(d deliberate) string {
	return filepath.Join(r.temp, strings.ReplaceAll(d.dir, "/", "_")+"_.test")
}

func (r *runner) fail(what string, f failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails[what] = f
}

// baseline runs the test of a break without a break, unless it was run already.
func (r *runner) baseline(ctx context.Context, d deliberate) {
	key := d.dir + " " + d.test
	r.mu.Lock()
	skip := r.fails[d.dir].verdict != "" || r.seen[key]
	r.seen[key] = true
	r.mu.Unlock()
	if skip {
		return
	}
	switch f := r.test(ctx, d, ""); f.verdict {
	case survived:
	case caught, noAssertion:
		r.fail(key, failure{failsAnyway, f.why})
	default:
		r.fail(key, f)
	}
}

// test runs the test of a break while the break of that name is active.
func (r *runner) test(ctx context.Context, d deliberate, on string) failure {
	cmd := exec.CommandContext(ctx, r.binary(d), "-test.v=test2json", "-test.timeout=3m", "-test.run="+pattern(d.test))
	cmd.Dir = filepath.Join(r.root, filepath.FromSlash(d.dir))
	tier := ""
	if d.long {
		tier = "long"
	}
	cmd.Env = append(os.Environ(), "CHANQ_TEST="+tier, variable+"="+on)
	cmd.WaitDelay = 10 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return failure{commandError, err.Error()}
	}
	convert := exec.CommandContext(ctx, "go", "tool", "test2json")
	convert.Stdin = &output
	events, err := convert.Output()
	if err != nil {
		return failure{commandError, err.Error()}
	}
	v, why := judge(events, d.test)
	return failure{v, why}
}

// report prints the line of a break.
func (r *runner) report(d deliberate, f failure, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[f.verdict]++
	fmt.Fprintf(r.out, "%6.1f s  %-8s %s: %s\n", took.Seconds(), f.verdict, d.area, d.name)
	if f.verdict != caught {
		fmt.Fprintf(r.out, "          %s\n          test %s of %s\n", d.says, d.test, d.dir)
		if f.why != "" {
			fmt.Fprintf(r.out, "          %s\n", f.why)
		}
	}
}

// summary prints how many breaks have which verdict.
func (r *runner) summary(ctx context.Context, all int, took time.Duration) error {
	fmt.Fprintln(r.out)
	for _, v := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(r.out, "%5d  %s\n", r.counts[v], v)
	}
	tried := 0
	for _, n := range r.counts {
		tried += n
	}
	fmt.Fprintf(r.out, "%5d  in %.0f s\n", tried, took.Seconds())
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %d of %d breaks were tried", tried, all)
	case r.counts[caught] < all:
		return fmt.Errorf("%d of %d breaks are not caught", all-r.counts[caught], all)
	case all == 0:
		return errors.New("no break is chosen")
	}
	return nil
}
