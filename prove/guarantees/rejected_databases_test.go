package guarantees

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Databases that Open and Migrate reject.
var rejectedDatabases = []test{
	{"OpenAndMigrateRefuseTablesOfTheOldForm", oldForm},
	{"G01_OpenAndMigrateRefuseADatabaseThatMayLoseCommits", notDurable},
	{"ACheckOfAMigrationChangesNothing", checkedOnly},
}

func checkedOnly(w *world) {
	for _, spec := range []chanq.Spec{{}, {Kind: chanq.KindOrdered, Slots: 4}} {
		name := "work"
		if spec.Kind == chanq.KindOrdered {
			name = "line"
		}
		cfg := chanq.Config{Spec: spec}
		require.NoError(w, chanq.CheckMigrate(w.Soon(), w.Tables(), name, cfg))
		_, err := chanq.StoredConfig(w.Soon(), w.Tables(), name, cfg)
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.NoError(w, chanq.Migrate(w.Soon(), w.Tables(), name, cfg))
		cfg.MaxAttempts = 7
		require.NoError(w, chanq.CheckMigrate(w.Soon(), w.Tables(), name, cfg))
		stored, err := chanq.StoredConfig(w.Soon(), w.Tables(), name, cfg)
		require.NoError(w, err)
		require.Equal(w, 20, stored.MaxAttempts)
		cfg.Kind = chanq.KindPlain + chanq.KindOrdered - stored.Kind // the other one
		require.ErrorIs(w, chanq.CheckMigrate(w.Soon(), w.Tables(), name, cfg), chanq.ErrSpec)
	}
}

// oldForm replaces the live table with one as versions before the first release created it: it
// lacks the same columns.
func oldForm(w *world) {
	q := w.Queue("work", chanq.Config{})
	other := w.Queue("other", chanq.Config{})
	id := testdb.Send(w, other, testdb.Texts("stays")...)[0]
	testdb.Send(w, q, testdb.Texts("of the old form")...)
	for _, text := range []string{
		"DROP TABLE chanq_work",
		"CREATE TABLE chanq_work (id int NOT NULL PRIMARY KEY, fence int NOT NULL)",
	} {
		w.Define(text)
	}
	refused := func(err error) {
		w.Helper()
		require.ErrorContains(w, err, "before the first release")
		require.ErrorContains(w, err, "rename chanq_work, chanq_work_dead and chanq_work_done with their indexes")
		require.NotErrorIs(w, err, chanq.ErrNoSchema, "Migrate is not the remedy")
	}
	_, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{})
	refused(err)
	refused(chanq.Migrate(w.Soon(), w.Tables(), "work", chanq.Config{}))
	_, err = w.DB.ExecContext(w.Soon(), "INSERT INTO chanq_work (id, fence) VALUES (1, 1)")
	require.NoError(w, err, "the table is unchanged")
	w.requireState(testdb.OpenOn[string](w, w.DB, "other", chanq.Config{}), id, chanqadmin.StateReady)

	for _, table := range []string{"chanq_work", "chanq_work__dead", "chanq_work__done"} {
		w.Define("DROP TABLE " + table)
	}
	w.requireState(w.Queue("work", chanq.Config{}), testdb.Send(w, w.Queue("work", chanq.Config{}), testdb.Texts("new")...)[0], chanqadmin.StateReady)
}

// notDurable checks as a session does that confirms commits before they are on disk.
func notDurable(w *world) {
	w.Queue("work", chanq.Config{})
	loosen := map[string]string{
		"sqlite":    "PRAGMA synchronous = NORMAL",
		"postgres":  "SET synchronous_commit = off",
		"sqlserver": "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = FORCED",
	}[w.Engine.Dialect.Name()]
	remedy := map[string]string{
		"sqlite":    "PRAGMA synchronous = FULL",
		"postgres":  "SET synchronous_commit = 'on'",
		"sqlserver": "SET DELAYED_DURABILITY = ALLOWED",
	}[w.Engine.Dialect.Name()]
	if w.Engine.Dialect.Name() == "sqlserver" {
		_, err := w.DB.ExecContext(w.Soon(), loosen) // applies to the whole database and must not be in a batch with other statements
		require.NoError(w, err)
	} else {
		work, later := w.Statements("work").Problems(), w.Statements("later").Problems()
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if testdb.Runs(op, work) || testdb.Runs(op, later) {
				return faultdb.After(loosen)
			}
			return faultdb.Fault{}
		})
	}
	refused := func(err error) {
		w.Helper()
		require.ErrorIs(w, err, chanq.ErrNotDurable)
		require.ErrorContains(w, err, remedy)
		require.ErrorContains(w, err, "Config.Durability")
		var op *chanq.OpError
		require.True(w, errors.As(err, &op))
		require.False(w, op.Unknown)
	}
	_, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{})
	refused(err)
	refused(chanq.Migrate(w.Soon(), w.DB, "later", chanq.Config{}))
	_, err = chanq.Open[string](w.Soon(), w.DB, "later", chanq.Config{})
	require.ErrorIs(w, err, chanq.ErrNoSchema, "no queue was created")

	q := w.Queue("later", chanq.Config{Durability: chanq.DurabilityAsIs})
	testdb.Send(w, q, testdb.Texts("as it is")...)
	_, err = chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{Durability: 2})
	require.ErrorContains(w, err, "Config.Durability is 2")
}
