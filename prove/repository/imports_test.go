package repository

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayImport is the architecture: the packages of chanq that each package may import, from the lowest to the highest. An import
// that is not listed here needs its reason in the commit that adds it.
var mayImport = map[string]struct {
	role    string
	imports []string
}{
	"internal/base":    {"the local time, goroutines, calls of the user's functions, events, what is reported", nil},
	"internal/order":   {"keys in order, without I/O, clock or goroutine", []string{"sqlbatch"}},
	"internal/session": {"pinned connections of a *sql.DB", []string{"internal/base", "sqlbatch"}},
	"internal/text":    {"JSON in the encodings of other programs", nil},
	"internal/batch":   {"group commit, repetition until the outcome is known, isolation of items that fail", []string{"internal/base", "sqlbatch"}},
	// It fills results of package order, so that no row is copied. It also determines the dialect of a database, for packages
	// that do not open a queue.
	"internal/table":  {"the statements of a queue, and their columns", []string{"internal/base", "internal/order", "internal/session", "sqlbatch", "sqlbatch/postgres", "sqlbatch/sqlite", "sqlbatch/sqlserver"}},
	"internal/notify": {"waking idle consumers, of this process and of others", []string{"internal/base", "sqlbatch"}},
	// A lease on an ordered queue contains the message that package order tracks.
	"internal/lease":   {"the states of one delivery", []string{"internal/base", "internal/batch", "internal/order", "sqlbatch"}},
	"internal/send":    {"messages become INSERTs", []string{"internal/base", "internal/batch", "internal/notify", "internal/session", "internal/table", "sqlbatch"}},
	"internal/history": {"what a program does with a queue, for operators", []string{"internal/base", "internal/batch", "internal/table", "sqlbatch"}},
	"internal/settle":  {"settles and extensions become statements", []string{"internal/base", "internal/batch", "internal/lease", "internal/table", "sqlbatch"}},
	"internal/claim":   {"which messages to lease, and when", []string{"internal/base", "internal/batch", "internal/lease", "internal/notify", "internal/order", "internal/table", "sqlbatch"}},
	"internal/consume": {"one consumer: its parts, its leases, its channel", []string{"internal/base", "internal/batch", "internal/claim", "internal/lease", "internal/notify", "internal/session", "internal/settle", "internal/table", "sqlbatch"}},

	// Operators run their own statements, on the sessions that producers and consumers share.
	"chanqadmin": {"a queue for its operators", []string{"", "internal/base", "internal/batch", "internal/session", "internal/table", "sqlbatch"}},

	// A lease that waits between the channel of its shard and that of all shards is extended as if no reader had taken it.
	"chanqshards":   {"one queue over several databases", []string{"", "chanqadmin", "internal/lease"}},
	"chanqjobs":     {"kinds of jobs, their handlers and channels, batches, parts of a program", []string{"", "chanqadmin"}},
	"chanqcron":     {"schedules", []string{""}},
	"chanqtopic":    {"messages for every queue that subscribes", []string{""}},
	"chanqcodec":    {"compression and encryption of bodies", []string{""}},
	"chanqprobe":    {"probes for a process manager", []string{""}},
	"chanqfindings": {"what is wrong with a queue", []string{"", "chanqadmin", "sqlbatch"}},
	"chanqweb":      {"the page for operators", []string{"", "chanqadmin", "chanqcron", "chanqfindings", "chanqjobs", "sqlbatch"}},
	"embedded":      {"SQLite with nothing to install, and its Notifier", []string{"", "internal/notify"}},
	"pgnotify":      {"the Notifier of PostgreSQL", []string{"", "internal/base", "internal/notify"}},
	"mssqlnotify":   {"the Notifier of SQL Server", []string{"", "internal/base", "internal/session", "sqlbatch", "sqlbatch/sqlserver"}},

	"chanqtest":        {"tests of users: databases, time travel, crashes", []string{"", "chanqadmin", "chanqjobs", "embedded", "embedded/goclock"}},
	"embedded/goclock": {"the clock of SQLite in bubbles", nil},
}

func TestPackagesImportOnlyWhatIsBelowThem(t *testing.T) {
	t.Chdir(root)
	const module = "github.com/chanq/chanq"
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		require.NoError(t, decoder.Decode(&p))
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		may, known := mayImport[name]
		if !known {
			require.False(t, strings.HasPrefix(name, "internal/"), "package %s is not in the table of imports: add it with its role", name)
			continue
		}
		seen[name] = true
		for _, path := range p.Imports {
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			of := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
			require.True(t, slices.Contains(may.imports, of),
				"%s (%s) must not import %q. What it needs from there belongs to a package below both, or comes to it as a function or an interface of its own", name, may.role, of)
		}
	}
	for name := range mayImport {
		require.True(t, seen[name], "there is no package %s", name)
	}
}

// mssqltest can be used without chanq, and no program that uses chanq contains it.
func TestTheEmulatorStandsAlone(t *testing.T) {
	t.Chdir(root)
	const module, emulator = "github.com/chanq/chanq", "github.com/chanq/chanq/mssqltest"
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...").Output()
	require.NoError(t, err)
	of := func(path, tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") }
	seen := 0
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p struct {
			ImportPath, Name                   string
			Imports, TestImports, XTestImports []string
		}
		require.NoError(t, decoder.Decode(&p))
		if of(p.ImportPath, emulator) {
			seen++
			for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				require.True(t, !of(path, module) || of(path, emulator), "%s imports %s", p.ImportPath, path)
			}
			continue
		}
		if of(p.ImportPath, module+"/prove") || of(p.ImportPath, module+"/bench") {
			continue // programs of this repository
		}
		for _, path := range p.Imports {
			require.False(t, of(path, emulator), "%s imports %s, outside of its tests", p.ImportPath, path)
		}
	}
	require.Greater(t, seen, 4)
}
