package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

var processes = []test{
	{"ManyProcessesMayMigrateSimultaneously", migratingProcesses},
}

// task is the database of a process that creates tables.
type task struct{ Engine, Address string }

// migrates is the part of this package's child processes.
const migrates = "migrate"

func migrate(ctx context.Context, t task, _ <-chan string) error {
	engines := testdb.Engines()
	i := slices.IndexFunc(engines, func(e testdb.Engine) bool { return e.Name == t.Engine })
	c, err := engines[i].ConnectTables(t.Address)
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	defer db.Close()
	_, err = chanq.MigrateTables(ctx, db, chanq.Config{}, noteTables(1, 1))
	return errors.Join(err, chanq.Migrate(ctx, db, "work", chanq.Config{}))
}

func migratingProcesses(w *world) {
	if !w.Engine.Shared {
		w.Skipf("SKIPPED: %s cannot be shared by processes", w.Engine.Name)
	}
	w.Open()
	var all []*child.Process
	for range testdb.Of(6, 16) {
		p, err := child.Start(w.Context(), migrates, task{w.Engine.Name, w.Address}, nil)
		require.NoError(w, err)
		all = append(all, p)
	}
	for _, p := range all {
		require.NoError(w, p.Wait())
	}
	testdb.OpenOn[string](w, w.DB, "work", chanq.Config{})
}
