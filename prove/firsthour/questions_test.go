package main

import (
	"bytes"
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

// The answer counts the rows of a question's parts, and of these only those that it names.
func TestAQuestionIsAnsweredByItsRowsAlone(t *testing.T) {
	r := newReport(t.Context(), &bytes.Buffer{})
	q := question{parts: []string{"suite", "behaviours"}, rows: "optimized"}
	r.of("suite").compare("the tests, row versions on", "1", "1")
	require.Equal(t, "not asked: suite has not run; behaviours has not run", r.answer(q))
	r.begin("suite")
	require.Equal(t, "not asked: behaviours has not run", r.answer(q))
	require.Equal(t, "not of this version, or not with these options", r.answer(question{parts: []string{"suite"}, rows: "optimized"}))
	r.of("suite").compare("the tests, optimized locking", "1", "1")
	require.Equal(t, "1 as expected; not asked: behaviours has not run", r.answer(q))
	r.of("behaviours").compare("optimized: a claim", "1", "1")
	require.Equal(t, "2 as expected", r.answer(q))
	r.of("behaviours").compare("optimized: another", "1", "2")
	require.Equal(t, "**DIFFERS** in 1 of 3 comparisons", r.answer(q))
	require.Equal(t, "not asked by this command", r.answer(question{}))
}
