package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

// onSQLite returns a queue mail in a file, and an examination of it.
func onSQLite(t *testing.T) (file string, _ *sql.DB, _ *ward) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "queue.db")
	db, err := embedded.Open(file)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", chanq.Config{}))
	return file, db, &ward{t, doctor.Patient{DB: db, Dialect: sqlite.Dialect, Queues: []string{"mail"}}}
}

// as opens the file as a program without package embedded does.
func as(w *ward, file, pragmas string) *sql.DB {
	w.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?"+pragmas)
	require.NoError(w, err)
	w.Cleanup(func() { db.Close() })
	w.patient.DB = db
	return db
}

func TestAHealthySQLiteFileHasNoFindings(t *testing.T) {
	_, _, w := onSQLite(t)
	for _, f := range w.examine() {
		require.Equal(t, doctor.OK, f.Status, "%+v", f)
	}
	require.Contains(t, w.one("version").Found, "SQLite 3.")
}

func TestHarmfulSettingsOfASQLiteConnectionAreReported(t *testing.T) {
	file, db, w := onSQLite(t)
	loose := as(w, file, "_pragma=synchronous(OFF)")
	lossy := w.one("durability")
	require.Equal(t, doctor.Failure, lossy.Status)
	require.Contains(t, lossy.Found, "PRAGMA synchronous is 0")
	require.Contains(t, lossy.Found, "open the file by embedded.Open")

	require.NoError(t, loose.Close())
	require.NoError(t, db.Close())
	as(w, file, "_pragma=journal_mode(DELETE)&_pragma=synchronous(FULL)")
	journal := w.one("journal")
	require.Equal(t, doctor.Warning, journal.Status)
	require.Equal(t, "journal_mode is delete", journal.Found)
	require.Contains(t, journal.Remedy, "journal_mode = WAL")
	require.Equal(t, doctor.OK, w.one("durability").Status, "it is slower but equally safe")
}

func TestASQLiteFileOnANetworkDiskIsAFailure(t *testing.T) {
	_, _, w := onSQLite(t)
	doctor.SetFileSystem(t, "NFS")
	f := w.one("file system")
	require.Equal(t, doctor.Failure, f.Status)
	require.Equal(t, "the file is on a network file system, NFS", f.Found)
	require.Contains(t, f.Remedy, "a disk of this machine")
}

func TestAReaderThatBlocksCheckpointsOfSQLiteIsDetected(t *testing.T) {
	_, db, w := onSQLite(t)
	w.patient.Log = 8 << 20
	fill := func() {
		for range 16 {
			w.exec(db, "INSERT INTO chanq_mail (body) VALUES (zeroblob(1000000))")
		}
	}
	fill()
	require.Equal(t, doctor.OK, w.one("log").Status, "checkpoints keep up")
	reader, err := db.Query("SELECT id FROM chanq_mail")
	require.NoError(t, err)
	defer reader.Close()
	require.True(t, reader.Next(), "and it reads no further")
	fill()
	f := w.one("log")
	require.Equal(t, doctor.Warning, f.Status, f.Found)
	require.Contains(t, f.Remedy, "Rows that are not closed")
	require.NoError(t, reader.Close())
	fill()
	require.Equal(t, doctor.OK, w.one("log").Status, "the rest of the log is in the database")
}

// The history of the last minute is reported before a message is dead-lettered.
func TestTheLastMinuteShowsHandlersThatFailOrHang(t *testing.T) {
	_, db, w := onSQLite(t)
	minute := func(delivered, nacked int) {
		w.exec(db, "DELETE FROM chanq__samples")
		for ago := range 6 {
			w.exec(db, fmt.Sprintf(`INSERT INTO chanq__samples (queue, step, at, sent, acked, nacked, died, delivered)
VALUES ('mail', 10, CAST(unixepoch('now') AS INTEGER) * 1000 - %d, 0, %d, %d, 0, %d)`, 1000+5000*ago, delivered-nacked, nacked, delivered))
		}
	}
	minute(100, 10)
	require.Empty(t, w.all("failing"))
	minute(100, 33)
	f := w.one("failing")
	require.Equal(t, []any{doctor.Warning, "mail", "33 of the last 100 attempts failed"}, []any{f.Status, f.Queue, f.Found})
	require.Contains(t, f.Remedy, "--state scheduled")

	// A consumer without room, because its messages are not read.
	w.exec(db, "DELETE FROM chanq__samples")
	w.exec(db, "INSERT INTO chanq_mail (body, due_at) SELECT 'x', 1 FROM (VALUES (1), (2), (3))")
	q, err := chanq.Open[string](t.Context(), db, "mail", chanq.Config{History: chanq.HistoryOff})
	require.NoError(t, err)
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{Prefetch: 1})
	require.NoError(t, err)
	defer c.Shutdown(context.WithoutCancel(t.Context()))
	require.Eventually(t, func() bool { s, err := testdb.Admin(q).Stats(t.Context()); return err == nil && s.Leased == 1 }, time.Minute, time.Millisecond)
	require.Empty(t, w.all("stuck"))
	w.patient.Limits = chanqfindings.Limits{Stuck: time.Millisecond, Late: time.Hour}
	require.Contains(t, w.eventually("stuck")[0].Found, "the only message in hand has been leased for ") // after its first heartbeat
	require.Empty(t, w.all("late"), "all handlers are stuck")
	w.patient.Limits.Stuck = 0
	require.Contains(t, w.one("late").Found, "longer than 1 h")
}

func TestOnAQueueThatHoldsKeysThePurgeOfDeadMessagesHasAWarning(t *testing.T) {
	_, db, w := onSQLite(t)
	ctx := t.Context()
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, DeadKey: chanq.DeadKeyHolds, MaxAttempts: 1}}
	require.NoError(t, chanq.Migrate(ctx, db, "accounts", cfg))
	w.patient.Queues = []string{"accounts"}
	q, err := chanq.Open[string](ctx, db, "accounts", cfg)
	require.NoError(t, err)
	_, err = q.Send(ctx, chanq.Message[string]{Key: "ada", Body: "withdraw"})
	require.NoError(t, err)
	c, err := q.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	require.NoError(t, err)
	require.NoError(t, c.Handle(1, func(context.Context, *chanq.Lease[string]) error { return errors.New("overdrawn") }))
	f := w.one("dead")
	require.Equal(t, "1 message is dead, the last for less than 1 s: overdrawn", f.Found)
	require.Contains(t, f.Remedy, "purge --state dead accounts, which lets the later messages of their keys go on without them")
}
