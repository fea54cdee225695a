package suite

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var update = flag.Bool("update", false, "write the golden files")

// Orders are the names that goldens and most tests use.
var Orders = sqlbatch.Names{Queue: "orders"}

// Golden compares every text of a dialect with its file in testdata. Write intended changes with go
// test ./sqlbatch/... -run Golden -update, and review them like code. Statements with the same text
// share one file, with the shortest of their names.
//
// testdata/ordered has the texts that only ordered queues have, or that differ there.
func Golden(t *testing.T, d sqlbatch.Dialect) {
	texts := Goldens(d, Orders)
	compare(t, "testdata", texts)
	if !HasOrdered(d) {
		return
	}
	plain := map[string]bool{}
	for _, text := range texts {
		plain[text] = true
	}
	ordered := Goldens(d, Ordered)
	maps.DeleteFunc(ordered, func(_, text string) bool { return plain[text] })
	compare(t, filepath.Join("testdata", "ordered"), ordered)
}

// compare compares texts with the files of a folder, or writes the files.
func compare(t *testing.T, folder string, texts map[string]string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		old, err := filepath.Glob(filepath.Join(folder, "*.sql"))
		require.NoError(t, err)
		for _, file := range old {
			require.NoError(t, os.Remove(file))
		}
		for name, text := range texts {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name+".sql"), []byte(text), 0o644))
		}
	}
	for name, text := range texts {
		want, err := os.ReadFile(filepath.Join(folder, name+".sql"))
		require.NoError(t, err)
		require.Equal(t, string(want), text, "%s: if the change is meant, run with -update and review the file", name)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.sql"))
	require.NoError(t, err)
	require.Len(t, files, len(texts), "a golden file of no statement")
}

// Goldens returns the texts of a dialect by the names of their files.
func Goldens(d sqlbatch.Dialect, n sqlbatch.Names) map[string]string {
	all := map[string]string{}
	for name, st := range goldenCalls(d.Queue(n)) {
		all[name] = script(Texts(st)...)
	}
	if vacuum := d.Queue(n).Vacuum(); vacuum.Text != "" {
		all["vacuum"] = script(vacuum.Text)
	}
	// Only plain queues have a server-side wait.
	if watch := d.Watch([]sqlbatch.Watched{{Names: n}}, time.Millisecond, time.Second); n.Slots == 0 && watch.Text != "" {
		all["watch"] = script(Texts(watch)...)
	}
	for i, text := range d.Begin() {
		all[fmt.Sprintf("migration-begin-%d", i+1)] = script(text)
	}
	for _, m := range d.Migrations(n) {
		for i, f := range m.Formers {
			all[fmt.Sprintf("migration-%d-former-%d", m.Number, i+1)] = script(append([]string{f.Ask}, f.Add...)...)
		}
		for i, text := range m.Statements {
			all[fmt.Sprintf("migration-%d-%02d", m.Number, i+1)] = script(text)
		}
	}
	for i, text := range d.View(n) {
		all[fmt.Sprintf("view-%d", i+1)] = script(text)
	}
	for i, text := range d.Procedures(n) {
		all[fmt.Sprintf("procedures-%d", i+1)] = script(text)
	}
	all["migration-commit"] = script(d.Commit())

	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return (len(a)-len(b))*1000 + strings.Compare(a, b) })
	seen, distinct := map[string]bool{}, map[string]string{}
	for _, name := range names {
		if !seen[all[name]] {
			distinct[name] = all[name]
		}
		seen[all[name]] = true
	}
	return distinct
}

// goldenCalls returns Calls, drops, enqueues of several sizes, and settles of all forms.
func goldenCalls(q sqlbatch.Queue) map[string]sqlbatch.Statement {
	calls := Calls(q, "a")
	for i, st := range q.Drop() {
		calls[fmt.Sprintf("drop-%d", i+1)] = st
	}
	past := ClaimOf(1)
	past.PastReaders = true
	calls["claim-past-readers"] = q.Claim(past)
	for _, n := range []int{4, 512} {
		calls[fmt.Sprintf("enqueue-%d", n)] = q.Enqueue(make([]sqlbatch.Row, n))
		calls[fmt.Sprintf("enqueue-new-%d", n)] = q.EnqueueNew(make([]sqlbatch.Row, n))
	}
	for name, st := range Settles(q.SkipLocked(), sqlbatch.Item{Fence: 7}) {
		calls[name+"-skip-locked"] = st
	}
	items := []sqlbatch.Item{{Fence: 7}}
	for form, q := range map[string]sqlbatch.Queue{"-in-tx": q.InTx(), "-in-own-tx": q.InOwnTx(), "-in-own-tx-skip-locked": q.InOwnTx().SkipLocked()} {
		calls["ack"+form], calls["archive"+form] = q.Ack(items), q.Archive(items)
	}
	return calls
}

// script joins texts as a file has them: the parameter declaration for sp_executesql, as a comment,
// and each statement with its end.
func script(texts ...string) string {
	var b strings.Builder
	for i, text := range texts {
		switch {
		case text == "sp_executesql":
		case strings.HasPrefix(text, "@"): // follows the statement that it belongs to
			was := b.String()
			b.Reset()
			b.WriteString("-- " + text + "\n" + was)
		case strings.HasSuffix(text, "\n"):
			b.WriteString(text)
		default:
			if i > 0 {
				b.WriteString("\n")
			}
			b.WriteString(text + ";\n")
		}
	}
	return b.String()
}
