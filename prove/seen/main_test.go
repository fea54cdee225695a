package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// document is the real one: the tool has to find its way in that.
const document = "../../docs/sqlserver.md"

func results(t *testing.T, name string, tests map[string]string) string {
	var b strings.Builder
	for test, action := range tests {
		b.WriteString(`{"Time":"2026-01-02T03:04:05Z","Action":"run","Test":"` + test + `"}` + "\n")
		b.WriteString(`{"Time":"2026-01-02T03:04:05Z","Action":"` + action + `","Test":"` + test + `"}` + "\n")
	}
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// copied returns a copy of the document and what the tool makes of it.
func seen(t *testing.T, paths ...string) string {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "sqlserver.md")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NoError(t, run(append([]string{path}, paths...)))
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestWhatWasSeenIsWrittenIntoTheDocument(t *testing.T) {
	const order, atomic = "TestSQLServer/G10_OneProducersMessagesComeInTheirOrder", "TestStatements/sqlserver/EnqueueIsAllOrNothing"
	text := seen(t,
		results(t, "sqlserver-2022-on.json", map[string]string{order: "pass", atomic: "fail"}),
		results(t, "sqlserver-2022-off.json", map[string]string{order: "pass", atomic: "pass", order + "/part": "fail"}),
		results(t, "sqlserver-2017-off.json", map[string]string{order: "pass"}))
	require.Contains(t, text, "| 2017 | off | 2026-01-02 | 1 | 0  |\n| 2022 | off | 2026-01-02 | 2 | 0  |\n| 2022 | on | 2026-01-02 | 1 | 1 `EnqueueIsAllOrNothing` |\n")
	require.Contains(t, text, "`G10_OneProducersMessagesComeInTheirOrder` | yes: 2017, 2022 |\n")
	require.Contains(t, text, "`EnqueueIsAllOrNothing` | fails: 2022 with snapshots on |\n")
	require.Contains(t, text, "`TestReadPastWaitsForATableLock`; page locks do not exist there | no |\n", "what a real server is not asked")
}

func TestALaterRunReplacesWhatWasSeen(t *testing.T) {
	const order = "TestSQLServer/G10_OneProducersMessagesComeInTheirOrder"
	first := seen(t, results(t, "sqlserver-2022-on.json", map[string]string{order: "fail"}))
	path := filepath.Join(t.TempDir(), "sqlserver.md")
	require.NoError(t, os.WriteFile(path, []byte(first), 0o600))
	require.NoError(t, run([]string{path, results(t, "sqlserver-2022-on.json", map[string]string{order: "pass"})}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, seen(t, results(t, "sqlserver-2022-on.json", map[string]string{order: "pass"})), string(text))
}

func TestResultsThatSayNothingAreRefused(t *testing.T) {
	require.ErrorContains(t, run([]string{document}), "usage")
	for name, tests := range map[string]map[string]string{
		"sqlserver-2022-on.json":  {"TestStatements/stand-in/EnqueueIsAllOrNothing": "pass"},
		"sqlserver-2022-off.json": {"TestSQLServer/X": "skip"},
		"other.json":              {"TestSQLServer/X": "pass"},
	} {
		require.Error(t, run([]string{document, results(t, name, tests)}), name)
	}
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	_, err = fill([]byte("# Another document\n"), nil)
	require.ErrorContains(t, err, "marks")
	require.NotContains(t, string(text), "2026-01-02", "nothing was written")
}
