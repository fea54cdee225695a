package mssqltest_test

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/parser"
	"github.com/stretchr/testify/require"
)

// Scripts of the five articles on which chanq is based, statement by statement as the articles have them; only their
// comments are reworded.
//
//go:embed testdata/articles/*.sql
var articles embed.FS

// articleBatches reads a script and splits it at its GO lines.
func articleBatches(t testing.TB, name string) []string {
	t.Helper()
	script, err := articles.ReadFile("testdata/articles/" + name)
	require.NoError(t, err)
	var batches []string
	var batch strings.Builder
	for line := range strings.Lines(string(script) + "\nGO\n") {
		if !strings.EqualFold(strings.TrimSpace(line), "GO") {
			batch.WriteString(line)
			continue
		}
		if strings.TrimSpace(batch.String()) != "" {
			batches = append(batches, batch.String())
		}
		batch.Reset()
	}
	return batches
}

// article reads a script that is one batch.
func article(t testing.TB, name string) string {
	t.Helper()
	batches := articleBatches(t, name)
	require.Len(t, batches, 1)
	return batches[0]
}

// The result of the emulator's parser for each script: the statements of each batch, and the table hints, because a
// parser that loses a hint silently loses the point of the article. The hints are written without commas in articles
// 001 and 003, and a statement of 000 begins in the middle of a line.
func TestArticleScriptsParse(t *testing.T) {
	t.Parallel()
	poll := "DeclareVariable BeginTransaction Select Print WaitFor Update CommitTransaction"
	scripts := map[string]struct {
		batches []string
		hints   string
	}{
		"000_table.sql":              {batches: []string{"CreateTable Insert"}},
		"000_poll_without_hints.sql": {batches: []string{poll}},
		"000_poll_with_hints.sql":    {batches: []string{poll}, hints: "UpdLock ReadPast"},
		"000_update_top.sql":         {batches: []string{"Update"}, hints: "ReadPast"},
		"001_table.sql":              {batches: []string{"CreateTable"}},
		"001_dequeue_batch.sql":      {batches: []string{"CreateProcedure"}, hints: "UpdLock Rowlock ReadPast"},
		"002_queue.sql": {
			batches: []string{
				"CreateSchema", "CreateTable", "CreateView", "CreateProcedure", "CreateProcedure", "CreateProcedure",
			},
			hints: "ReadPast",
		},
		"002_test.sql":     {batches: []string{"DeclareVariable" + strings.Repeat(" Execute", 14)}},
		"002_cleanup.sql":  {batches: []string{"DropProcedure DropProcedure DropProcedure DropView DropTable DropSchema"}},
		"003_table.sql":    {batches: []string{"CreateTable"}},
		"003_enqueue.sql":  {batches: []string{"CreateProcedure"}},
		"003_dequeue.sql":  {batches: []string{"CreateProcedure"}, hints: "Rowlock ReadPast"},
		"003_complete.sql": {batches: []string{"CreateProcedure"}},
		"004_table.sql": {
			batches: []string{"PredicateSet", "PredicateSet", "PredicateSet", "CreateTable", "PredicateSet"},
		},
		"004_get_job.sql": {
			batches: []string{"PredicateSet", "PredicateSet", "AlterProcedure"},
			hints:   "UpdLock ReadPast",
		},
	}
	files, err := fs.ReadDir(articles, "testdata/articles")
	require.NoError(t, err)
	for _, f := range files {
		require.Contains(t, scripts, f.Name(), "every script is checked")
	}
	hint := regexp.MustCompile(`"HintKind": "(\w+)"`)
	for name, want := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var batches, hints []string
			for _, batch := range articleBatches(t, name) {
				script, err := parser.Parse(t.Context(), strings.NewReader(batch))
				require.NoError(t, err)
				var statements []string
				for _, b := range script.Batches {
					for _, s := range b.Statements {
						kind := strings.TrimPrefix(fmt.Sprintf("%T", s), "*ast.")
						statements = append(statements, strings.TrimSuffix(kind, "Statement"))
					}
				}
				batches = append(batches, strings.Join(statements, " "))
				tree, err := parser.MarshalScript(script)
				require.NoError(t, err)
				for _, m := range hint.FindAllSubmatch(tree, -1) {
					hints = append(hints, string(m[1]))
				}
			}
			require.Equal(t, want.batches, batches)
			require.Equal(t, want.hints, strings.Join(hints, " "))
		})
	}
}
