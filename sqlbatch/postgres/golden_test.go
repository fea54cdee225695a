package postgres_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
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

var states = []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased, sqlbatch.Dead, sqlbatch.Done}

// calls is every statement of a queue, by name.
func calls(q sqlbatch.Queue) map[string]sqlbatch.Statement {
	id := [16]byte{1}
	item := sqlbatch.Item{ID: id, Fence: 7}
	row := sqlbatch.Row{ID: id, Priority: 1, Delay: time.Second, Key: "k", Headers: []byte("h"), Body: []byte("b")}
	calls := map[string]sqlbatch.Statement{
		"enqueue":     q.Enqueue([]sqlbatch.Row{row}),
		"enqueue-new": q.EnqueueNew([]sqlbatch.Row{row}),
		"find":        q.Find([][16]byte{id}, []string{"k"}),
		"claim":       q.Claim(claimOf(10)),
		"claim-blind": q.Claim(sqlbatch.ClaimParams{Rows: 10, Lease: time.Minute, Salt: 1, Blind: true}),
		"next-due":    q.NextDue(),
		"look":        q.Look([][16]byte{id}),
		"problems":    q.Problems(),
		"clock":       q.Clock(),
		"join":        q.Join(sqlbatch.Member{ID: id, Name: "n", Host: "h", Process: 1, For: time.Minute}),
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
	for suffix, q := range map[string]sqlbatch.Queue{"": q, "-in-tx": q.InTx(), "-skip-locked": q.SkipLocked()} {
		calls["ack"+suffix] = q.Ack([]sqlbatch.Item{item})
		calls["archive"+suffix] = q.Archive([]sqlbatch.Item{item})
		calls["nack"+suffix] = q.Nack([]sqlbatch.NackItem{{Item: item, Delay: time.Second, Error: "no"}})
		calls["release"+suffix] = q.Release([]sqlbatch.ReleaseItem{{Item: item}})
		calls["bury"+suffix] = q.Bury([]sqlbatch.BuryItem{{Item: item}})
		calls["extend"+suffix] = q.Extend([]sqlbatch.Item{item}, time.Minute)
		calls["end-after"+suffix] = q.EndAfter([]sqlbatch.Item{item}, time.Minute)
	}
	for _, s := range states {
		calls["peek-"+string(s)] = q.Peek(s, 10)
		calls["purge-"+string(s)] = q.Purge(s, 10, sqlbatch.Window{})
	}
	return calls
}

func TestGolden(t *testing.T) {
	names := sqlbatch.Names{Queue: "orders"}
	golden := map[string]string{}
	for name, st := range calls(postgres.Dialect.Queue(names)) {
		golden[name] = st.Text
	}
	for i, text := range postgres.Dialect.Begin() {
		golden[fmt.Sprintf("migration-begin-%d", i+1)] = text
	}
	for _, m := range postgres.Dialect.Migrations(names) {
		for i, text := range m.Statements {
			golden[fmt.Sprintf("migration-%d-%02d", m.Number, i+1)] = text
		}
	}
	dir := "testdata"
	if update() {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, text := range golden {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+".sql"), []byte(text+";\n"), 0o644))
		}
	}
	for name, text := range golden {
		want, err := os.ReadFile(filepath.Join(dir, name+".sql"))
		require.NoError(t, err)
		require.Equal(t, string(want), text+";\n", "%s: if the change is meant, run with -update and review the file", name)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	require.NoError(t, err)
	require.Len(t, files, len(golden), "a golden file of no statement")
}

func TestTextsDoNotDependOnTheCountOfRows(t *testing.T) {
	q := postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	require.Equal(t, q.Enqueue(make([]sqlbatch.Row, 1)).Text, q.Enqueue(make([]sqlbatch.Row, 1000)).Text)
	require.Equal(t, q.Ack(make([]sqlbatch.Item, 1)).Text, q.Ack(make([]sqlbatch.Item, 1000)).Text)
	require.Equal(t, q.Nack(make([]sqlbatch.NackItem, 1)).Text, q.Nack(make([]sqlbatch.NackItem, 1000)).Text)
}

// Whatever the order in which a caller names its leases, rows are locked in one.
func TestSettlesNameLeasesInIDOrder(t *testing.T) {
	q := postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	a, b := sqlbatch.Item{ID: [16]byte{1}, Fence: 5}, sqlbatch.Item{ID: [16]byte{2}, Fence: 3}
	given := []sqlbatch.Item{b, a}

	require.Equal(t, q.Ack([]sqlbatch.Item{a, b}), q.Ack(given))
	require.Equal(t, q.Archive([]sqlbatch.Item{a, b}), q.Archive(given))
	require.Equal(t, q.Extend([]sqlbatch.Item{a, b}, time.Second), q.Extend(given, time.Second))
	require.Equal(t,
		q.Nack([]sqlbatch.NackItem{{Item: a, Error: "a"}, {Item: b, Delay: 1}}),
		q.Nack([]sqlbatch.NackItem{{Item: b, Delay: 1}, {Item: a, Error: "a"}}))
	require.Equal(t,
		q.Release([]sqlbatch.ReleaseItem{{Item: a, Due: 1}, {Item: b, Due: 2}}),
		q.Release([]sqlbatch.ReleaseItem{{Item: b, Due: 2}, {Item: a, Due: 1}}))
	require.Equal(t,
		q.Bury([]sqlbatch.BuryItem{{Item: a, Error: "a"}, {Item: b}}),
		q.Bury([]sqlbatch.BuryItem{{Item: b}, {Item: a, Error: "a"}}))
	require.Equal(t, q.Cancel([][16]byte{a.ID, b.ID}), q.Cancel([][16]byte{b.ID, a.ID}))
	require.Equal(t,
		q.EnqueueNew([]sqlbatch.Row{{ID: b.ID, Key: "a"}, {ID: a.ID, Key: "b"}}),
		q.EnqueueNew([]sqlbatch.Row{{ID: a.ID, Key: "b"}, {ID: b.ID, Key: "a"}}), "by key: that is what they may wait for")
	require.Equal(t, []sqlbatch.Item{b, a}, given, "the caller's list stays as it is")
}

// PostgreSQL would cut off a longer name without a word, and the tables of one
// queue, or of two, would be one.
func TestNamesOfLongQueuesFitAndDiffer(t *testing.T) {
	long := strings.Repeat("q", 60)
	seen := map[string]bool{}
	for _, queue := range []string{"q", long[:49], long[:50], long + "abc", long + "abd"} {
		for _, m := range postgres.Dialect.Migrations(sqlbatch.Names{Queue: queue}) {
			for _, text := range m.Statements[2 : len(m.Statements)-1] { // the others are about the tables of all queues
				name, _, _ := strings.Cut(text[strings.Index(text, "CREATE"):], " (")
				require.False(t, seen[name], name)
				seen[name] = true
				for i, part := range strings.Split(text, `"`) {
					if i%2 == 1 {
						require.LessOrEqual(t, len(part), 63)
					}
				}
			}
		}
	}
	require.Len(t, seen, 5*9)
}
