package repository

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documents returns the files of the repository with this ending, by path.
func documents(t *testing.T, ending string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "testdata" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ending) {
			return nil
		}
		text, err := os.ReadFile(path)
		texts[filepath.ToSlash(path)] = string(text)
		return err
	}))
	return texts
}

// A user who follows any text installs in the same way. prove/release runs these commands.
func TestTheTextsInstallInTheSameWay(t *testing.T) {
	t.Chdir(root)
	const get, install = "go get github.com/chanq/chanq@latest", "go install github.com/chanq/chanq/cmd/chanq@latest"
	texts := documents(t, ".md")
	for file, text := range documents(t, ".go") {
		if !strings.HasPrefix(file, "prove/re") { // tests of these commands
			texts[file] = text
		}
	}
	command := regexp.MustCompile(`\bgo (?:get|install|run) github\.com/chanq/chanq[\w/]*(@\w+)?`)
	for file, text := range texts {
		for _, found := range command.FindAllStringSubmatch(text, -1) {
			require.Equal(t, "@latest", found[1], "%s: %s", file, found[0])
		}
	}
	for _, file := range []string{"README.md", "docs/start/getting-started.md"} {
		require.Contains(t, texts[file], "\n"+get+"\n", file)
		require.Contains(t, texts[file], "\n"+install, file)
	}
	require.Contains(t, texts["chanq.go"], get+".\n")
	require.Contains(t, texts["cmd/chanq/main.go"], install+".\n")
	require.Contains(t, texts["docs/reference/cli.md"], "`"+install+"`")
}

// Go code in documents is part of the code that tests compile and run.
func TestTheDocumentsQuoteTheirExamples(t *testing.T) {
	t.Chdir(root)
	var sources []string
	for _, pattern := range []string{"example*_test.go", "examples/*/*.go", "*/example*_test.go", "prove/ormtx/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			sources = append(sources, "\n"+unindented(string(source)))
		}
	}
	blocks := 0
	for file, text := range documents(t, ".md") {
		for _, block := range regexp.MustCompile("(?s)\n```go\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
			blocks++
			quoted := func(source string) bool { return quotes(source, unindented(block[1])) }
			require.True(t, slices.ContainsFunc(sources, quoted), "%s: no example has this:\n%s", file, block[1])
		}
	}
	require.Greater(t, blocks, 20)
}

// The package comment begins with code of an example.
func TestThePackageCommentBeginsWithALoopOverAChannel(t *testing.T) {
	t.Chdir(root)
	source, err := os.ReadFile("chanq.go")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(source), ":\n//\n//\t")
	require.True(t, found)
	block, _, found = strings.Cut(block, "\n//\n// ")
	require.True(t, found)
	block = regexp.MustCompile(`(?m)^//\t?`).ReplaceAllString(block, "")
	require.Contains(t, unindented(string(example)), "\n"+unindented(block)+"\n")
	require.Contains(t, block, "producer.C() <- ")
	require.Contains(t, block, "range consumer.C()")
}

// quotes reports whether a block is part of a source. A block with a line of … is a sketch: the source contains
// its lines in the same order, with other lines between them.
func quotes(source, block string) bool {
	if !strings.Contains("\n"+block, "\n…\n") {
		return strings.Contains(source, "\n"+block)
	}
	for line := range strings.Lines(block) {
		if line == "…\n" {
			continue
		}
		_, rest, found := strings.Cut(source, "\n"+line)
		if !found {
			return false
		}
		source = "\n" + rest
	}
	return true
}

// unindented returns a text without leading tabs.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}

// Each block names its language, so that the tests that run blocks find theirs.
func TestEachBlockNamesItsLanguage(t *testing.T) {
	t.Chdir(root)
	languages := []string{"go", "sh", "sql", "yaml", "text"}
	for file, text := range documents(t, ".md") {
		inside := false
		for _, fence := range regexp.MustCompile("(?m)^```(.*)$").FindAllStringSubmatch(text, -1) {
			if inside = !inside; inside {
				language, _, _ := strings.Cut(fence[1], " ")
				require.Contains(t, languages, language, "%s: ```%s", file, fence[1])
			}
		}
		require.False(t, inside, "%s: a block without an end", file)
	}
}

// A line of text directly after a table is rendered as a row of the table.
func TestTablesEndWithAnEmptyLine(t *testing.T) {
	t.Chdir(root)
	code := regexp.MustCompile("(?ms)^```.*?^```$")
	glued := regexp.MustCompile(`(?m)^\|.*\n[^|\n<].*`)
	for file, text := range documents(t, ".md") {
		require.Empty(t, glued.FindAllString(code.ReplaceAllString(text, ""), -1), file)
	}
}

func TestTheDocumentsLinkToWhatIsThere(t *testing.T) {
	t.Chdir(root)
	texts := documents(t, ".md")
	require.Greater(t, len(texts), 10)
	code := regexp.MustCompile("(?ms)^```.*?^```$")
	for file, text := range texts {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			target, section, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			target = filepath.ToSlash(filepath.Join(filepath.Dir(file), target))
			if link[1][0] == '#' {
				target = file
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", file, link[1])
			if section != "" {
				require.Contains(t, sections(texts[target]), section, "%s links to %s", file, link[1])
			}
		}
	}
	for file := range texts {
		index := "docs/README.md"
		if strings.HasPrefix(file, "docs/internals/") && file != "docs/internals/README.md" {
			index = "docs/internals/README.md"
		}
		if page, is := strings.CutPrefix(file, filepath.Dir(index)+"/"); is && file != index {
			require.Contains(t, texts[index], "("+page+")", "%s does not list %s", index, page)
		}
	}
}

// sections returns the anchors of the headings of a document.
func sections(text string) (names []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Tests that documents name exist, and each guarantee with tests has a row in the table of reliability. A name
// that ends in … is a prefix.
func TestTheDocumentsNameTestsThatAreThere(t *testing.T) {
	t.Chdir(root)
	beginning := regexp.MustCompile(`(?m)^func (?:Test|Fuzz|Benchmark)\w+|"G\d\d_\w+`)
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark|G\\d\\d_)[A-Za-z0-9_]+)(…?)`")
	tests, checked := map[string]bool{}, 0
	for _, text := range documents(t, ".go") {
		for _, name := range beginning.FindAllString(text, -1) {
			tests[strings.TrimPrefix(strings.TrimPrefix(name, "func "), `"`)] = true
		}
	}
	texts := documents(t, ".md")
	for file, text := range texts {
		for _, name := range named.FindAllStringSubmatch(text, -1) {
			checked++
			require.True(t, isThere(tests, name), "%s names %s", file, name[0])
		}
	}
	require.Greater(t, checked, 100)
	for test := range tests {
		if guarantee, _, found := strings.Cut(test, "_"); found && strings.HasPrefix(guarantee, "G") {
			told := strings.Contains(texts["docs/internals/reliability.md"], " | `"+guarantee+"_*`")
			require.True(t, told, "reliability has no row of %s", test)
		}
	}
}

// isThere reports whether a name, or a prefix if it ends in …, matches one of the tests.
func isThere(tests map[string]bool, name []string) bool {
	begins := func(test string) bool { return strings.HasPrefix(test, name[1]) }
	return tests[name[1]] || name[2] != "" && slices.ContainsFunc(slices.Collect(maps.Keys(tests)), begins)
}

// TestEachFaultHasATest: each row of docs/internals/faults.md names existing tests.
func TestEachFaultHasATest(t *testing.T) {
	t.Chdir(root)
	text, err := os.ReadFile("docs/internals/faults.md")
	require.NoError(t, err)
	tests := map[string]bool{}
	for _, source := range documents(t, "_test.go") {
		for _, name := range regexp.MustCompile(`(?m)(?:^func |")([A-Z]\w+)`).FindAllStringSubmatch(source, -1) {
			tests[name[1]] = true
		}
	}
	rows := 0
	for _, row := range regexp.MustCompile(`(?m)^\| .* \| ([^|]*) \|$`).FindAllStringSubmatch(string(text), -1) {
		if row[1] == "tests" || row[1] == "test" {
			continue
		}
		rows++
		names := regexp.MustCompile("`(\\w+)(…?)`").FindAllStringSubmatch(row[1], -1)
		require.NotEmpty(t, names, row[0])
		for _, name := range names {
			require.True(t, isThere(tests, name), "%s names %s", row[0], name[0])
		}
	}
	require.Greater(t, rows, 50)
}

// Each function and file that ARCHITECTURE.md names in a row exists.
func TestTheArchitectureNamesWhatIsThere(t *testing.T) {
	t.Chdir(root)
	text := documents(t, "ARCHITECTURE.md")["ARCHITECTURE.md"]
	sources := documents(t, ".go")
	declared := map[string]bool{} // also methods, as type.method
	declaration := regexp.MustCompile(`(?m)^(?:func (?:\(\w* ?\*?(\w+)[^)]*\) )?(\w+)|type (\w+)|\t([A-Z]\w*)(?:, [A-Z]\w*)* +[\w*.\[\]]+)`)
	for _, source := range sources {
		for _, match := range declaration.FindAllStringSubmatch(source, -1) {
			name := match[2] + match[3] + match[4]
			declared[name], declared[match[1]+"."+name] = true, true
		}
	}
	there := func(name string) bool {
		parts := strings.Split(name, ".")
		last := parts[len(parts)-1]
		if len(parts) == 1 {
			return declared[name]
		}
		of := parts[len(parts)-2]
		_, err := os.Stat("internal/" + of)
		return declared[of+"."+last] || err == nil && declared[last] || last[0] < 'a' && declared["."+last]
	}
	names := 0
	for _, row := range regexp.MustCompile(`(?m)^\|.*\|$`).FindAllString(text, -1) {
		for _, match := range regexp.MustCompile("`([A-Za-z_./]+)`").FindAllStringSubmatch(row, -1) {
			names++
			name := match[1]
			if _, err := os.Stat(name); err == nil {
				continue
			}
			if strings.HasSuffix(name, ".go") {
				found := func(path string) bool { return strings.HasSuffix(path, "/"+name) }
				require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(sources)), found), "%s in: %s", name, row)
				continue
			}
			require.True(t, there(name), "%s in: %s", name, row)
		}
	}
	require.Greater(t, names, 90)
}

// A browser renders no picture that is not well-formed, and clips text beyond its edge. Hand-written pictures
// have a title, a viewBox and no script.
func TestThePicturesAreWellFormed(t *testing.T) {
	t.Chdir(root)
	pictures := documents(t, ".svg")
	require.Contains(t, pictures, "docs/pictures/way.svg")
	for file, text := range pictures {
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, file)
		}
		if filepath.Dir(file) == "docs/pictures" {
			require.Regexp(t, `^<svg [^>]*viewBox="0 0 \d+ \d+"[^>]*>\n<title>[^<]+</title>`, text, file)
			require.NotContains(t, text, "<script", file)
		}
	}
}
