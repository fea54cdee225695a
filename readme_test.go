package chanq_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What README has in Go is a part of what the tests compile and run.
func TestTheReadmeQuotesItsExamples(t *testing.T) {
	var sources strings.Builder
	for _, pattern := range []string{"example*_test.go", "examples/*/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			sources.WriteString(unindented(string(source)))
		}
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)\n```go\n(.*?)```\n").FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.True(t, strings.Contains(sources.String(), "\n"+unindented(block[1])), "no example has this:\n%s", block[1])
	}
}

// unindented is a text whose lines begin with their first letter.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}

func TestTheReadmeLinksToWhatIsThere(t *testing.T) {
	for _, file := range []string{"README.md", "docs/operations.md", "docs/guarantees.md", "docs/performance.md", "docs/reliability.md", "docs/sqlserver.md", "docs/decisions.md", "SECURITY.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			target, section, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			target = filepath.Join(filepath.Dir(file), target)
			if link[1][0] == '#' {
				target = file
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", file, link[1])
			if section != "" {
				require.Contains(t, sections(t, target), section, "%s links to %s", file, link[1])
			}
		}
	}
}

// sections are the names by which links find the headings of a document.
func sections(t *testing.T, file string) (names []string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
