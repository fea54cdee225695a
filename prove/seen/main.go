// Seen writes into docs/sqlserver.md what tests have seen on Microsoft's engine:
//
//	go run ./prove/seen docs/sqlserver.md sqlserver-2022-off.json sqlserver-2022-on.json …
//
// Each file is what go test -json wrote of one server; its name has the year of the server,
// and whether READ_COMMITTED_SNAPSHOT was on. The table between the marks is made anew. In
// the table of rules the last column lists the years in which every test of the rule that a
// real server can run has passed, with snapshots off and on.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "seen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: seen DOCUMENT RESULTS.json …")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var servers []server
	for _, path := range args[1:] {
		s, err := readServer(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		servers = append(servers, s)
	}
	text, err = fill(text, servers)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return os.WriteFile(args[0], text, 0o644)
}

// server is what was seen on one.
type server struct {
	year, snapshot string
	day            time.Time
	tests          map[string]bool // by the name that the documents have: it passed
}

var fileName = regexp.MustCompile(`^sqlserver-(\d{4})-(on|off)\.json$`)

func readServer(path string) (server, error) {
	name := fileName.FindStringSubmatch(filepath.Base(path))
	if name == nil {
		return server{}, errors.New("must be called sqlserver-YEAR-on.json or sqlserver-YEAR-off.json")
	}
	f, err := os.Open(path)
	if err != nil {
		return server{}, err
	}
	defer f.Close()
	s := server{year: name[1], snapshot: name[2]}
	s.day, s.tests, err = readTests(f)
	return s, err
}

// onServer are the tests, of the events of go test -json, that run on a real server.
var onServer = regexp.MustCompile(`^(?:TestSQLServer|TestStatements/sqlserver)/([^/]+)$`)

func readTests(r io.Reader) (day time.Time, tests map[string]bool, err error) {
	tests = map[string]bool{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var event struct {
			Time         time.Time
			Action, Test string
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return day, nil, err
		}
		name := onServer.FindStringSubmatch(event.Test)
		if name != nil && (event.Action == "pass" || event.Action == "fail") {
			day, tests[name[1]] = event.Time, event.Action == "pass"
		}
	}
	if err := lines.Err(); err != nil {
		return day, nil, err
	}
	if len(tests) == 0 {
		return day, nil, errors.New("no test has run on a real server")
	}
	return day, tests, nil
}

var (
	begin = []byte("<!-- seen: what follows is made by prove/seen -->\n")
	end   = []byte("<!-- seen: end -->\n")
)

// fill returns the document with what was seen.
func fill(text []byte, servers []server) ([]byte, error) {
	before, rest, found := bytes.Cut(text, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !found || !ended {
		return nil, fmt.Errorf("the marks %q and %q are missing", bytes.TrimSpace(begin), bytes.TrimSpace(end))
	}
	slices.SortFunc(servers, func(a, b server) int { return strings.Compare(a.year+a.snapshot, b.year+b.snapshot) })
	rules := rows.ReplaceAllFunc(after, func(row []byte) []byte {
		cells := rows.FindSubmatch(row)
		return fmt.Appendf(nil, "%s| %s |\n", cells[1], verdict(string(cells[2]), servers))
	})
	return slices.Concat(before, begin, table(servers), end, rules), nil
}

// table has a row for each server.
func table(servers []server) []byte {
	var b bytes.Buffer
	b.WriteString("| SQL Server | `READ_COMMITTED_SNAPSHOT` | on | passed | failed |\n|---|---|---|---|---|\n")
	for _, s := range servers {
		var failed []string
		for name, passed := range s.tests {
			if !passed {
				failed = append(failed, "`"+name+"`")
			}
		}
		slices.Sort(failed)
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d %s |\n", s.year, s.snapshot, s.day.Format(time.DateOnly), len(s.tests)-len(failed), len(failed), strings.Join(failed, ", "))
	}
	return b.Bytes()
}

// rows are those of the table of rules: a rule, how it was obtained, its tests; and what was
// seen.
var rows = regexp.MustCompile(`(?m)^((?:\|[^|\n]*){2}(\|[^|\n]*))\|(?: no| yes:[^|\n]*| fails:[^|\n]*) \|\n`)

var names = regexp.MustCompile("`([A-Z][A-Za-z0-9_]*)`")

// verdict is what the servers say of a rule with these tests.
func verdict(tests string, servers []server) string {
	var years, fails []string
	for _, s := range servers {
		ran := false
		for _, name := range names.FindAllStringSubmatch(tests, -1) {
			passed, known := s.tests[name[1]]
			ran = ran || known
			if known && !passed {
				fails = append(fails, fmt.Sprintf("%s with snapshots %s", s.year, s.snapshot))
				break
			}
		}
		if ran && !slices.Contains(years, s.year) {
			years = append(years, s.year)
		}
	}
	switch {
	case len(fails) > 0:
		return "fails: " + strings.Join(fails, ", ")
	case len(years) > 0:
		return "yes: " + strings.Join(years, ", ")
	}
	return "no"
}
