package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// issues is where a report is sent.
const issues = "https://github.com/chanq/chanq/issues/new"

// roundTrips is how many are timed.
const roundTrips = 21

// about returns what a reader must know of the client.
func (h *hour) about(ctx context.Context) [][]string {
	about := [][]string{
		{"chanq", "commit " + h.commit(ctx)},
		{"command", h.line},
		{"parts", strings.Join(h.parts, ", ")},
		{"go-mssqldb", dependency("github.com/microsoft/go-mssqldb")},
		{"client", fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())},
	}
	var times []time.Duration
	for range roundTrips {
		start := time.Now()
		if _, err := h.admin.ExecContext(ctx, "SELECT 1"); err != nil {
			return about // an interruption; other errors will be seen by the parts
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return append(about, []string{"round trip to the server", fmt.Sprintf("%v (median of %d)", times[len(times)/2].Round(time.Microsecond), len(times))})
}

// commit is that of the checkout: go run does not write it into the program.
func (h *hour) commit(ctx context.Context) string {
	git := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	git.Dir = h.root
	out, err := git.Output()
	if err != nil {
		return "unknown" // an archive without a history
	}
	return strings.TrimSpace(string(out))
}

// dependency is the version of a module in this program.
func dependency(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

// createFile creates the file of the report before anything else is: 40 minutes later would be too late to see that it cannot be written.
func (h *hour) createFile(out io.Writer) (io.Writer, error) {
	if h.out == "-" {
		return out, nil
	}
	text := fmt.Sprintf("running since %s. If no firsthour runs, it was killed: it might have left databases named %s_….\n", h.report.start.UTC().Format("2006-01-02 15:04 UTC"), h.prefix)
	return replaced(h.out), os.WriteFile(h.out, []byte(text), 0o644)
}

// replaced is the name of a file, whose content each write replaces.
type replaced string

func (name replaced) Write(text []byte) (int, error) {
	return len(text), os.WriteFile(string(name), text, 0o644)
}

// publish writes the report, even of a run that was interrupted. If that fails, it prints the report.
func (h *hour) publish(to io.Writer) error {
	text := h.clean(h.report.markdown(h.server))
	_, err := io.WriteString(to, text)
	if _, file := to.(replaced); file && err != nil {
		_, printed := io.WriteString(h.report.w, text)
		return errors.Join(fmt.Errorf("the report is above, because it cannot be written: %w", err), printed)
	}
	if err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	if h.out != "-" {
		h.report.say("the report is in %s: search it for DIFFERS and for \"not asked\"", h.out)
	}
	h.report.say("please send it, whatever it says: %s (it holds no password and no address)", issues)
	return nil
}

// socket is an address, as errors of connections have it.
var socket = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:\d+\b|\[[0-9a-f:]+\]:\d+`)

// clean removes the password, the server's address, and the names of folders: tests print them if they fail.
func (h *hour) clean(text string) string {
	var pairs []string
	if password, _ := h.address.User.Password(); len(password) > 3 {
		pairs = append(pairs, password, "…", url.QueryEscape(password), "…", url.PathEscape(password), "…")
	}
	pairs = append(pairs, h.address.Host, "…", "@"+h.address.Host, "@…", "@"+h.address.Hostname(), "@…")
	if strings.Contains(h.address.Hostname(), ".") {
		pairs = append(pairs, h.address.Hostname(), "…")
	}
	pairs = append(pairs, h.root+string(os.PathSeparator), "", h.root, ".")
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 {
		pairs = append(pairs, home, "~")
	}
	return socket.ReplaceAllString(strings.NewReplacer(pairs...).Replace(text), "…")
}
