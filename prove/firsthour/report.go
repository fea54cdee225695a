package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
)

// verdict is what a row of the report says of the server.
type verdict string

// The verdicts. A row that is only seen has nothing with which to compare it.
const (
	right    verdict = "as expected"
	wrong    verdict = "**DIFFERS**"
	notAsked verdict = "not asked"
	seen     verdict = ""
)

// titles are the parts, in the order of the report.
var titles = []string{"facts", "plans", "locks", "behaviours", "suite", "programs", "deadlocks", "load"}

// explained has a sentence for the sections that need one.
var explained = map[string]string{
	"plans": "An estimated plan is right if it seeks, and neither scans messages, sorts, prefetches nor asks for memory. The tables at the end of the " +
		"report have the details of each plan.",
	"locks": "The locks that a statement keeps until its transaction ends, on each index, compared with those on the emulator. S is shared, U for update, " +
		"X exclusive; IX is of the table.",
	"suite": "A test that is skipped on purpose needs something that no server has, such as a clock that the test moves. A test that failed has " +
		"run once more, alone.",
	"deadlocks": "A session of Extended Events records the deadlocks of the whole server during suite, programs and load.",
	"load": "Two figures matter: page reads per message must not grow during the long load, and chanq must drain faster than the statements of the " +
		"articles. The other figures describe your server.",
}

// rest names the row of what a part did not ask, whatever the question is.
const rest = "the rest of the part"

// row is one line of the report.
type row struct {
	part, what, expected, seen string
	verdict                    verdict
}

// report collects the rows of all parts, and says on w what is done, with the time since the start. It takes no rows after the end of ctx:
// what fails then has been interrupted.
type report struct {
	*found
	part string // of further rows
}

// found is what all parts have found.
type found struct {
	ctx   context.Context
	w     io.Writer
	start time.Time
	about [][]string // how the server was asked
	ran   []string   // the parts that have begun
	rows  []row
	texts []appendix
	ended error // before all parts had run

	saying sync.Mutex // guards w
}

// appendix is a text at the end of the report, such as the graph of a deadlock.
type appendix struct{ part, title, about, text string }

func newReport(ctx context.Context, w io.Writer) *report {
	return &report{found: &found{ctx: ctx, w: w, start: time.Now()}}
}

// of returns the report for rows of another part.
func (r *report) of(part string) *report { return &report{r.found, part} }

// say prints a line of progress.
func (r *report) say(format string, args ...any) {
	r.saying.Lock()
	defer r.saying.Unlock()
	at := time.Since(r.start).Round(time.Second)
	fmt.Fprintf(r.w, "%3d:%02d  %s\n", int(at.Minutes()), int(at.Seconds())%60, fmt.Sprintf(format, args...))
}

// begin starts a part: all later rows are of it.
func (r *report) begin(part string) {
	r.part = part
	r.ran = append(r.ran, part)
	r.say("%s", part)
}

func (r *report) add(rows ...row) bool {
	if r.ctx.Err() != nil {
		return false
	}
	r.rows = append(r.rows, rows...)
	return true
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
	r.add(row{r.part, what, expected, found, right})
}

// wrong adds a difference.
func (r *report) wrong(what, expected, found string) {
	if r.add(row{r.part, what, expected, found, wrong}) {
		r.say("  DIFFERS: %s: expected %s, seen %s", what, brief(expected), brief(found))
	}
}

// skip adds a row for what could not be asked. What has the same reason in a part is one row: it is one fault.
func (r *report) skip(what string, reason error) {
	for i := range r.rows {
		if old := &r.rows[i]; old.verdict == notAsked && old.part == r.part && old.seen == reason.Error() {
			if !strings.Contains(old.what, what) {
				old.what += "; " + what
			}
			return
		}
	}
	if r.add(row{r.part, what, "", reason.Error(), notAsked}) {
		r.say("  not asked: %s: %s", what, brief(reason.Error()))
	}
}

// failed adds a row for an error: a difference, unless it only says that the server could not be asked.
func (r *report) failed(what, expected string, err error) {
	if errors.As(err, new(unseen)) || unsupported(err) {
		r.skip(what, err)
	} else {
		r.wrong(what, expected, err.Error())
	}
}

// unseen is the error of a view, a session of events or a login that cannot be had. It says nothing of the statements of chanq.
type unseen struct{ error }

func (e unseen) Unwrap() error { return e.error }

// unsupported reports whether an error is of the emulator, which does not have what was asked.
func unsupported(err error) bool {
	var e mssql.Error
	return errors.As(err, &e) && strings.Contains(e.Message, "not supported by mssqltest")
}

// note adds a row that has no verdict.
func (r *report) note(what, found string) { r.add(row{r.part, what, "", found, seen}) }

// attach adds a text to the end of the report, and a sentence about it.
func (r *report) attach(title, about, text string) {
	if r.ctx.Err() == nil {
		r.texts = append(r.texts, appendix{r.part, title, about, text})
	}
}

// count returns how many rows have a verdict.
func (r *report) count(v verdict) (n int) {
	for _, row := range r.rows {
		if row.verdict == v {
			n++
		}
	}
	return n
}

// hasRun reports whether a part has begun. Deadlocks are recorded during others.
func (r *report) hasRun(part string) bool {
	if part == "deadlocks" {
		return slices.ContainsFunc(underRecord, r.hasRun)
	}
	return slices.Contains(r.ran, part)
}

// notRun returns the parts that have not begun.
func (r *report) notRun() (names []string) {
	for _, name := range partNames() {
		if !r.hasRun(name) {
			names = append(names, name)
		}
	}
	return names
}

// summary is the result in one line.
func (r *report) summary() string {
	differences := r.count(wrong)
	text := fmt.Sprintf("%d differences, %d not asked.", differences, r.count(notAsked))
	if differences == 1 {
		text = strings.Replace(text, "differences", "difference", 1)
	}
	missing := r.notRun()
	switch {
	case r.ended != nil && len(r.ran) > 0:
		text = fmt.Sprintf("Ended in %s: %v. Until then: %s", r.ran[len(r.ran)-1], r.ended, text)
	case r.ended != nil:
		text = fmt.Sprintf("Ended before the first part: %v.", r.ended)
	case differences == 0 && r.count(notAsked) == 0 && len(missing) == 0:
		return text + " Everything is as chanq expects it."
	case differences == 0:
		var compared, empty []string
		for _, part := range r.ran {
			if slices.ContainsFunc(r.rows, func(row row) bool { return row.part == part && row.verdict == right }) {
				compared = append(compared, part)
			} else {
				empty = append(empty, part)
			}
		}
		if compared != nil {
			text += " As expected in the parts that ran: " + strings.Join(compared, ", ") + "."
		}
		if empty != nil {
			text += " Nothing could be asked in: " + strings.Join(empty, ", ") + "."
		}
	}
	if len(missing) > 0 {
		text += " Not run: " + strings.Join(missing, ", ") + "."
	}
	return text
}

// markdown returns the whole report.
func (r *report) markdown(s *server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# chanq on %s\n\n", s.version)
	if s.emulated() {
		b.WriteString("**This server is mssqltest, the emulator of chanq: the result says nothing about Microsoft's engine.**\n\n")
	}
	fmt.Fprintf(&b, "%s, after %v. **%s**\n\n", r.start.UTC().Format("2006-01-02 15:04 UTC"), time.Since(r.start).Round(time.Second), r.summary())
	b.WriteString(table(append([][]string{{"run", ""}}, r.about...)))
	b.WriteString("\nThe databases: `unversioned` has READ_COMMITTED_SNAPSHOT off, and a collation in which I and i are different letters. `versions` has it on, " +
		"and a binary collation. `ordered` has it on, and an ordered queue. `optimized` has it on, and optimized locking (2025 or later).\n")
	b.WriteString("\n## What was to be verified\n\n")
	answers := [][]string{{"", "question", "parts", "verdict"}}
	for i, q := range questions {
		answers = append(answers, []string{fmt.Sprint(i + 1), q.title, strings.Join(q.parts, ", "), r.answer(q)})
	}
	b.WriteString(table(answers))
	for _, part := range titles {
		rows := [][]string{{"", "expected", "seen", "verdict"}}
		for _, row := range r.rows {
			if row.part == part {
				rows = append(rows, []string{row.what, row.expected, row.seen, string(row.verdict)})
			}
		}
		if len(rows) == 1 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", part)
		if explained[part] != "" {
			b.WriteString(explained[part] + "\n\n")
		}
		b.WriteString(table(rows))
	}
	texts := slices.Clone(r.texts)
	slices.SortStableFunc(texts, func(a, b appendix) int { return a.place() - b.place() })
	for _, a := range texts {
		fence := "```"
		for strings.Contains(a.text, fence) {
			fence += "`"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s\n%s\n%s\n", a.title, a.about, fence, strings.TrimRight(a.text, "\n"), fence)
	}
	return b.String()
}

// place is the order of the appendices: the long tables of plans are the last.
func (a appendix) place() int {
	if a.part == "plans" {
		return len(titles)
	}
	return slices.Index(titles, a.part)
}

// answer returns what the rows of its parts say of a question.
func (r *report) answer(q question) string {
	if len(q.parts) == 0 {
		return "not asked by this command"
	}
	counts, reasons, answered := map[verdict]int{}, []string{}, map[string]bool{}
	for _, row := range r.rows {
		if !slices.Contains(q.parts, row.part) || !strings.Contains(row.what, q.rows) && row.what != rest {
			continue
		}
		counts[row.verdict]++
		answered[row.part] = true
		if row.verdict == notAsked {
			reasons = append(reasons, row.seen)
		}
	}
	asked := counts[right] + counts[wrong]
	for _, part := range q.parts {
		if !answered[part] && !r.hasRun(part) {
			reasons = append(reasons, part+" has not run")
		}
	}
	text := ""
	switch {
	case counts[wrong] > 0:
		text = fmt.Sprintf("**DIFFERS** in %d of %d comparisons", counts[wrong], asked)
	case asked > 0:
		text = fmt.Sprintf("%d as expected", asked)
	case len(reasons) == 0:
		return "not of this version, or not with these options"
	}
	if len(reasons) > 0 {
		reason := "not asked: " + brief(strings.Join(reasons, "; "))
		return strings.TrimPrefix(text+"; "+reason, "; ")
	}
	return text
}

// widest is the most by which a cell widens its column.
const widest = 60

// table is a table in Markdown, whose columns are aligned. Its first row is the heading.
func table(rows [][]string) string {
	cells := make([][]string, len(rows))
	for i, row := range rows {
		for _, text := range row {
			cells[i] = append(cells[i], cell(text))
		}
	}
	width := widths(cells, widest)
	var b strings.Builder
	for i, row := range cells {
		for c, text := range row {
			fmt.Fprintf(&b, "| %s ", pad(text, width[c]))
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// columns is a table without lines: columns of numbers are at the right.
func columns(rows [][]string) string {
	width := widths(rows, 1<<10)
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for c, text := range row {
			if slices.ContainsFunc(rows[1:], func(r []string) bool { return strings.Trim(r[c], "0123456789.-") != "" }) {
				line += pad(text, width[c]) + "  "
			} else {
				line += strings.Repeat(" ", width[c]-len([]rune(text))) + text + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func widths(rows [][]string, most int) []int {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for c, text := range row {
			width[c] = max(width[c], min(len([]rune(text)), most))
		}
	}
	return width
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len([]rune(text))))
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
