package repository

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// budgets are the words of each page for users, of prose and tables. A page may have a tenth more. New users stopped at
// what six pages left out: a stop within 10 s or 30 s (deploying), what the command sqlite3 may do (sqlite), programs with
// different settings (schema), repeated crashes (runbook), held keys (order), which kinds need their own queue (kinds).
var budgets = map[string]int{
	"README.md": 600, "docs/README.md": 120, "docs/guarantees.md": 1200,

	"docs/start/getting-started.md": 600, "docs/start/concepts.md": 800,
	"docs/start/channels.md": 440, // how a pool of workers stops in time

	"docs/guides/handlers.md": 600, "docs/guides/kinds.md": 400, "docs/guides/transactions.md": 700, "docs/guides/batches.md": 350, "docs/guides/fan-out.md": 450,
	"docs/guides/pipelines.md": 350, "docs/guides/order.md": 880, // from finding a held key to opening it
	"docs/guides/scheduling.md": 730,                                                                                                // 500 before OnDuplicate, with what a handler must do then
	"docs/guides/status.md":     340,                                                                                                // with results
	"docs/guides/long-jobs.md":  545, "docs/guides/data.md": 370, "docs/guides/tenants.md": 250, "docs/guides/dead-letters.md": 700, // with deaths in a transaction; 350 left a reader with twenty questions about crashes, 450 another with twelve
	"docs/guides/testing.md": 350, "docs/guides/deploying.md": 550, "docs/guides/sqlite-to-server.md": 300, "docs/guides/sql.md": 1180,
	"docs/guides/moving.md": 250, "docs/guides/coming-from.md": 600, "docs/guides/adapters.md": 250,
	"docs/guides/topics.md": 350, "docs/guides/limits.md": 400,

	"docs/operate/schema.md": 670, "docs/operate/connections.md": 400, "docs/operate/waking.md": 350, "docs/operate/monitoring.md": 600,
	"docs/operate/runbook.md": 1580, "docs/operate/outages.md": 400, "docs/operate/upgrades.md": 300, "docs/operate/web-ui.md": 510,
	"docs/operate/capacity.md": 450, "docs/operate/shards.md": 700, "docs/operate/citus.md": 450,

	"docs/engines/postgresql.md": 600, "docs/engines/sqlite.md": 550, "docs/engines/sqlserver.md": 800,

	"docs/reference/configuration.md": 930, "docs/reference/cli.md": 1312, "docs/reference/errors.md": 350, "docs/reference/metrics.md": 332,
}

// forUsers returns the pages for users that begin with one of these paths.
func forUsers(t *testing.T, paths ...string) map[string]string {
	pages := documents(t, ".md")
	maps.DeleteFunc(pages, func(path, _ string) bool {
		of := func(begin string) bool { return strings.HasPrefix(path, begin) }
		return !slices.ContainsFunc(paths, of) || strings.HasPrefix(path, "docs/internals/")
	})
	return pages
}

func TestThePagesKeepTheirBudgets(t *testing.T) {
	t.Chdir(root)
	pages := forUsers(t, "README.md", "docs/")
	for path, text := range pages {
		budget, is := budgets[path]
		if !is {
			t.Errorf("%s has no budget", path)
		}
		words := read(text).words
		if most := budget * 11 / 10; words > most {
			t.Errorf("%s has %d words, and may have %d: shorten it, or link to the page that has it", path, words, most)
		}
		if words > 1300 && path != "docs/operate/runbook.md" && path != "docs/reference/cli.md" { // of a table, and of each command
			t.Errorf("%s has %d words, and a page may have 1300", path, words)
		}
	}
	for path := range budgets {
		require.Contains(t, pages, path, "there is no such page")
	}
}

// goals are the habits of a group of pages, per 1,000 words of prose; code per 100 words; long is the share of sentences above 25 words.
type goals struct{ you, that, qualifiers, examples, code, sentence, long float64 }

func TestThePagesKeepTheirHabits(t *testing.T) {
	t.Chdir(root)
	guides := goals{you: 15, that: 16, qualifiers: 6.5, examples: 2.5, code: 7, sentence: 14, long: 5}
	others := goals{you: 8, that: 18, qualifiers: 8, examples: 1.5, code: 3, sentence: 15, long: 8}
	for _, group := range []struct {
		name  string
		paths []string
		goals goals
	}{
		{"the README and the start", []string{"README.md", "docs/start/"}, guides},
		{"the guides", []string{"docs/guides/"}, guides},
		{"the pages for operators", []string{"docs/operate/"}, others},
		{"the engines and the guarantees", []string{"docs/engines/", "docs/guarantees.md"}, others},
		{"the reference", []string{"docs/reference/"}, others},
	} {
		var all page
		for _, text := range forUsers(t, group.paths...) {
			all.add(read(text))
		}
		is, want := all.habits(), group.goals
		least := func(what string, is, goal float64) {
			if is < goal {
				t.Errorf("%s have %.1f %s, and should have at least %.1f", group.name, is, what, goal)
			}
		}
		most := func(what string, is, goal float64) {
			if is > goal {
				t.Errorf("%s have %.1f %s, and may have %.1f", group.name, is, what, goal)
			}
		}
		least("times you or your per 1,000 words", is.you, want.you)
		most("times that or which per 1,000 words", is.that, want.that)
		most("qualifiers (at most, only, also, even, …) per 1,000 words", is.qualifiers, want.qualifiers)
		least("examples (for example, such as) per 1,000 words", is.examples, want.examples)
		least("lines of code per 100 words", is.code, want.code)
		most("words per sentence", is.sentence, want.sentence)
		most("% of sentences with more than 25 words", is.long, want.long)
	}
}

// A longer cell makes its table unreadable. Rows of the reference come from the code.
func TestCellsOfTablesAreShort(t *testing.T) {
	t.Chdir(root)
	for path, text := range forUsers(t, "README.md", "docs/") {
		for line := range strings.Lines(linkText.ReplaceAllString(fenced.ReplaceAllString(text, ""), "$1")) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			for cell := range strings.SplitSeq(strings.Trim(line, "| \n"), "|") {
				require.LessOrEqual(t, len(strings.Fields(cell)), 20, "%s: make it a paragraph: %s", path, cell)
			}
		}
	}
}

// userWords are expressions that no text for users may have, with what to write instead.
var userWords = []struct{ pattern, instead string }{
	{`at once`, "immediately, or simultaneously"},
	{`(messages|statements|reads|writes|polls|requests|times) a (second|minute|message|kill|commit)`, "per second"},
	{`also (if|when|while|without|by|after|with|through|under|during)`, "even if, even when"},
	{`meanwhile`, "during what, or nothing"},
	{`of (yours|its own|their own)`, "your, another, or repeat the noun"},
	{`lanes?`, "priority"},
	{`suspects?|witness(es)?|trials?`, "what happens to the message"},
	{`by hand|seen on|was not measured`, "nothing: one table of a page says what was tested"},
}

// userWordsOfPages are expressions that are in comments, but in no page for users.
var userWordsOfPages = []struct{ pattern, instead string }{
	{`(that|those) of`, "repeat the noun"},
	{`such an?`, "the noun with the, or this"},
}

// tools are files without texts for users: tests, measurements, examples, and SQL.
var tools = regexp.MustCompile(`^(prove|bench|examples|sqlbatch)/`)

// TestTextsForUsersNameThings reads the pages for users, the documentation of the packages, the texts of errors, and the texts of the command.
func TestTextsForUsersNameThings(t *testing.T) {
	t.Chdir(root)
	texts := map[string]string{}
	for path, text := range forUsers(t, "README.md", "docs/", "deploy/README.md") {
		texts[path] = linkText.ReplaceAllString(fenced.ReplaceAllString(text, ""), "$1")
	}
	for _, dir := range public(t) {
		texts["the documentation of "+dir] = strings.Join(slices.Collect(maps.Values(documentation(t, dir))), "\n")
	}
	for path, text := range documents(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") && !tools.MatchString(path) {
			texts["the texts of "+path] = literals(text)
		}
	}
	require.Greater(t, len(texts), 100)
	spans := regexp.MustCompile("`[^`]*`")
	for where, text := range texts {
		text = spans.ReplaceAllString(text, "")
		words := userWords
		if strings.HasSuffix(where, ".md") {
			words = append(slices.Clone(words), userWordsOfPages...)
		}
		for _, word := range words {
			for _, found := range regexp.MustCompile(`(?i).{0,30}\b(?:`+word.pattern+`)\b.{0,20}`).FindAllString(text, -1) {
				t.Errorf("%s: %q: write %s", where, found, word.instead)
			}
		}
	}
}

// habitsFile has what the documentation of the packages has reached.
const habitsFile = "prove/repository/habits.txt"

// TestTheDocumentationOfPackagesDoesNotGetWorse: it does not have the goals of pages yet. Its figures may only fall.
func TestTheDocumentationOfPackagesDoesNotGetWorse(t *testing.T) {
	t.Chdir(root)
	var all page
	over := 0
	for _, dir := range public(t) {
		for _, text := range documentation(t, dir) {
			p := read(text)
			all.add(p)
			if p.words > 120 {
				over++
			}
		}
	}
	is := all.habits()
	perWord := func(pattern string) int {
		return int(math.Ceil(1e4 * float64(len(regexp.MustCompile(`\b(`+pattern+`)\b`).FindAllString(all.text, -1))) / float64(all.words)))
	}
	now := map[string]int{
		"identifiers-above-120-words":     over,
		"that-which-per-10,000-words":     int(math.Ceil(10 * is.that)),
		"qualifiers-per-10,000-words":     int(math.Ceil(10 * is.qualifiers)),
		"words-per-10-sentences":          int(math.Ceil(10 * is.sentence)),
		"long-sentences-per-1,000":        int(math.Ceil(10 * is.long)),
		"that-of-such-a-per-10,000-words": perWord(`that of|those of|such an?`),
		"ends-or-ended-per-10,000-words":  perWord(`ends|ended`),
		"may-per-10,000-words":            perWord(`may`),
	}
	ceilings := map[string]int{}
	data, err := os.ReadFile(habitsFile)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		var name string
		var most int
		if !strings.HasPrefix(line, "#") {
			_, err := fmt.Sscan(line, &name, &most)
			require.NoError(t, err, line)
			ceilings[name] = most
		}
	}
	written := "# What the documentation of the packages may have at most. go test ./prove/repository -run GetWorse -lower lowers it.\n"
	for _, name := range slices.Sorted(maps.Keys(now)) {
		most, known := ceilings[name]
		if !known || now[name] > most {
			t.Errorf("the documentation of the packages has %d %s, and may have %d: write it with the words of a user", now[name], name, most)
		}
		written += fmt.Sprintf("%-34s %5d\n", name, min(now[name], most))
	}
	require.Len(t, ceilings, len(now))
	if flag.Lookup("lower").Value.String() == "true" && !t.Failed() {
		require.NoError(t, os.WriteFile(habitsFile, []byte(written), 0o644))
	}
}

var (
	fenced     = regexp.MustCompile("(?s)```.*?```|<!--.*?-->")
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	itemStart  = regexp.MustCompile(`^\s*(?:[-*+]|\d+\.|#+|>)\s+`)
	sentenceOf = regexp.MustCompile("([.!?:])\\s+(?:[A-Z\"*(\\[]|`|$)")
)

// page is what a text has of words and habits.
type page struct {
	words, proseWords, code int
	text                    string // without tables and code
	sentences, long         int    // long have more than 25 words
	ofSentences             int    // words
}

func (p *page) add(q page) {
	p.words += q.words
	p.proseWords += q.proseWords
	p.code += q.code
	p.text += q.text
	p.sentences += q.sentences
	p.long += q.long
	p.ofSentences += q.ofSentences
}

// read reads a text of Markdown, or of a comment.
func read(text string) (p page) {
	text = fenced.ReplaceAllStringFunc(text, func(block string) string {
		p.code += max(strings.Count(block, "\n")-1, 0)
		return "\n\n"
	})
	text = linkText.ReplaceAllString(text, "$1")
	var paragraph []string
	flush := func() {
		p.paragraph(strings.Join(paragraph, " "), 4)
		paragraph = nil
	}
	for line := range strings.Lines(text) {
		table := strings.HasPrefix(line, "|")
		if !table {
			p.text += line
			p.proseWords += len(strings.Fields(line))
		}
		switch line = strings.TrimRight(line, "\n"); {
		case strings.TrimSpace(line) == "":
			flush()
		case table:
			flush()
			if strings.Trim(line, "|-: ") == "" {
				continue
			}
			for cell := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
				p.paragraph(cell, 6)
			}
		case itemStart.MatchString(line):
			flush()
			paragraph = append(paragraph, itemStart.ReplaceAllString(line, ""))
		default:
			paragraph = append(paragraph, line)
		}
	}
	flush()
	return p
}

// paragraph counts the words of a paragraph, and its sentences of at least so many words.
func (p *page) paragraph(text string, least int) {
	text = strings.Join(strings.Fields(text), " ")
	p.words += len(strings.Fields(text))
	for text != "" {
		sentence := text
		if at := sentenceOf.FindStringIndex(text); at != nil {
			sentence, text = text[:at[0]+1], strings.TrimSpace(text[at[0]+1:])
		} else {
			text = ""
		}
		n := len(strings.Fields(sentence))
		if n < least {
			continue
		}
		p.sentences++
		p.ofSentences += n
		if n > 25 {
			p.long++
		}
	}
}

func (p *page) habits() goals {
	rate := func(pattern string) float64 {
		return 1000 * float64(len(regexp.MustCompile(`(?i)\b(?:`+pattern+`)\b`).FindAllString(p.text, -1))) / float64(max(p.proseWords, 1))
	}
	return goals{
		you:        rate(`you|your|you'\w+`),
		that:       rate(`that|which`),
		qualifiers: rate(`at most|at least|only|except|exactly|also|even|already|still|alone|itself`),
		examples:   rate(`for example|e\.g|such as|for instance`),
		code:       100 * float64(p.code) / float64(max(p.proseWords, 1)),
		sentence:   float64(p.ofSentences) / float64(max(p.sentences, 1)),
		long:       100 * float64(p.long) / float64(max(p.sentences, 1)),
	}
}

// public returns the folders of packages that programs import.
func public(t *testing.T) []string {
	dirs := []string{"."}
	for _, pattern := range []string{"chanq*", "embedded", "*notify", "otelchanq", "watermillchanq", "gocloudchanq", "pgxtx"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				dirs = append(dirs, path)
			}
		}
	}
	require.Len(t, dirs, 19)
	return dirs
}

// documentation returns the comments of a package and its exported identifiers, by name.
func documentation(t *testing.T, dir string) map[string]string {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	files := token.NewFileSet()
	var sources []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
			require.NoError(t, err)
			sources = append(sources, file)
		}
	}
	of, err := doc.NewFromFiles(files, sources, dir)
	require.NoError(t, err)
	texts := map[string]string{"the package": of.Doc}
	values := func(list []*doc.Value) {
		for _, v := range list {
			texts[v.Names[0]+" …"] = v.Doc
			for _, s := range v.Decl.Specs {
				if s, is := s.(*ast.ValueSpec); is && s.Names[0].IsExported() {
					texts[s.Names[0].Name] += s.Doc.Text() + s.Comment.Text()
				}
			}
		}
	}
	functions := func(prefix string, list []*doc.Func) {
		for _, f := range list {
			texts[prefix+f.Name] = f.Doc
		}
	}
	values(of.Consts)
	values(of.Vars)
	functions("", of.Funcs)
	for _, typ := range of.Types {
		texts[typ.Name] = typ.Doc
		values(typ.Consts)
		values(typ.Vars)
		functions("", typ.Funcs)
		functions(typ.Name+".", typ.Methods)
		for _, s := range typ.Decl.Specs {
			for _, f := range fieldsOf(s.(*ast.TypeSpec)) {
				for _, n := range f.Names {
					if n.IsExported() {
						texts[typ.Name+"."+n.Name] = f.Doc.Text() + f.Comment.Text()
					}
				}
			}
		}
	}
	return texts
}

// fieldsOf returns the fields of a struct, or the methods of an interface.
func fieldsOf(spec *ast.TypeSpec) []*ast.Field {
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		return typ.Fields.List
	case *ast.InterfaceType:
		return typ.Methods.List
	}
	return nil
}

// literals returns the texts of a Go file that have a space: sentences rather than names.
func literals(source string) string {
	var b strings.Builder
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), []byte(source), nil, 0)
	for {
		_, tok, text := s.Scan()
		if tok == token.EOF {
			return b.String()
		}
		if tok == token.STRING {
			if text, err := strconv.Unquote(text); err == nil && strings.Contains(text, " ") {
				b.WriteString(text + "\n")
			}
		}
	}
}
