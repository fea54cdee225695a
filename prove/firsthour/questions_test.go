package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// go run ./prove/firsthour -list prints the list for the document.
func TestTheDocumentHasTheListOfTheReport(t *testing.T) {
	root, err := checkout()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "internals", "sqlserver-inside.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## To be verified first on Microsoft's engine\n")
	section, _, _ = strings.Cut(section, "\n## ")
	require.Contains(t, section, "\n\n"+list())
	require.NotContains(t, strings.Replace(section, list(), "", 1), "\n1. ", "one list only")
}

// A question names parts that exist, so that it gets an answer.
func TestEachQuestionIsAnsweredByParts(t *testing.T) {
	for _, q := range questions {
		for _, part := range q.parts {
			require.Contains(t, titles, part, q.title)
		}
	}
	for _, name := range partNames() {
		require.Contains(t, titles, name)
	}
}
