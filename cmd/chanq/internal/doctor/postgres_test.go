package doctor_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// onPostgres returns a queue mail in a separate database, and an examination of it.
func onPostgres(t *testing.T) (*sql.DB, *pgx.ConnConfig, *ward) {
	t.Helper()
	config := pgtest.Config(t)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", chanq.Config{}))
	return db, config, &ward{t, doctor.Patient{DB: db, Dialect: postgres.Dialect, Queues: []string{"mail"}, Long: time.Millisecond, Wait: time.Millisecond}}
}

// A forgotten open transaction, and a session that waits for it.
func TestAForgottenTransactionAndItsWaitersAreReported(t *testing.T) {
	db, _, w := onPostgres(t)
	w.exec(db, "INSERT INTO chanq_mail (body) VALUES ('x')")
	require.Empty(t, w.wrong("locks"))
	holder, err := db.Begin()
	require.NoError(t, err)
	defer holder.Rollback()
	w.exec(holder, "SET LOCAL application_name = 'forgetful'")
	w.exec(holder, "SELECT FROM chanq_mail FOR UPDATE")
	waited := make(chan error, 1)
	go func() { // ends when holder has ended
		_, err := db.Exec("UPDATE chanq_mail SET attempts = 1")
		waited <- err
	}()
	locks := w.eventually("locks")
	require.Contains(t, locks[0].Found, "forgetful (idle in transaction)")
	require.Contains(t, locks[0].Remedy, "pg_terminate_backend(")
	said := ""
	for _, f := range w.wrong("long transactions") {
		said += f.Found + "; " + f.Remedy + "\n"
	}
	require.Contains(t, said, "of forgetful, idle in transaction, with rows of chanq_mail locked, open for ")
	require.Contains(t, said, "pg_terminate_backend(")
	require.NoError(t, holder.Rollback())
	require.NoError(t, <-waited)
	require.Empty(t, w.wrong("locks"))
}

func TestAConnectionThatCannotWriteAndATriggerAreReported(t *testing.T) {
	db, config, w := onPostgres(t)
	require.Empty(t, w.wrong("writes"))
	require.Empty(t, w.wrong("triggers"))
	w.exec(db, "CREATE FUNCTION dropped() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	w.exec(db, "CREATE TRIGGER dropper BEFORE INSERT ON chanq_mail FOR EACH ROW EXECUTE FUNCTION dropped()")
	require.Equal(t, "chanq_mail has the trigger dropper", w.wrong("triggers")[0].Found)
	w.exec(db, "DROP TRIGGER dropper ON chanq_mail")
	w.exec(db, "CREATE RULE nothing AS ON DELETE TO chanq_mail DO INSTEAD NOTHING")
	require.Equal(t, "chanq_mail has the rule nothing", w.wrong("triggers")[0].Found)

	config.RuntimeParams["default_transaction_read_only"] = "on"
	only := stdlib.OpenDB(*config)
	defer only.Close()
	w.patient.DB = only
	require.Equal(t, "default_transaction_read_only is on", w.wrong("writes")[0].Found)
}

// A report that reads for hours at REPEATABLE READ locks nothing, and keeps every row that was deleted
// since it began.
func TestAnOldSnapshotIsReportedAlthoughItLocksNothing(t *testing.T) {
	db, _, w := onPostgres(t)
	w.patient.Long = 100 * time.Millisecond
	reader, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer reader.Rollback()
	w.exec(reader, "SET LOCAL application_name = 'report'")
	w.exec(reader, "SELECT FROM chanq_mail")
	old := w.eventually("long transactions")[0]
	require.Contains(t, old.Found, "of report, idle in transaction, open for ")
	require.Contains(t, old.Found, "rows that died since then cannot be vacuumed")
	require.NotContains(t, old.Found, "locked")
	require.NoError(t, reader.Rollback())
	require.Empty(t, w.wrong("long transactions"))
}

func TestHarmfulPostgresSettingsAreReported(t *testing.T) {
	db, config, w := onPostgres(t)
	var fsync string
	require.NoError(t, db.QueryRow("SHOW fsync").Scan(&fsync))
	disk := w.one("disk")
	if fsync == "off" { // as on test servers
		require.Equal(t, doctor.Warning, disk.Status)
		require.Contains(t, disk.Remedy, "fsync = on")
	} else {
		require.Equal(t, doctor.OK, disk.Status)
	}

	w.exec(db, "ALTER TABLE chanq_mail SET (autovacuum_enabled = off)")
	require.Equal(t, []doctor.Finding{{Check: "autovacuum", Status: doctor.Warning, Found: "it is off for chanq_mail", Remedy: "ALTER TABLE … RESET (autovacuum_enabled)"}}, w.wrong("autovacuum"))

	name := pgx.Identifier{config.Database}.Sanitize()
	w.exec(db, "ALTER DATABASE "+name+" CONNECTION LIMIT 1")
	few := w.one("connections")
	require.Equal(t, doctor.Warning, few.Status)
	require.Contains(t, few.Found, "of 1 connections are taken, by the limit of this database")
	require.Contains(t, few.Remedy, "a consumer uses up to 5")
	w.exec(db, "ALTER DATABASE "+name+" CONNECTION LIMIT 100")
	require.Equal(t, doctor.OK, w.one("connections").Status)

	config.RuntimeParams["synchronous_commit"] = "off"
	loose := stdlib.OpenDB(*config)
	defer loose.Close()
	w.patient.DB = loose
	lossy := w.one("durability")
	require.Equal(t, doctor.Failure, lossy.Status)
	require.Contains(t, lossy.Found, "synchronous_commit is off")
}

func TestDeadRowsWithoutAVacuumAreReported(t *testing.T) {
	db, _, w := onPostgres(t)
	w.exec(db, "ALTER TABLE chanq_mail SET (autovacuum_enabled = off)")
	require.Empty(t, w.wrong("dead rows"))
	w.exec(db, "INSERT INTO chanq_mail (body) SELECT 'x' FROM generate_series(1, 50001)")
	w.exec(db, "DELETE FROM chanq_mail")
	worn := w.eventually("dead rows")[0] // once the server has updated its statistics
	require.Equal(t, doctor.Warning, worn.Status)
	require.Contains(t, worn.Found, "chanq_mail has 50001 dead rows and 0 live ones, never vacuumed")
	require.Contains(t, worn.Remedy, "VACUUM chanq_mail")
}

func TestAPoolerIsDetected(t *testing.T) {
	_, config, w := onPostgres(t)
	require.Equal(t, doctor.OK, w.one("pooler").Status)
	for _, mode := range []string{"session", "transaction"} {
		db := stdlib.OpenDB(*pgtest.StartPooler(t, config, mode).Config())
		defer db.Close()
		w.patient.DB = db
		f := w.one("pooler")
		if mode == "session" {
			require.Equal(t, doctor.OK, f.Status, "it is as good as none")
			continue
		}
		require.Equal(t, doctor.Warning, f.Status)
		require.Contains(t, f.Remedy, "pgnotify needs a DSN that goes to the server itself")
	}
}

func TestMissingPermissionsOfAPostgresLoginAreReported(t *testing.T) {
	db, config, w := onPostgres(t)
	role := fmt.Sprintf("doctor_%s", config.Database)
	w.exec(db, "CREATE ROLE "+role)
	defer func() {
		w.exec(db, "DROP OWNED BY "+role)
		w.exec(db, "DROP ROLE "+role)
	}()
	w.exec(db, "GRANT SELECT ON chanq__queues, chanq__consumers TO "+role+"; GRANT SELECT (id, dedup_key, fence), INSERT ON chanq_mail TO "+role)
	config.RuntimeParams["role"] = role
	as := stdlib.OpenDB(*config)
	defer as.Close()
	w.patient.DB = as
	f := w.one("rights")
	require.Contains(t, f.Found, "this login may send, not consume (UPDATE on the live table, DELETE on the live table")
	require.Contains(t, f.Remedy, "docs/rights")
}
