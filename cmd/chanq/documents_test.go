package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documents returns the paths of the documents.
func documents(t *testing.T) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// The commands in a block of the documentation marked "run" work, in their order, on a separate file.
func TestTheCommandsOfTheDocumentsRun(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```sh run\n(.*?)^```$")
	word := regexp.MustCompile(`'[^']*'|\S+`)
	ran := 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		db := filepath.Join(t.TempDir(), "shop.db")
		succeed(t, "", "migrate", "--db", db, "orders")
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(b[1]) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				args := word.FindAllString(strings.ReplaceAll(line, " --db shop.db", ""), -1)
				require.Equal(t, "chanq", args[0], "%s: %s", file, line)
				for i := range args {
					args[i] = strings.Trim(args[i], "'")
				}
				succeed(t, "", append(args[1:], "--db", db)...)
				ran++
			}
		}
	}
	require.Greater(t, ran, 5)
}

// Every command that a document names exists, with the flags in the document.
func TestTheCommandsAndFlagsOfTheDocumentsExist(t *testing.T) {
	root := (&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	named := regexp.MustCompile("(?m)(?:`|^\\$ |^)chanq ([a-z]+[^`\n#>|;]*)")
	flag := regexp.MustCompile(`(?:^| )--?([a-z][a-z-]*)`)
	files := documents(t)
	for _, pattern := range []string{"../../*.md", "../../deploy/*.md", "../../deploy/prometheus/*.yml"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	blocks, inline, checked := regexp.MustCompile("(?ms)^```(?:sh|text).*?^```$"), regexp.MustCompile("`chanq [^`]*`"), 0
	for _, file := range files {
		if name := filepath.Base(file); name == "decisions.md" || name == "performance.md" {
			continue // there "chanq pipeline" is the label of a profile
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, part := range append(blocks.FindAllString(string(text), -1), inline.FindAllString(string(text), -1)...) {
			for _, match := range named.FindAllStringSubmatch(part, -1) {
				command, rest, err := root.Find(strings.Fields(match[1]))
				require.NoError(t, err, "%s: chanq %s", file, match[1])
				require.True(t, command != root, "%s: chanq %s", file, match[1])
				if command.HasSubCommands() && len(rest) > 0 {
					require.Regexp(t, "^-", rest[0], "%s: chanq %s", file, match[1])
				}
				for _, name := range flag.FindAllStringSubmatch(match[1], -1) {
					f := command.Flag(name[1])
					if len(name[1]) == 1 {
						f = command.Flags().ShorthandLookup(name[1])
						if f == nil {
							f = command.InheritedFlags().ShorthandLookup(name[1])
						}
					}
					require.NotNil(t, f, "%s: chanq %s has no --%s", file, match[1], name[1])
				}
				checked++
			}
		}
	}
	require.Greater(t, checked, 60)
}
