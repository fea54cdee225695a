package guarantees

import (
	"context"
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

var processes = []test{
	{"ManyProcessesMayMigrateSimultaneously", migratingProcesses},
}

// migrates is the part of this package's child processes.
const migrates = "migrate"

func migrate(ctx context.Context, p testdb.Place, _ <-chan string) error {
	db, err := p.Open()
	if err != nil {
		return err
	}
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
		p, err := child.Start(w.Context(), migrates, w.Place(), nil)
		require.NoError(w, err)
		all = append(all, p)
	}
	for _, p := range all {
		require.NoError(w, p.Wait())
	}
	testdb.OpenOn[string](w, w.DB, "work", chanq.Config{})
}
