package sqlserver_test

import (
	"database/sql"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chanq/chanq/internal/testdb/tsqlcheck"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
	"github.com/stretchr/testify/require"
)

// update tells whether to write the golden files: go test ./sqlbatch
// -run Golden -update. The flag may be there already, for another dialect.
var update = func() func() bool {
	if flag.Lookup("update") == nil {
		flag.Bool("update", false, "write the golden files")
	}
	return func() bool { return flag.Lookup("update").Value.String() == "true" }
}()

var orders = sqlbatch.Names{Queue: "orders"}

// serverText is a statement as SQL Server gets it.
type serverText struct{ text, declaration string }

func textOf(t *testing.T, s sqlbatch.Statement) serverText {
	t.Helper()
	require.Equal(t, "sp_executesql", s.Text)
	require.Empty(t, s.Prior)
	out := serverText{text: s.Args[0].(string)}
	if len(s.Args) > 1 {
		out.declaration = s.Args[1].(string)
	}
	return out
}

// calls is every statement of a queue, by name; enqueues of three rungs.
func calls(q sqlbatch.Queue) map[string]sqlbatch.Statement {
	id := [16]byte{1}
	item := sqlbatch.Item{ID: id, Fence: 7}
	calls := map[string]sqlbatch.Statement{
		"find":        q.Find([][16]byte{id}, []string{"k"}),
		"look":        q.Look([][16]byte{id}),
		"claim-fifo":  q.Claim(sqlbatch.ClaimParams{Rows: 10, Lease: time.Minute}),
		"claim-any":   q.Claim(sqlbatch.ClaimParams{Rows: 10, Lease: time.Minute, Order: sqlbatch.OrderAny}),
		"claim-blind": q.Claim(sqlbatch.ClaimParams{Rows: 10, Lease: time.Minute, Blind: true}),
		"next-due":    q.NextDue(),
		"ack":         q.Ack([]sqlbatch.Item{item}),
		"archive":     q.Archive([]sqlbatch.Item{item}),
		"nack":        q.Nack([]sqlbatch.NackItem{{Item: item, Error: "no"}}),
		"release":     q.Release([]sqlbatch.ReleaseItem{{Item: item}}),
		"bury":        q.Bury([]sqlbatch.BuryItem{{Item: item}}),
		"extend":      q.Extend([]sqlbatch.Item{item}, time.Minute),
		"end-after":   q.EndAfter([]sqlbatch.Item{item}, time.Minute),
		"problems":    q.Problems(),
		"clock":       q.Clock(),
		"join":        q.Join(sqlbatch.Member{ID: id, Name: "me"}),
		"leave":       q.Leave(id),
		"members":     q.Members(),
		"version":     q.Version(),
		"record":      q.Record(1),
		"stats":       q.Stats(100),
		"get":         q.Get(id),
		"cancel":      q.Cancel([][16]byte{id}),
		"redrive":     q.Redrive(10, nil, sqlbatch.Window{}),
		"redrive-ids": q.Redrive(0, [][16]byte{id}, sqlbatch.Window{}),
		"pause":       q.Pause(),
		"resume":      q.Resume(),
		"trim":        q.Trim(time.Hour, 10, 0),
	}
	for _, n := range []int{1, 4, 512} {
		calls[fmt.Sprintf("enqueue-%d", n)] = q.Enqueue(make([]sqlbatch.Row, n))
		calls[fmt.Sprintf("enqueue-new-%d", n)] = q.EnqueueNew(make([]sqlbatch.Row, n))
	}
	for _, s := range allStates {
		calls["peek-"+string(s)] = q.Peek(s, 10)
		calls["purge-"+string(s)] = q.Purge(s, 10, sqlbatch.Window{})
	}
	return calls
}

var allStates = []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased, sqlbatch.Dead, sqlbatch.Done}

// goldens is every text of the dialect, by the name of its golden file.
func goldens(t *testing.T) map[string]serverText {
	golden := map[string]serverText{}
	q := sqlserver.Dialect.Queue(orders)
	for name, s := range calls(q) {
		golden[name] = textOf(t, s)
	}
	// How a settle meets rows that are locked is of one pattern: one of each will do.
	items := []sqlbatch.Item{{Fence: 7}}
	golden["ack-in-tx"] = textOf(t, q.InTx().Ack(items))
	golden["ack-in-tx-skip-locked"] = textOf(t, q.InTx().SkipLocked().Ack(items))
	golden["bury-in-tx"] = textOf(t, q.InTx().Bury([]sqlbatch.BuryItem{{Item: items[0]}}))
	for i, text := range sqlserver.Dialect.Begin() {
		golden[fmt.Sprintf("migration-begin-%d", i+1)] = serverText{text: text}
	}
	for _, m := range sqlserver.Dialect.Migrations(orders) {
		for i, text := range m.Statements {
			golden[fmt.Sprintf("migration-%d-%02d", m.Number, i+1)] = serverText{text: text}
		}
	}
	golden["migration-commit"] = serverText{text: sqlserver.Dialect.Commit()}
	return golden
}

func tables(t *testing.T, n sqlbatch.Names) map[string]tsqlcheck.Table {
	var texts []string
	for _, m := range sqlserver.Dialect.Migrations(n) {
		texts = append(texts, m.Statements...)
	}
	tables, err := tsqlcheck.Tables(texts)
	require.NoError(t, err)
	return tables
}

func TestGolden(t *testing.T) {
	dir := "testdata"
	golden := goldens(t)
	if update() {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, s := range golden {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+".sql"), []byte(goldenFile(s)), 0o644))
		}
	}
	for name, s := range golden {
		want, err := os.ReadFile(filepath.Join(dir, name+".sql"))
		require.NoError(t, err)
		require.Equal(t, string(want), goldenFile(s), "%s: if the change is meant, run with -update and review the file", name)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	require.NoError(t, err)
	require.Len(t, files, len(golden), "a golden file of no statement")
}

// goldenFile puts the declaration before the text, a parameter a line would make
// the longest one unreadable.
func goldenFile(s serverText) string {
	if s.declaration == "" {
		return s.text
	}
	return "-- " + s.declaration + "\n" + s.text
}

func TestStatementsPassTheCheck(t *testing.T) {
	tables := tables(t, orders)
	for name, s := range goldens(t) {
		given := tsqlcheck.Given{Parameters: s.declaration, Tables: tables}
		require.NoError(t, tsqlcheck.Check(s.text, given), "%s:\n%s", name, s.text)
	}
	inTx := sqlserver.Dialect.Queue(orders).InTx()
	for _, q := range []sqlbatch.Queue{inTx, inTx.SkipLocked()} {
		for name, call := range calls(q) {
			s := textOf(t, call)
			given := tsqlcheck.Given{Parameters: s.declaration, Tables: tables}
			require.NoError(t, tsqlcheck.Check(s.text, given), "%s in a transaction:\n%s", name, s.text)
		}
	}
}

func TestStatementsInTxLeaveSettingsAndTransactionToTheCaller(t *testing.T) {
	const pins = "SET NOCOUNT, XACT_ABORT ON;\nSET IMPLICIT_TRANSACTIONS OFF;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\nSET ROWCOUNT 0;\n"
	q := sqlserver.Dialect.Queue(orders)
	within := calls(q.InTx().SkipLocked())
	for name, call := range calls(q) {
		alone := textOf(t, call).text
		require.True(t, strings.HasPrefix(alone, pins), "%s:\n%s", name, alone)
		var kept []string
		for line := range strings.Lines(alone) {
			setting := strings.HasPrefix(line, "SET ") && line != "SET ROWCOUNT 0;\n" && line != "SET LOCK_TIMEOUT 0;\n" &&
				strings.HasSuffix(line, ";\n")
			if !setting && !strings.HasPrefix(line, "BEGIN TRANSACTION") && !strings.HasPrefix(line, "COMMIT") {
				kept = append(kept, line)
			}
		}
		require.Equal(t, strings.Join(kept, ""), textOf(t, within[name]).text, name)
		require.Equal(t, call.Args[1:], within[name].Args[1:], name)
	}
	require.Equal(t, q.InTx().Ack(nil), q.InTx().InTx().Ack(nil))
	require.Equal(t, q.Ack(nil), q.SkipLocked().Ack(nil), "outside of a transaction all skip")
	require.Equal(t, q.InTx().SkipLocked().Ack(nil), q.SkipLocked().InTx().Ack(nil))
}

func TestSettlesWaitForLockedRowsInATransactionOfTheCallerAlone(t *testing.T) {
	q := sqlserver.Dialect.Queue(orders)
	skip, wait := calls(q), calls(q.InTx())
	for _, name := range []string{"ack", "archive", "nack", "release", "bury", "extend", "end-after"} {
		alone, within := textOf(t, skip[name]).text, textOf(t, wait[name]).text
		require.Contains(t, alone, "READPAST", name)
		require.Contains(t, alone, "SET LOCK_TIMEOUT 100;\n", name)
		require.NotContains(t, within, "READPAST", name)
		require.NotContains(t, within, "LOCK_TIMEOUT", name)
	}
	require.Contains(t, textOf(t, skip["look"]).text, "SET LOCK_TIMEOUT 0;\n")
}

// A text that says RETURNING where SQL Server wants OUTPUT has to be noticed
// before it meets a server. The share is that of single tokens whose loss the
// check notices; what it does not notice is another correct statement (NOT
// before EXISTS, one condition of several), and the golden files show those.
func TestCheckNoticesALostToken(t *testing.T) {
	const floor = 0.985
	tables := tables(t, orders)
	golden := goldens(t)
	mutants, rejected := 0, 0
	passed := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(golden)) {
		s := golden[name]
		if strings.HasSuffix(name, "-512") {
			continue // the same as -4, at 130 times the length
		}
		given := tsqlcheck.Given{Parameters: s.declaration, Tables: tables}
		for start, end := range tsqlcheck.TokensOf(s.text) {
			mutants++
			if tsqlcheck.Check(s.text[:start]+" "+s.text[end:], given) != nil {
				rejected++
			} else {
				passed[s.text[start:end]]++
			}
		}
	}
	share := float64(rejected) / float64(mutants)
	t.Logf("%d of %d lost tokens noticed (%.2f%%); not: %v", rejected, mutants, 100*share, passed)
	require.Greater(t, mutants, 5000)
	require.GreaterOrEqual(t, share, floor)
}

func TestNamesTheParametersItDeclares(t *testing.T) {
	for name, call := range calls(sqlserver.Dialect.Queue(orders)) {
		if len(call.Args) == 1 {
			continue
		}
		var declared, given []string
		for _, d := range strings.Split(call.Args[1].(string), ", ") {
			declared = append(declared, strings.TrimPrefix(strings.Fields(d)[0], "@"))
		}
		for _, a := range call.Args[2:] {
			named := a.(sql.NamedArg)
			require.True(t, named.Value != nil, "%s: @%s is an untyped NULL, an nvarchar to the driver", name, named.Name)
			require.NotRegexp(t, `^p[0-9]+$`, named.Name)
			given = append(given, named.Name)
		}
		require.Equal(t, declared, given, name)
	}
}
