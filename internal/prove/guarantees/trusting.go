package guarantees

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
)

// What Open and Migrate refuse.
var trusting = []test{
	{"OpenAndMigrateRefuseTablesOfTheOldForm", oldForm},
	{"G01_OpenAndMigrateRefuseADatabaseThatMayLoseCommits", notDurable},
}

// oldForm puts a table in the place of the live one as versions before the first
// release made it: what it lacks is what they lacked.
func oldForm(w *world) {
	q := w.queue("work", chanq.Config{})
	other := w.queue("other", chanq.Config{})
	id := send(w, other, texts("stays")...)[0]
	send(w, q, texts("of the old form")...)
	for _, text := range []string{
		"DROP TABLE chanq_work",
		"CREATE TABLE chanq_work (id int NOT NULL PRIMARY KEY, fence int NOT NULL)",
	} {
		_, err := w.db.ExecContext(w.soon(), text)
		require.NoError(w, err)
	}
	refused := func(err error) {
		w.Helper()
		require.ErrorContains(w, err, "before the first release")
		require.ErrorContains(w, err, "drop or rename chanq_work, chanq_work_dead and chanq_work_done")
		require.NotErrorIs(w, err, chanq.ErrNoSchema, "migrating is no remedy")
	}
	_, err := chanq.Open[string](w.soon(), w.db, "work", chanq.Config{})
	refused(err)
	refused(chanq.Migrate(w.soon(), w.db, "work", chanq.Config{}))
	_, err = w.db.ExecContext(w.soon(), "INSERT INTO chanq_work (id, fence) VALUES (1, 1)")
	require.NoError(w, err, "nothing was changed")
	w.requireState(openOn[string](w, w.db, "other", chanq.Config{}), id, chanq.StateReady)

	for _, table := range []string{"chanq_work", "chanq_work_dead", "chanq_work_done"} {
		_, err := w.db.ExecContext(w.soon(), "DROP TABLE "+table)
		require.NoError(w, err)
	}
	w.requireState(w.queue("work", chanq.Config{}), send(w, w.queue("work", chanq.Config{}), texts("new")...)[0], chanq.StateReady)
}

// notDurable looks as a session does that confirms commits before they are on disk.
func notDurable(w *world) {
	w.queue("work", chanq.Config{})
	loosen := map[string]string{
		"sqlite":    "PRAGMA synchronous = NORMAL",
		"postgres":  "SET synchronous_commit = off",
		"sqlserver": "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = FORCED",
	}[w.engine.Dialect.Name()]
	remedy := map[string]string{
		"sqlite":    "PRAGMA synchronous = FULL",
		"postgres":  "SET synchronous_commit = 'on'",
		"sqlserver": "SET DELAYED_DURABILITY = ALLOWED",
	}[w.engine.Dialect.Name()]
	if w.engine.Dialect.Name() == "sqlserver" {
		_, err := w.db.ExecContext(w.soon(), loosen) // of the whole database, and no batch of several
		require.NoError(w, err)
	} else {
		problems := w.statements("work").Problems()
		w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if runs(op, problems) {
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
	_, err := chanq.Open[string](w.soon(), w.db, "work", chanq.Config{})
	refused(err)
	refused(chanq.Migrate(w.soon(), w.db, "later", chanq.Config{}))
	_, err = chanq.Open[string](w.soon(), w.db, "later", chanq.Config{})
	require.ErrorIs(w, err, chanq.ErrNoSchema, "nothing was made")

	q := w.queue("later", chanq.Config{Durability: chanq.DurabilityAsIs})
	send(w, q, texts("as it is")...)
	_, err = chanq.Open[string](w.soon(), w.db, "work", chanq.Config{Durability: 2})
	require.ErrorContains(w, err, "Config.Durability is 2")
}
