package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/cmd/chanq/internal/demo"
	"github.com/chanq/chanq/embedded"
)

// demoFlags are the flags of chanq demo.
type demoFlags struct {
	dir            string
	fresh, verbose bool
	workers        int
	lease, every   time.Duration
}

func (a *app) demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Send a folder through two queues and prove that nothing was lost",
		Long: `Sends a message for each file of a folder, hashes the files in a pipeline stage,
collects the digests from a second queue, and compares each with one computed
from the file itself.

Kill it at any moment, even with kill -9, and run it again with the same --db: it
continues, and every file is still counted once. Ctrl-C finishes what it has begun;
a second Ctrl-C aborts. Without --db the queue is in a temporary file, removed at
the end. With --dsn or CHANQ_DSN it is in the database of a server. The demo makes
the queues files and sums there, and two more tables. A database that already has
queues with these names is left alone.`,
		Example: `  chanq demo
  chanq demo --db demo.db --dir ~/src
  chanq demo --dsn @demo.dsn --workers 8
  CHANQ_DSN='postgres://user:password@localhost/demo' chanq demo`,
		Args: exactly(0, "no arguments; the folder is named by --dir"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "", "`folder` to send (default the folder of the demo in --db, or the Go standard library's source)")
	flags.BoolVar(&f.fresh, "fresh", false, "forget the demo in the database and start over")
	flags.IntVar(&f.workers, "workers", max(runtime.GOMAXPROCS(0), 2), "how many files are hashed simultaneously")
	flags.DurationVar(&f.lease, "lease", 3*time.Second, "how long messages of a killed demo stay with it")
	flags.DurationVar(&f.every, "progress-every", time.Second, "time between lines of progress, without a terminal")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "name every skipped file and every finding")
	return a.durabilityFlag(cmd)
}

func (f demoFlags) check() error {
	switch {
	case f.workers < 1 || f.workers > 1024:
		return usage("--workers is %d: must be from 1 to 1024", f.workers)
	case f.lease < 100*time.Millisecond || f.lease > time.Hour:
		return usage("--lease is %v: must be from 100ms to 1h", f.lease)
	case f.every < time.Millisecond:
		return usage("--progress-every is %v: must be 1ms or more", f.every)
	}
	return nil
}

func (a *app) demo(ctx context.Context, f demoFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	t, err := a.target()
	if err != nil {
		return err
	}
	// All checks precede the first write.
	if f.dir != "" {
		if f.dir, err = demo.Folder(f.dir); err != nil {
			return usage("--dir: %w", err)
		}
	} else if (t == target{} || t.file != "") && !exists(t.file) {
		if f.dir, err = standardLibrary(); err != nil {
			return err
		}
	}
	temporary := ""
	if t == (target{}) {
		if temporary, err = os.MkdirTemp("", "chanq-demo-"); err != nil {
			return err
		}
		t.file = filepath.Join(temporary, "demo.db")
	}
	c, err := a.open(ctx, t, mayCreate)
	if err != nil {
		return err
	}
	again := a.demoAgain(t)
	if t.file == "" {
		fmt.Fprintf(a.err, "the queues are in %s\n", visible(c.name))
	}
	fmt.Fprintf(a.err, "if this process is killed, continue with: %s\n", again)
	reported := a.out
	if a.output == "json" { // only the result
		reported = a.err
	}
	result, err := demo.Run(ctx, c.DB, demo.Options{
		Dialect: c.dialect, Schema: a.schema, Durability: a.durability(),
		Dir: f.dir, DefaultDir: standardLibrary, Own: ownFiles(t.file),
		Fresh: f.fresh, Workers: f.workers, LeaseFor: f.lease, Verbose: f.verbose,
		Out: reported, Progress: a.progress("files", f.every),
	})
	err = errors.Join(err, c.Close())
	if err != nil {
		fmt.Fprintf(a.err, "continue with: %s\n", again)
		return err
	}
	if temporary != "" {
		if err := os.RemoveAll(temporary); err != nil {
			return err
		}
	}
	if a.output == "json" {
		err = a.json(result)
	} else {
		_, err = fmt.Fprintln(a.out, result)
	}
	if err != nil {
		return err
	}
	if !result.OK() {
		return errors.New("demo: the result of the queues differs from the files: the output above lists the differences")
	}
	return nil
}

// demoAgain returns the command line that continues a demo. It does not repeat a DSN, which has a
// password, but its source.
func (a *app) demoAgain(t target) string {
	words := []string{"chanq", "demo"}
	if t.file != "" {
		words = append(words, "--db", shellQuote(t.file))
	} else if strings.HasPrefix(a.dsn, inFile) || strings.HasPrefix(a.dsn, inEnvironment) {
		words = append(words, "--dsn", shellQuote(a.dsn))
	} else if a.dsn != "" {
		words = append(words, "--dsn", "…")
	}
	if a.schema != "" {
		words = append(words, "--schema", shellQuote(a.schema))
	}
	return strings.Join(words, " ")
}

func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	if visible(s) != s {
		return "$'" + visible(strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s)) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ownFiles returns the files of our own database in the directory.
func ownFiles(db string) []string {
	if db == "" {
		return nil
	}
	return embedded.Files(db)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return file != "" && err == nil
}

// standardLibrary returns the folder of the source of Go's standard library.
func standardLibrary() (string, error) {
	root := os.Getenv("GOROOT")
	if root == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if root = strings.TrimSpace(string(out)); err != nil || root == "" {
			return "", fmt.Errorf("the source of the Go standard library was not found (go env GOROOT: %v); give another folder by --dir", err)
		}
	}
	dir := filepath.Join(root, "src")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("the source of the Go standard library is not installed (%w); give another folder by --dir", err)
	}
	return dir, nil
}
