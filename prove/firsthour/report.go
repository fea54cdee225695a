package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// verdict is what a row of the report says of the server.
type verdict string

// The verdicts. A row that is only seen has nothing with which to compare it.
const (
	right verdict = "as expected"
	wrong verdict = "**DIFFERS**"
	seen  verdict = ""
)

// titles are the parts, in the order of the report.
var titles = []string{"facts", "plans", "locks", "behaviours", "suite", "programs", "deadlocks", "load"}

// row is one line of the report.
type row struct {
	part, what, expected, seen string
	verdict                    verdict
}

// report collects the rows of all parts, and says on w what is done, with the time since the start.
type report struct {
	*found
	part string // of further rows
}

// found is what all parts have found.
type found struct {
	w     io.Writer
	start time.Time
	rows  []row
	texts []appendix
	ended error // before all parts had run
}

// appendix is a text at the end of the report, such as the graph of a deadlock.
type appendix struct{ title, text string }

func newReport(w io.Writer) *report { return &report{found: &found{w: w, start: time.Now()}} }

// of returns the report for rows of another part.
func (r *report) of(part string) *report { return &report{r.found, part} }

// say prints a line of progress.
func (r *report) say(format string, args ...any) {
	at := time.Since(r.start).Round(time.Second)
	fmt.Fprintf(r.w, "%3d:%02d  %s\n", int(at.Minutes()), int(at.Seconds())%60, fmt.Sprintf(format, args...))
}

// begin starts a part: all later rows are of it.
func (r *report) begin(part string) {
	r.part = part
	r.say("%s", part)
}

// compare adds a row: the server differs if expected and found are not the same.
func (r *report) compare(what, expected, found string) {
	r.judge(expected == found, what, expected, found)
}

// judge adds a row whose verdict the caller knows.
func (r *report) judge(ok bool, what, expected, found string) {
	if !ok {
		r.wrong(what, expected, found)
		return
	}
	r.rows = append(r.rows, row{r.part, what, expected, found, right})
}

// wrong adds a difference.
func (r *report) wrong(what, expected, found string) {
	r.rows = append(r.rows, row{r.part, what, expected, found, wrong})
	r.say("  DIFFERS: %s: expected %s, seen %s", what, brief(expected), brief(found))
}

// note adds a row that has no verdict.
func (r *report) note(what, found string) {
	r.rows = append(r.rows, row{r.part, what, "", found, seen})
}

// attach adds a text to the end of the report.
func (r *report) attach(title, text string) { r.texts = append(r.texts, appendix{title, text}) }

func (r *report) differences() (n int) {
	for _, row := range r.rows {
		if row.verdict == wrong {
			n++
		}
	}
	return n
}

// markdown returns the whole report.
func (r *report) markdown(s *server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# chanq on %s\n\n%s, after %v. ", s.version, r.start.UTC().Format("2006-01-02 15:04 UTC"), time.Since(r.start).Round(time.Second))
	if r.ended != nil {
		fmt.Fprintf(&b, "**Not all parts have run:** %v. ", r.ended)
	}
	switch n := r.differences(); {
	case n > 0:
		fmt.Fprintf(&b, "**%d differences** from what chanq expects.\n", n)
	case r.ended != nil:
		fmt.Fprint(&b, "No difference was seen until then.\n")
	default:
		fmt.Fprint(&b, "Everything is as chanq expects it.\n")
	}
	fmt.Fprint(&b, "\n## What was to be verified\n\n| | question | parts | verdict |\n|---|---|---|---|\n")
	for i, q := range questions {
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", i+1, cell(q.title), strings.Join(q.parts, ", "), r.answer(q))
	}
	last := ""
	rows := slices.Clone(r.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return slices.Index(titles, a.part) - slices.Index(titles, b.part) })
	for _, row := range rows {
		if row.part != last {
			fmt.Fprintf(&b, "\n## %s\n\n| | expected | seen | verdict |\n|---|---|---|---|\n", row.part)
			last = row.part
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(row.what), cell(row.expected), cell(row.seen), row.verdict)
	}
	for _, a := range r.texts {
		fence := "```"
		for strings.Contains(a.text, fence) {
			fence += "`"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n%s\n%s\n", a.title, fence, strings.TrimRight(a.text, "\n"), fence)
	}
	return b.String()
}

// answer returns what the rows of its parts say of a question.
func (r *report) answer(q question) string {
	if len(q.parts) == 0 {
		return "not asked by this command"
	}
	compared, different, ran := 0, 0, map[string]bool{}
	for _, row := range r.rows {
		if !slices.Contains(q.parts, row.part) || !strings.Contains(row.what, q.rows) {
			continue
		}
		ran[row.part] = true
		switch row.verdict {
		case right:
			compared++
		case wrong:
			different++
		}
	}
	switch {
	case len(ran) == 0:
		return "not asked in this run, or not of this version"
	case different > 0:
		return fmt.Sprintf("**%d of %d differ**", different, compared+different)
	case len(ran) < len(q.parts):
		return fmt.Sprintf("%d as expected; some parts did not run", compared)
	}
	return fmt.Sprintf("%d as expected", compared)
}

// cell makes a text fit into one cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\r", "", "\n", "<br>").Replace(strings.TrimSpace(s))
}

// brief is a text for one line.
func brief(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 150 {
		s = string(r[:150]) + "…"
	}
	return s
}
