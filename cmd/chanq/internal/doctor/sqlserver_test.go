package doctor_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The emulator answers the queries of the doctor. They are not tested on Microsoft's engine.

// onSQLServer returns a queue mail on an emulator, and an examination of it.
func onSQLServer(t *testing.T, o mssqltest.Options) (*mssqltest.Server, *ward) {
	t.Helper()
	server := mssqltest.Start(t, o)
	require.NoError(t, chanq.Migrate(t.Context(), server.DB(), "mail", chanq.Config{}))
	return server, &ward{t, doctor.Patient{DB: server.DB(), Dialect: sqlserver.Dialect, Queues: []string{"mail"}, Long: time.Second, Wait: 10 * time.Millisecond}}
}

func TestAHealthySQLServerHasNoFindings(t *testing.T) {
	_, w := onSQLServer(t, mssqltest.Options{})
	for _, f := range w.examine() {
		require.Equal(t, doctor.OK, f.Status, "%+v", f)
	}
	require.Equal(t, "SQL Server 16.0.1000.0", w.one("version").Found)
	require.Equal(t, "READ_COMMITTED_SNAPSHOT is OFF, compatibility level 160", w.one("settings").Found)
	require.Contains(t, w.one("settings").Remedy, "SET READ_COMMITTED_SNAPSHOT ON", "for programs that read the tables")
	require.Equal(t, "this login may send, consume, operate, note the history", w.one("rights").Found)
}

func TestHarmfulSettingsOfASQLServerAreReported(t *testing.T) {
	_, first := onSQLServer(t, mssqltest.Options{Version: "13.0.1601.5"})
	require.Equal(t, "chanq needs SQL Server 2016 SP1 or later", first.one("version").Remedy)
	_, first = onSQLServer(t, mssqltest.Options{Version: "13.0.4001.0"})
	require.Equal(t, doctor.OK, first.one("version").Status)
	server, w := onSQLServer(t, mssqltest.Options{Version: "12.0.6024.0"})
	old := w.one("version")
	require.Equal(t, doctor.Failure, old.Status)
	require.Equal(t, "chanq needs SQL Server 2016 SP1 or later", old.Remedy)

	for _, text := range []string{"AUTO_CLOSE ON", "COMPATIBILITY_LEVEL = 120", "DELAYED_DURABILITY = FORCED", "READ_COMMITTED_SNAPSHOT ON"} {
		w.exec(server.DB(), "ALTER DATABASE CURRENT SET "+text)
	}
	settings := w.all("settings")
	require.Equal(t, "READ_COMMITTED_SNAPSHOT is ON, compatibility level 120", settings[0].Found)
	require.Empty(t, settings[0].Remedy)
	require.Equal(t, "AUTO_CLOSE is ON", settings[1].Found)
	require.Contains(t, settings[1].Remedy, "SET AUTO_CLOSE OFF")
	require.Equal(t, "the compatibility level is 120", settings[2].Found)
	require.Contains(t, settings[2].Remedy, "SET COMPATIBILITY_LEVEL = 130")
	lossy := w.one("durability")
	require.Equal(t, doctor.Failure, lossy.Status, "commits are confirmed before they are on disk")
	require.Contains(t, lossy.Found, "DELAYED_DURABILITY")
}

func TestAForgottenTransactionOfASQLServerAndItsWaitersAreReported(t *testing.T) {
	server, w := onSQLServer(t, mssqltest.Options{AllowSnapshotIsolation: true, Query: url.Values{"app name": {"forgetful"}}})
	db := server.DB()
	w.exec(db, "INSERT INTO dbo.chanq_mail (body) VALUES (0x61)")
	holder, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer holder.Rollback()
	w.exec(holder, "UPDATE dbo.chanq_mail SET attempts = 1")
	waited := make(chan error, 1)
	go func() { // ends when holder has ended
		_, err := db.Exec("UPDATE dbo.chanq_mail SET attempts = 2")
		waited <- err
	}()
	reader, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSnapshot})
	require.NoError(t, err)
	defer reader.Rollback()
	var n int
	require.NoError(t, reader.QueryRow("SELECT COUNT(*) FROM dbo.chanq_mail").Scan(&n))

	locks := w.eventually("locks")[0]
	require.Regexp(t, `^session \d+ has waited for session \d+ for \S+ \(LCK_M_U\)$`, locks.Found)
	require.Regexp(t, `KILL \d+ ends a session without an owner$`, locks.Remedy)
	long := w.eventually("long transactions")[0]
	require.Regexp(t, `^session \d+ of forgetful, sleeping, has a transaction open for (\d+m)?\d+s`, long.Found)
	require.Regexp(t, `KILL \d+$`, long.Remedy)
	old := w.eventually("old snapshots")[0]
	require.Regexp(t, `^session \d+ of forgetful has kept row versions for (\d+m)?\d+s`, old.Found)

	require.NoError(t, holder.Rollback())
	require.NoError(t, reader.Rollback())
	require.NoError(t, <-waited)
	for _, check := range []string{"locks", "long transactions", "old snapshots"} {
		require.Equal(t, doctor.OK, w.one(check).Status, check)
	}
}

// A reader that keeps shared locks stops what it has read, but nothing that could be seen waiting for it: chanq skips these rows.
func TestAReaderThatKeepsSharedLocksOnASQLServerIsReported(t *testing.T) {
	server, w := onSQLServer(t, mssqltest.Options{Query: url.Values{"app name": {"monthly report"}, "workstation id": {"desk 7"}}})
	db := server.DB()
	w.exec(db, "INSERT INTO dbo.chanq_mail (body) VALUES (0x61)")
	for level, query := range map[string]string{
		"SERIALIZABLE":    "SELECT COUNT(*) FROM dbo.chanq_mail",
		"REPEATABLE READ": "SELECT COUNT(*) FROM dbo.chanq_mail WITH (INDEX (IX_chanq_mail__due))",
		"READ COMMITTED":  "SELECT COUNT(*) FROM dbo.chanq_mail WITH (TABLOCK, HOLDLOCK)",
	} {
		reader, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer reader.Rollback()
		w.exec(reader, "SET TRANSACTION ISOLATION LEVEL "+level)
		var n int
		require.NoError(t, reader.QueryRow(query).Scan(&n))
		f := w.eventually("readers")[0]
		require.Regexp(t, `^session \d+ of monthly report on host "desk 7", sleeping, at `+level+`, has kept shared locks on chanq_mail for up to \d+s`, f.Found)
		require.Regexp(t, `READ COMMITTED or SNAPSHOT.*KILL \d+$`, f.Remedy)
		require.NoError(t, reader.Rollback())
		require.Equal(t, doctor.OK, w.one("readers").Status)
	}
}

func TestADifferentClockOfASQLServerIsDetected(t *testing.T) {
	_, w := onSQLServer(t, mssqltest.Options{Clock: mssqltest.NewManualClock(time.Now().Add(-time.Hour))})
	f := w.one("clock")
	require.Equal(t, doctor.Warning, f.Status)
	require.Contains(t, f.Found, "differ by 1h") // and the time since the clock was created
	require.Contains(t, f.Remedy, "NTP")
}

// Information that a login may not see is reported as unseen, and a missing permission as such.
func TestMissingPermissionsOfASQLServerLoginAreReported(t *testing.T) {
	server, w := onSQLServer(t, mssqltest.Options{})
	for _, text := range []string{
		"CREATE LOGIN sender WITH PASSWORD = 'secret word 1'", "CREATE USER sender",
		"GRANT SELECT ON dbo.chanq__queues TO sender", "GRANT SELECT ON dbo.chanq__consumers TO sender", "GRANT SELECT, INSERT ON dbo.chanq_mail TO sender",
	} {
		w.exec(server.DB(), text)
	}
	address, err := url.Parse(server.DSN())
	require.NoError(t, err)
	address.User = url.UserPassword("sender", "secret word 1")
	db, err := sql.Open("sqlserver", address.String())
	require.NoError(t, err)
	defer db.Close()
	w.patient.DB = db
	rights := w.one("rights")
	require.Equal(t, doctor.OK, rights.Status)
	require.Contains(t, rights.Found, "this login may send, not consume (UPDATE on the live table, DELETE on the live table, INSERT on dead, INSERT on consumers, DELETE on consumers)")
	require.Contains(t, rights.Found, "not note the history (INSERT on samples, UPDATE on samples, DELETE on samples)")
	require.Contains(t, rights.Remedy, "docs/rights")
	for _, check := range []string{"long transactions", "old snapshots", "readers"} {
		f := w.one(check)
		require.Equal(t, doctor.Unseen, f.Status, check)
		require.Contains(t, f.Found, "VIEW SERVER STATE")
	}
}

// ward is a test's database with its examination.
type ward struct {
	*testing.T
	patient doctor.Patient
}

func (w *ward) examine() []doctor.Finding {
	w.Helper()
	all, err := doctor.Examine(w.Context(), w.patient)
	require.NoError(w, err)
	return all
}

// all returns the findings of a check.
func (w *ward) all(check string) (list []doctor.Finding) {
	w.Helper()
	for _, f := range w.examine() {
		if f.Check == check {
			list = append(list, f)
		}
	}
	return list
}

func (w *ward) one(check string) doctor.Finding {
	w.Helper()
	list := w.all(check)
	require.Len(w, list, 1, check)
	return list[0]
}

// wrong returns the findings that report a problem.
func (w *ward) wrong(check string) (list []doctor.Finding) {
	w.Helper()
	for _, f := range w.all(check) {
		if f.Status == doctor.Warning || f.Status == doctor.Failure {
			list = append(list, f)
		}
	}
	return list
}

// eventually waits until a check finds a problem.
func (w *ward) eventually(check string) (list []doctor.Finding) {
	w.Helper()
	require.Eventually(w, func() bool { list = w.wrong(check); return len(list) > 0 }, time.Minute, 10*time.Millisecond, check)
	return list
}

func (w *ward) exec(on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string) {
	w.Helper()
	_, err := on.ExecContext(w.Context(), strings.TrimSpace(text))
	require.NoError(w, err, text)
}
