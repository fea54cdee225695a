package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

const itemsTable = `CREATE TABLE dbo.items (
	id int NOT NULL CONSTRAINT PK_items PRIMARY KEY CLUSTERED,
	due int NOT NULL,
	note varchar(20) NULL);
CREATE INDEX IX_items_due ON dbo.items (due, id);`

// withItems creates the table of n items, due in the order of their ids.
func withItems(t *testing.T, n int, change ...func(*Options)) *server {
	s := newServer(t, change...)
	c := s.client()
	c.exec(itemsTable)
	for i := 1; i <= n; i++ {
		c.exec(fmt.Sprintf("INSERT INTO dbo.items (id, due, note) VALUES (%d, %d, 'n%d')", i, i*10, i))
	}
	return s
}

func rcsi(o *Options) { o.ReadCommittedSnapshot = true }

func snapshots(o *Options) { o.AllowSnapshotIsolation = true }

func TestReadCommittedWaitsForAnUncommittedRow(t *testing.T) {
	s := withItems(t, 2)
	writer, reader := s.client(), s.client()
	writer.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'new' WHERE id = 1")
	read := reader.start("SELECT note FROM dbo.items ORDER BY id")
	reader.blocked()
	writer.exec("COMMIT")
	require.Equal(t, []any{"new", "n2"}, read.result().values())
}

func TestReadCommittedSnapshotReadsTheVersionBefore(t *testing.T) {
	s := withItems(t, 2, rcsi)
	writer, reader := s.client(), s.client()
	writer.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'new', due = 99 WHERE id = 1; DELETE dbo.items WHERE id = 2; INSERT dbo.items VALUES (3, 30, 'n3')")
	require.Equal(t, []any{"n1", "n2"}, reader.exec("SELECT note FROM dbo.items ORDER BY id").values())
	require.Equal(t, []any{"n1"}, reader.exec("SELECT note FROM dbo.items WITH (INDEX (IX_items_due), FORCESEEK) WHERE due = 10").values())
	read := reader.start("SELECT note FROM dbo.items WITH (READCOMMITTEDLOCK) WHERE id = 1")
	reader.blocked()
	writer.exec("COMMIT")
	require.Equal(t, []any{"new"}, read.result().values())
	require.Equal(t, []any{"new", "n3"}, reader.exec("SELECT note FROM dbo.items ORDER BY id").values())
}

func TestUpdatesAlsoLockRowsUnderReadCommittedSnapshot(t *testing.T) {
	s := withItems(t, 1, rcsi)
	first, second := s.client(), s.client()
	first.exec("BEGIN TRAN; UPDATE dbo.items SET due = due + 1 WHERE id = 1")
	update := second.start("UPDATE dbo.items SET due = due + 1 WHERE id = 1")
	second.blocked()
	first.exec("COMMIT")
	require.Empty(t, update.result().errors)
	require.Equal(t, int64(12), first.scalar("SELECT due FROM dbo.items"))
}

func TestReadPastSkipsLockedRowsOnly(t *testing.T) {
	s := withItems(t, 3)
	holder, other := s.client(), s.client()
	holder.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'x' WHERE id = 2")
	require.Equal(t, []any{int64(1), int64(3)}, other.exec("SELECT id FROM dbo.items WITH (READPAST)").values())
	require.Equal(t, []any{int64(1), int64(3)}, other.exec("SELECT id FROM dbo.items WITH (READPAST, UPDLOCK, ROWLOCK, INDEX (IX_items_due), FORCESEEK) WHERE due > 0 AND note IS NOT NULL").values())
	require.Equal(t, []any{int64(1), int64(3)}, other.exec("DELETE TOP (5) FROM dbo.items WITH (READPAST) OUTPUT deleted.id").values())
	holder.exec("ROLLBACK")
	require.Equal(t, []any{int64(2)}, other.exec("SELECT id FROM dbo.items").values())
}

func TestReadPastWaitsForATableLock(t *testing.T) {
	s := withItems(t, 2)
	holder, other := s.client(), s.client()
	holder.exec("BEGIN TRAN; SELECT id FROM dbo.items WITH (TABLOCKX)")
	read := other.start("SELECT id FROM dbo.items WITH (READPAST)")
	other.blocked()
	holder.exec("COMMIT")
	require.Len(t, read.result().values(), 2)
}

func TestReadPastAloneDoesNothingUnderReadCommittedSnapshot(t *testing.T) {
	s := withItems(t, 2, rcsi)
	holder, other := s.client(), s.client()
	holder.exec("BEGIN TRAN; DELETE dbo.items WHERE id = 1")
	require.Len(t, other.query("SELECT id FROM dbo.items WITH (READPAST)"), 2)
	require.Len(t, other.query("SELECT id FROM dbo.items WITH (READPAST, READCOMMITTEDLOCK)"), 1)
	require.Len(t, other.query("SELECT id FROM dbo.items WITH (READPAST, UPDLOCK)"), 1)
}

func TestUpdateLocksAreHeldToTheEndOfTheTransaction(t *testing.T) {
	s := withItems(t, 2)
	a, b := s.client(), s.client()
	a.exec("BEGIN TRAN; SELECT id FROM dbo.items WITH (UPDLOCK) WHERE id = 1")
	require.Equal(t, []any{int64(1), int64(2)}, b.exec("SELECT id FROM dbo.items").values(), "readers pass")
	require.Equal(t, []any{int64(2)}, b.exec("SELECT id FROM dbo.items WITH (UPDLOCK, READPAST)").values())
	b.exec("SET LOCK_TIMEOUT 0")
	b.fails(1222, "UPDATE dbo.items SET note = 'b' WHERE id = 1")
	a.exec("COMMIT")
	b.exec("UPDATE dbo.items SET note = 'b' WHERE id = 1")
}

func TestReadPastSkipsSharedLocksOnlyWithXLock(t *testing.T) {
	for _, change := range []func(*Options){func(*Options) {}, rcsi} {
		s := withItems(t, 3, change)
		reader, other := s.client(), s.client()
		reader.exec("BEGIN TRAN; SELECT id FROM dbo.items WITH (REPEATABLEREAD) WHERE id = 2")
		all, rest := []any{int64(1), int64(2), int64(3)}, []any{int64(1), int64(3)}
		require.Equal(t, all, other.exec("SELECT id FROM dbo.items WITH (UPDLOCK, READPAST, ROWLOCK)").values())
		require.Equal(t, rest, other.exec("SELECT id FROM dbo.items WITH (XLOCK, READPAST, ROWLOCK)").values())
		require.Equal(t, rest, other.exec("SELECT id FROM dbo.items WITH (XLOCK, READPAST, INDEX (IX_items_due), FORCESEEK) WHERE due > 0 AND note IS NOT NULL").values())
		require.Equal(t, rest, other.exec("UPDATE q SET note = 'x' OUTPUT inserted.id FROM dbo.items AS q WITH (XLOCK, READPAST, ROWLOCK)").values())
		update := other.start("UPDATE q SET note = 'x' OUTPUT inserted.id FROM dbo.items AS q WITH (UPDLOCK, READPAST, ROWLOCK)")
		other.blocked() // it has a U lock, and needs an X lock
		reader.exec("COMMIT")
		require.Equal(t, all, update.result().values())
	}
}

func TestExclusiveLocksOfAHintAreHeldToTheEndOfTheTransaction(t *testing.T) {
	s := withItems(t, 2)
	a, b := s.client(), s.client()
	a.exec("BEGIN TRAN; SELECT id FROM dbo.items WITH (XLOCK) WHERE id = 1")
	b.exec("SET LOCK_TIMEOUT 0")
	b.fails(1222, "SELECT id FROM dbo.items WHERE id = 1")
	require.Equal(t, []any{int64(2)}, b.exec("SELECT id FROM dbo.items WITH (READPAST)").values())
	a.exec("COMMIT; BEGIN TRAN; SELECT id FROM dbo.items WITH (XLOCK, SERIALIZABLE) WHERE id = 2")
	b.fails(1222, "SELECT id FROM dbo.items WITH (SERIALIZABLE) WHERE id = 2")
	a.exec("COMMIT; BEGIN TRAN; SELECT id FROM dbo.items WITH (XLOCK, TABLOCK)")
	b.fails(1222, "SELECT id FROM dbo.items WITH (READPAST)")
	a.exec("COMMIT")
}

func TestAReadAtReadCommittedLeavesNoLock(t *testing.T) {
	s := withItems(t, 3)
	c := s.client()
	c.exec("BEGIN TRAN; SELECT id FROM dbo.items WHERE due > 10; SELECT COUNT(*) FROM dbo.items")
	require.Empty(t, s.Locks())
	c.exec("UPDATE dbo.items SET note = 'x' WHERE note = 'nobody'")
	for _, l := range s.Locks() {
		require.Empty(t, l.Resource.Key, "the locks of rows that do not qualify are released")
	}
	c.exec("COMMIT")
}

func TestRepeatableReadHoldsWhatItRead(t *testing.T) {
	s := withItems(t, 2)
	a, b := s.client(), s.client()
	a.exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN TRAN; SELECT id FROM dbo.items WHERE id = 1")
	b.exec("SET LOCK_TIMEOUT 0; UPDATE dbo.items SET note = 'x' WHERE id = 2; INSERT dbo.items VALUES (3, 30, NULL)")
	b.fails(1222, "UPDATE dbo.items SET note = 'x' WHERE id = 1")
	a.exec("COMMIT")
}

func TestSerializableHoldsTheRange(t *testing.T) {
	s := withItems(t, 3)
	a, b := s.client(), s.client()
	a.exec("BEGIN TRAN; SELECT id FROM dbo.items WITH (SERIALIZABLE) WHERE id >= 2 AND id <= 2")
	b.exec("SET LOCK_TIMEOUT 0; UPDATE dbo.items SET note = 'x' WHERE id = 1")
	a.exec("COMMIT; BEGIN TRAN; SELECT id FROM dbo.items WITH (HOLDLOCK) WHERE id > 5")
	b.fails(1222, "INSERT dbo.items VALUES (7, 70, NULL)")
	a.exec("COMMIT")
	b.exec("INSERT dbo.items VALUES (7, 70, NULL)")
}

func TestTwoProbesForOneMissingKeySerialise(t *testing.T) {
	s := withItems(t, 1)
	probe := "BEGIN TRAN; INSERT dbo.items (id, due) SELECT 5, 50 WHERE NOT EXISTS (SELECT 1 FROM dbo.items WITH (UPDLOCK, SERIALIZABLE) WHERE id = 5)"
	a, b := s.client(), s.client()
	a.exec(probe)
	second := b.start(probe)
	b.blocked()
	a.exec("COMMIT")
	w := second.result()
	require.Empty(t, w.errors)
	require.Equal(t, []int64{0}, w.counts)
	b.exec("COMMIT")
}

func TestNoLockReadsWhatIsNotCommitted(t *testing.T) {
	s := withItems(t, 1)
	a, b := s.client(), s.client()
	a.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'dirty'")
	require.Equal(t, "dirty", b.scalar("SELECT note FROM dbo.items WITH (NOLOCK)"))
	b.exec("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
	require.Equal(t, "dirty", b.scalar("SELECT note FROM dbo.items"))
}

func TestADeadlockHasOneVictimWhoseTransactionIsGone(t *testing.T) {
	s := withItems(t, 2)
	a, b := s.client(), s.client()
	a.exec("SET DEADLOCK_PRIORITY LOW; BEGIN TRAN; UPDATE dbo.items SET note = 'a' WHERE id = 1")
	b.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'b' WHERE id = 2")
	first := a.start("UPDATE dbo.items SET note = 'a' WHERE id = 2; SELECT 1")
	a.blocked()
	b.exec("UPDATE dbo.items SET note = 'b' WHERE id = 1")
	w := first.result()
	require.Equal(t, int32(1205), w.number())
	require.Empty(t, w.values(), "the batch ends")
	require.Equal(t, int64(0), a.scalar("SELECT @@TRANCOUNT"))
	b.exec("COMMIT")
	require.Equal(t, []any{"b", "b"}, a.exec("SELECT note FROM dbo.items").values())
}

func TestADeadlockDeallocatesTheCursorsOfItsBatchAndNoOther(t *testing.T) {
	s := withItems(t, 2)
	a, b := s.client(), s.client()
	a.exec(`CREATE PROCEDURE dbo.walk AS
		DECLARE ids CURSOR FOR SELECT id FROM dbo.items WITH (NOLOCK) ORDER BY id
		OPEN ids
		UPDATE dbo.items SET note = 'a' WHERE id = 2
		CLOSE ids
		DEALLOCATE ids`)
	a.exec("DECLARE earlier CURSOR FOR SELECT 1 AS one")
	a.exec("SET DEADLOCK_PRIORITY LOW; BEGIN TRAN; UPDATE dbo.items SET note = 'a' WHERE id = 1")
	b.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'b' WHERE id = 2")
	first := a.start("EXEC dbo.walk")
	a.blocked()
	b.exec("UPDATE dbo.items SET note = 'b' WHERE id = 1; COMMIT")
	require.Equal(t, int32(1205), first.result().number())
	a.exec("EXEC dbo.walk")
	a.exec("DEALLOCATE earlier")
}

func TestLockTimeoutEndsOnlyTheStatement(t *testing.T) {
	s := withItems(t, 2)
	a, b := s.client(), s.client()
	a.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'a' WHERE id = 1")
	w := b.try("SET LOCK_TIMEOUT 0; BEGIN TRAN; UPDATE dbo.items SET note = 'b' WHERE id = 2; UPDATE dbo.items SET note = 'b' WHERE id = 1; SELECT @@TRANCOUNT")
	require.Equal(t, int32(1222), w.number())
	require.Equal(t, []any{int64(1)}, w.values())
	b.exec("COMMIT")
	require.Equal(t, "b", b.scalar("SELECT note FROM dbo.items WHERE id = 2"))
}

func TestXactAbortRollsBackOnAnError(t *testing.T) {
	s := withItems(t, 2)
	a, b := s.client(), s.client()
	a.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'a' WHERE id = 1")
	w := b.try("SET XACT_ABORT ON; SET LOCK_TIMEOUT 0; BEGIN TRAN; UPDATE dbo.items SET note = 'b' WHERE id = 2; UPDATE dbo.items SET note = 'b' WHERE id = 1; SELECT 'not reached'")
	require.Equal(t, int32(1222), w.number())
	require.Empty(t, w.values())
	require.Equal(t, []string{"began", "rolled back"}, w.tx)
	require.Equal(t, "n2", b.scalar("SELECT note FROM dbo.items WHERE id = 2"))
}

func TestEscalationFollowsFiveThousandLocksUnlessDisabled(t *testing.T) {
	s := newServer(t)
	c := s.client()
	c.exec(itemsTable)
	var rows strings.Builder
	for i := range 5200 {
		fmt.Fprintf(&rows, "%s(%d,%d)", map[bool]string{true: ",", false: ""}[i > 0], i, i)
	}
	c.exec("INSERT INTO dbo.items (id, due) SELECT v.a, v.b FROM (VALUES " + rows.String() + ") AS v (a, b)")
	was := s.Escalations()
	require.Positive(t, was, "the INSERT itself escalates")
	c.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'x'")
	require.Greater(t, s.Escalations(), was)
	other := s.client()
	other.exec("SET LOCK_TIMEOUT 0")
	other.fails(1222, "SELECT TOP (1) id FROM dbo.items WITH (READPAST)")
	c.exec("ROLLBACK; ALTER TABLE dbo.items SET (LOCK_ESCALATION = DISABLE)")
	was = s.Escalations()
	c.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'x' WHERE id > 0")
	require.Equal(t, was, s.Escalations())
	require.Equal(t, int64(0), other.scalar("SELECT id FROM dbo.items WITH (READPAST)"))
	c.exec("ROLLBACK")
}

func TestSnapshotSeesOneMomentAndRefusesToOverwrite(t *testing.T) {
	s := withItems(t, 2, snapshots)
	a, b := s.client(), s.client()
	a.exec("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN; SELECT note FROM dbo.items WHERE id = 2")
	b.exec("UPDATE dbo.items SET note = 'b' WHERE id = 1")
	require.Equal(t, "n1", a.scalar("SELECT note FROM dbo.items WHERE id = 1"))
	a.fails(3960, "UPDATE dbo.items SET note = 'a' WHERE id = 1")
	require.Equal(t, int64(0), a.scalar("SELECT @@TRANCOUNT"))
	a.fails(650, "SELECT id FROM dbo.items WITH (READPAST)")
	a.fails(650, "SELECT id FROM dbo.items WITH (READPAST, UPDLOCK)")
}

func TestSnapshotNeedsItsDatabaseOption(t *testing.T) {
	c := withItems(t, 1).client()
	c.exec("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
	c.fails(3952, "SELECT id FROM dbo.items")
	c.exec("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON; SELECT id FROM dbo.items")
}

func TestVersionsAreRemovedWhenNoTransactionReadsThem(t *testing.T) {
	s := withItems(t, 3, snapshots)
	a, b := s.client(), s.client()
	a.exec("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN; SELECT id FROM dbo.items")
	b.exec("UPDATE dbo.items SET due = due + 100; DELETE dbo.items WHERE id = 1")
	tbl := s.db.object("dbo", "items").table
	require.Equal(t, 6, tbl.indexes[1].tree.count, "old keys stay for the reader")
	require.Equal(t, []any{int64(10), int64(20), int64(30)}, a.exec("SELECT due FROM dbo.items WITH (INDEX (IX_items_due)) ORDER BY due").values())
	a.exec("COMMIT")
	require.Equal(t, 2, tbl.indexes[1].tree.count)
	require.Equal(t, 2, tbl.indexes[0].tree.count)
}

func TestAttentionRollsBackTheStatementAndUnderXactAbortTheTransaction(t *testing.T) {
	for _, abort := range []string{"ON", "OFF"} {
		s := withItems(t, 2)
		a, b := s.client(), s.client()
		a.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'a' WHERE id = 2")
		b.exec("SET XACT_ABORT " + abort + "; BEGIN TRAN; UPDATE dbo.items SET note = 'first' WHERE id = 1")
		ctx, cancel := context.WithCancel(context.Background())
		update := b.startCtx(ctx, "UPDATE dbo.items SET note = 'b' WHERE id > 0")
		b.blocked()
		cancel()
		update.result()
		a.exec("COMMIT")
		want, count := "first", int64(1)
		if abort == "ON" {
			want, count = "n1", 0
		}
		require.Equal(t, count, b.scalar("SELECT @@TRANCOUNT"))
		require.Equal(t, want, b.scalar("SELECT note FROM dbo.items WITH (NOLOCK) WHERE id = 1"))
		require.Equal(t, "a", b.scalar("SELECT note FROM dbo.items WITH (NOLOCK) WHERE id = 2"))
	}
}

func TestAReaderThatWaitedSeesTheRowWhereItIsNow(t *testing.T) {
	s := withItems(t, 3)
	mover, reader := s.client(), s.client()
	mover.exec("BEGIN TRAN; UPDATE dbo.items SET due = 25 WHERE id = 1")
	read := reader.start("SELECT id FROM dbo.items WITH (INDEX (IX_items_due), FORCESEEK) WHERE due > 0")
	reader.blocked()
	mover.exec("COMMIT")
	require.Equal(t, []any{int64(2), int64(1), int64(3)}, read.result().values(), "never missing, never twice")
}

func TestOneIndexKeyGuardsTheRowBehindIt(t *testing.T) {
	s := withItems(t, 2)
	claimer, acker := s.client(), s.client()
	claimer.exec("BEGIN TRAN; SELECT note FROM dbo.items WITH (UPDLOCK, READPAST, INDEX (IX_items_due), FORCESEEK) WHERE due = 10")
	held := map[uint16]lock.Mode{}
	for _, l := range s.Locks() {
		if l.Resource.Key != "" {
			held[l.Resource.Index] = l.Mode
		}
	}
	require.Equal(t, map[uint16]lock.Mode{1: lock.U, 2: lock.U}, held, "the key and the row")
	acker.exec("SET LOCK_TIMEOUT 0")
	acker.fails(1222, "DELETE dbo.items WHERE id = 1")
	claimer.exec("COMMIT")
	acker.exec("DELETE dbo.items WHERE id = 1")
}

func TestSchemaChangesWaitForTheTablesUsers(t *testing.T) {
	s := withItems(t, 1)
	a, b := s.client(), s.client()
	a.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'x'")
	drop := b.start("DROP TABLE dbo.items")
	b.blocked()
	a.exec("COMMIT")
	require.Empty(t, drop.result().errors)
	a.fails(208, "SELECT id FROM dbo.items")
}

func TestARangeLockGuardsItsGapAndNoOther(t *testing.T) {
	s := newServer(t)
	a, b := s.client(), s.client()
	a.exec(itemsTable + " INSERT dbo.items VALUES (1, 10, NULL), (5, 50, NULL), (9, 90, NULL)")
	a.exec("BEGIN TRAN; SELECT id FROM dbo.items WITH (SERIALIZABLE) WHERE id >= 2 AND id <= 4")
	b.exec("SET LOCK_TIMEOUT 0; INSERT dbo.items VALUES (7, 70, NULL)")
	b.fails(1222, "INSERT dbo.items VALUES (3, 30, NULL)")
	a.exec("COMMIT")
	b.exec("INSERT dbo.items VALUES (3, 30, NULL)")
}

func TestALookupThatWaitedReadsTheRowAgain(t *testing.T) {
	for end, want := range map[string][]any{"COMMIT": {int64(2)}, "ROLLBACK": {int64(1), int64(2)}} {
		s := withItems(t, 2)
		writer, reader := s.client(), s.client()
		writer.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'gone' WHERE id = 1")
		read := reader.start("SELECT id FROM dbo.items WITH (INDEX (IX_items_due), FORCESEEK) WHERE due <= 20 AND note >= 'n'")
		reader.blocked()
		writer.exec(end)
		require.Equal(t, want, read.result().values(), end)
	}
}
