package guarantees

import (
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Tables of packages that are built on chanq: chanq.MigrateTables.
var packageTables = []test{
	{"TablesOfAPackageAreCreatedOnceByManyProcesses", packageTablesTogether},
	{"TablesOfAPackageFollowItsVersion", packageTablesFollow},
	{"TablesOfAPackageAreCreatedWholeOrNotAtAll", packageTablesFail},
	{"NamesMakeStatementsOnTheTablesOfAQueue", namesOfAQueue},
}

// noteTables are the tables of a package for notes. Each change counts itself in the table.
func noteTables(version, least int) chanq.Tables {
	return chanq.Tables{Name: "notes", Version: version, MinVersion: least, Create: func(chanq.Dialect, int) []string {
		return []string{
			`{create chanq__notes} (name {text} NOT NULL PRIMARY KEY, at bigint NOT NULL, changes integer NOT NULL, content {bytes})`,
			`INSERT INTO {chanq__notes} (name, at, changes) SELECT 'first', {now}, 0 WHERE NOT EXISTS (SELECT 1 FROM {chanq__notes})`,
			`UPDATE {chanq__notes} SET changes = changes + 1`,
		}
	}}
}

func (w *world) migrateNotes(version, least int) error {
	_, err := chanq.MigrateTables(w.Soon(), w.Tables(), chanq.Config{}, noteTables(version, least))
	return err
}

// defines reports whether an operation changes the schema or takes the lock of Migrate.
func defines(op faultdb.Op) bool {
	return strings.Contains(op.Text, "CREATE TABLE") || strings.Contains(op.Text, "BEGIN")
}

func packageTablesTogether(w *world) {
	w.Open()
	migrate := func(db *sql.DB) {
		_, err := chanq.MigrateTables(w.Soon(), db, chanq.Config{}, noteTables(1, 1))
		if err != nil {
			w.Errorf("migrate: %v", err)
		}
	}
	var others, late sync.WaitGroup
	faults, slow := w.ConnectTables()
	others.Add(1) // until slow has seen that there are no tables
	seen, gate := sync.OnceFunc(others.Done), make(chan struct{})
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if defines(op) {
			seen()
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	late.Go(func() { migrate(slow) })
	others.Wait()
	for range testdb.Of(8, 32) {
		_, db := w.ConnectTables()
		others.Go(func() { migrate(db) })
	}
	others.Wait()
	close(gate)
	late.Wait()
	var changed, at, now int64
	names := chanq.Names{Dialect: w.Engine.ChanqDialect()}
	require.NoError(w, w.DB.QueryRowContext(w.Soon(), names.SQL(`SELECT changes, at, {now} FROM {chanq__notes}`)).Scan(&changed, &at, &now))
	require.EqualValues(w, 1, changed, "the lock of Migrate lets one change them")
	require.InDelta(w, now, at, float64(testdb.Patience.Milliseconds()), "the database's time")

	var changes atomic.Int64
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if defines(op) {
			changes.Add(1)
		}
		return faultdb.Fault{}
	})
	_, err := chanq.MigrateTables(w.Soon(), w.DB, chanq.Config{}, noteTables(1, 1))
	require.NoError(w, err)
	require.Zero(w, changes.Load(), "a role without permission to create tables can call it")
}

func packageTablesFollow(w *world) {
	_, err := chanq.MigrateTables(w.Soon(), w.Open(), chanq.Config{}, chanq.Tables{Name: "notes", Version: 1})
	require.ErrorIs(w, err, chanq.ErrNoSchema)
	require.ErrorContains(w, err, "chanq: migrate notes: no schema of version 1 (found 0)")

	changes := func() (n int64) {
		names := chanq.Names{Dialect: w.Engine.ChanqDialect()}
		require.NoError(w, w.DB.QueryRowContext(w.Soon(), names.SQL(`SELECT changes FROM {chanq__notes}`)).Scan(&n))
		return n
	}
	require.NoError(w, w.migrateNotes(1, 1))
	require.NoError(w, w.migrateNotes(1, 1))
	require.EqualValues(w, 1, changes(), "there is nothing to do")
	require.NoError(w, w.migrateNotes(2, 1))
	require.EqualValues(w, 2, changes())
	require.NoError(w, w.migrateNotes(1, 1), "version 2 admits programs of version 1")
	require.EqualValues(w, 2, changes())
	require.NoError(w, w.migrateNotes(3, 2))
	require.NoError(w, w.migrateNotes(2, 1))
	err = w.migrateNotes(1, 1)
	require.ErrorIs(w, err, chanq.ErrNewerSchema)
	require.ErrorContains(w, err, "the tables are of version 3, for programs of version 2 or later, and this one is of version 1; upgrade this program")

	from := 0
	_, err = chanq.MigrateTables(w.Soon(), w.DB, chanq.Config{}, chanq.Tables{Name: "notes", Version: 4,
		Create: func(_ chanq.Dialect, found int) []string { from = found; return nil }})
	require.NoError(w, err)
	require.Equal(w, 3, from)
}

// Whichever operation fails, before or after it is applied: the next call creates the tables.
func packageTablesFail(w *world) {
	w.Open()
	created := 0
	for n := 0; ; n++ {
		strike := w.StrikeNth(n, w.Broken(n%2 == 0))
		err := w.migrateNotes(n+1, 1)
		w.Heal()
		if strike.Struck() == "" {
			require.NoError(w, err)
			break
		}
		if err != nil {
			created++
		}
		require.NoError(w, w.migrateNotes(n+1, 1), "after a failure of %s: %v", strike.Struck(), err)
	}
	require.Greater(w, created, 3)
}

func namesOfAQueue(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: chanq.RetainNone}})
	names := q.Names()
	require.Equal(w, chanq.Names{Dialect: w.Engine.ChanqDialect(), Queue: "work"}, names)
	id := testdb.Send(w, q, chanq.Message[string]{Body: "a", Type: "wanted"}, chanq.Message[string]{Body: "b"})[0]
	count := func(text string, args ...any) (n int) {
		require.NoError(w, w.DB.QueryRowContext(w.Soon(), names.SQL(text), args...).Scan(&n))
		return n
	}
	require.Equal(w, 2, count(`SELECT count(*) FROM {live} WHERE due_at IS NOT NULL AND ?1 = 7`, 7))
	require.Zero(w, count(`SELECT count(*) FROM {dead}`)+count(`SELECT count(*) FROM {done}`))
	raw, err := q.Encode(chanq.Msg("c"))
	require.NoError(w, err)
	_, err = q.Raw().Send(w.Soon(), chanq.Message[[]byte]{Body: raw})
	require.NoError(w, err)
	require.Equal(w, 3, count(`SELECT count(*) FROM {live}`))
	_, err = q.Encode(chanq.Message[string]{Delay: -1})
	require.ErrorContains(w, err, "Message.Delay")
	require.NotZero(w, id)
	require.Equal(w, sqlbatch.NoSchema, w.Engine.Dialect.Classify(w.DB.QueryRowContext(w.Soon(), names.SQL(`SELECT 1 FROM {chanq__nothing}`)).Scan(new(int))))
}
