package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Syntax that Microsoft's engine rejects or distinguishes, and an emulator might not.

func TestNamesOfApplicationLocksAreComparedByteByByte(t *testing.T) {
	s := newServer(t)
	c, other := s.client(), s.client()
	const take = "DECLARE @r int; EXEC @r = sp_getapplock @Resource = %, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0; SELECT @r"
	lock := func(c *client, name string) any { return c.scalar(replace(take, name)) }
	require.Equal(t, int64(0), lock(c, "N'of dbo'"))
	require.Equal(t, int64(-1), lock(other, "N'of dbo'"))
	require.Equal(t, int64(0), lock(other, "N'of DBO'"))
	require.Equal(t, int64(0), lock(other, "N'of dbo '"))
	require.Equal(t, int64(-999), lock(other, "NULL"))
	c.fails(1223, "EXEC sp_releaseapplock @Resource = N'of DBO', @LockOwner = N'Session'")
}

func TestAChecksumFollowsTheCollation(t *testing.T) {
	c := newServer(t).client()
	require.Equal(t, c.scalar("SELECT CHECKSUM(N'dbo')"), c.scalar("SELECT CHECKSUM(N'DBO ')"))
	require.NotEqual(t, c.scalar("SELECT CHECKSUM(N'dbo')"), c.scalar("SELECT CHECKSUM(N'other')"))
	require.Nil(t, c.scalar("DECLARE @none nvarchar(9); SELECT CHECKSUM(@none)"))
}

func TestTheLockTimeoutIsToBeRead(t *testing.T) {
	c := newServer(t).client()
	require.Equal(t, int64(-1), c.scalar("SELECT @@LOCK_TIMEOUT"))
	require.Equal(t, int64(50), c.scalar("SET LOCK_TIMEOUT 50; SELECT @@LOCK_TIMEOUT"))
	require.Equal(t, int64(0), c.scalar("SET LOCK_TIMEOUT 0; SELECT @@LOCK_TIMEOUT"))
}

func TestZerosAtTheEndOfABinaryDoNotCount(t *testing.T) {
	c := newServer(t).client()
	require.Equal(t, int64(1), c.scalar("SELECT CASE WHEN 0x = 0x00 AND 0x01 = 0x0100 AND 0x0001 <> 0x01 THEN 1 ELSE 0 END"))
	c.exec("CREATE TABLE dbo.keyed (id int NOT NULL PRIMARY KEY CLUSTERED, k varbinary(9) NOT NULL); CREATE UNIQUE INDEX UX_keyed ON dbo.keyed (k)")
	c.exec("INSERT dbo.keyed VALUES (1, 0x0A)")
	c.fails(2601, "INSERT dbo.keyed VALUES (2, 0x0A00)")
	require.Equal(t, int64(1), c.scalar("SELECT id FROM dbo.keyed WITH (INDEX (UX_keyed), FORCESEEK) WHERE k = 0x0A0000"))
}

func TestATypeWithoutNHasOnlyCharactersOfItsCodePage(t *testing.T) {
	c := newServer(t).client()
	require.Equal(t, "caf\u00e9 ?", c.scalar("SELECT CONVERT(varchar(9), N'caf\u00e9 \u0142')"))
	require.Equal(t, "?", c.scalar("SELECT '\u0142'"))
	require.Equal(t, "\u0142", c.scalar("SELECT N'\u0142'"))
	require.Equal(t, "?", c.call("SELECT @v", "@v varchar(9)", p{"v", typeText, "\u0142"}).sets[0][0][0])
}

func TestHintsOfOneGroupConflict(t *testing.T) {
	c := withItems(t, 1).client()
	for _, hints := range []string{"TABLOCK, READCOMMITTEDLOCK", "ROWLOCK, TABLOCK", "NOLOCK, ROWLOCK", "HOLDLOCK, READCOMMITTED", "READUNCOMMITTED, SERIALIZABLE"} {
		c.fails(1047, "SELECT id FROM dbo.items WITH ("+hints+")")
	}
	c.exec("SELECT id FROM dbo.items WITH (HOLDLOCK, TABLOCK, UPDLOCK)")
	c.exec("SELECT id FROM dbo.items WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)") // Rebus sends it, and the server accepts it
}

func TestWithUpdlockReadCommittedIsIgnored(t *testing.T) {
	c := withItems(t, 1).client()
	c.fails(650, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT id FROM dbo.items WITH (UPDLOCK, READPAST, READCOMMITTED)")
	c.exec("SELECT id FROM dbo.items WITH (READPAST, READCOMMITTEDLOCK)")
}

// The change locks the row, and READPAST has no effect on that lock.
func TestAChangeByACoveringIndexWaitsForTheRow(t *testing.T) {
	s := withItems(t, 3)
	holder, c := s.client(), s.client()
	holder.exec("BEGIN TRAN; SELECT note FROM dbo.items WITH (UPDLOCK, INDEX (PK_items)) WHERE id = 2")
	const change = "DELETE i OUTPUT deleted.id FROM dbo.items AS i WITH (UPDLOCK, READPAST, INDEX (%), FORCESEEK) WHERE due > 0 AND id > 0"
	require.Equal(t, []any{int64(1), int64(3)}, c.exec("BEGIN TRAN; "+replace(change, "PK_items")+"; ROLLBACK").values())
	waits := c.start(replace(change, "IX_items_due"))
	c.blocked()
	holder.exec("ROLLBACK")
	require.Equal(t, []any{int64(1), int64(2), int64(3)}, waits.result().values())
}

func TestTopHasParentheses(t *testing.T) {
	c := withItems(t, 3).client()
	require.Len(t, c.query("SELECT TOP 2 id FROM dbo.items"), 2)
	c.fails(102, "DECLARE @n int = 2; SELECT TOP @n id FROM dbo.items")
	c.fails(102, "DELETE TOP 2 FROM dbo.items")
	c.fails(102, "UPDATE TOP 2 dbo.items SET due = 1")
	require.Equal(t, []int64{2}, c.exec("DELETE TOP (2) FROM dbo.items").counts)
}

func TestAThrowAndAWithNeedASemicolonBefore(t *testing.T) {
	c := withItems(t, 1).client()
	c.fails(102, "DECLARE @n int\nTHROW 51000, N'own', 1")
	c.fails(51000, "DECLARE @n int; -- a comment\nTHROW 51000, N'own', 1")
	c.fails(51000, "BEGIN\nTHROW 51000, N'own', 1\nEND")
	c.fails(319, "SET NOCOUNT ON WITH c AS (SELECT id FROM dbo.items) SELECT id FROM c")
	c.exec("SET NOCOUNT ON; WITH c AS (SELECT id FROM dbo.items) SELECT id FROM c")
}

func TestADefinitionOfAModuleMustBeginItsBatch(t *testing.T) {
	c := withItems(t, 1).client()
	for _, text := range []string{"CREATE VIEW dbo.v AS SELECT id FROM dbo.items", "CREATE PROCEDURE dbo.p AS SELECT 1", "CREATE TRIGGER dbo.tr ON dbo.items AFTER DELETE AS SELECT 1", "CREATE SCHEMA other"} {
		c.fails(111, "SET NOCOUNT ON; "+text)
		c.fails(111, "IF 1 = 1 "+text)
		c.exec(text)
	}
}

func TestWithoutAPermissionThereIsNoMetadata(t *testing.T) {
	s := withItems(t, 1)
	admin := s.client()
	admin.exec("CREATE LOGIN bob WITH PASSWORD = 'pw'; CREATE USER bob FOR LOGIN bob")
	admin.exec("CREATE PROCEDURE dbo.p AS SELECT OBJECT_ID(N'dbo.items')")
	admin.exec("GRANT EXECUTE ON dbo.p TO bob")
	l, err := s.Login(t.Context(), loginOf("bob", "pw"))
	require.NoError(t, err)
	bob := &client{Session: l.(*Session), srv: s, t: t}
	defer bob.Close()
	const count = "SELECT COUNT(*) FROM sys.objects"
	require.Nil(t, bob.scalar("SELECT OBJECT_ID(N'dbo.items')"))
	require.Nil(t, bob.scalar("EXEC dbo.p"), "a procedure sees what its caller sees")
	require.Equal(t, int64(1), bob.scalar(count), "the procedure")
	admin.exec("GRANT SELECT ON dbo.items (id) TO bob")
	require.NotNil(t, bob.scalar("SELECT OBJECT_ID(N'dbo.items')"))
	require.NotNil(t, bob.scalar("EXEC dbo.p"))
	require.Equal(t, int64(2), bob.scalar(count))
}

const refusing = `CREATE TRIGGER dbo.refusing ON dbo.items AFTER INSERT, UPDATE, DELETE AS
IF EXISTS (SELECT 1 FROM inserted AS i WHERE i.id = 13)
BEGIN
	THROW 51000, N'unlucky', 1;
END;
IF EXISTS (SELECT 1 FROM deleted WHERE due = 10)
	ROLLBACK;`

func TestATriggerEndsTheTransactionOfItsStatement(t *testing.T) {
	c := withItems(t, 3).client()
	c.exec(refusing)
	c.exec("INSERT dbo.items VALUES (12, 12, '')")
	e := c.fails(51000, "INSERT dbo.items VALUES (14, 14, ''), (13, 13, ''); INSERT dbo.items VALUES (15, 15, '')")
	require.Equal(t, "refusing", e.Proc)
	require.Equal(t, []any{int64(1), int64(2), int64(3), int64(12)}, c.exec("SELECT id FROM dbo.items").values(), "and the batch")
	c.fails(51000, "BEGIN TRAN; UPDATE dbo.items SET due = 5 WHERE id = 12; UPDATE dbo.items SET id = 13 WHERE id = 12")
	require.Equal(t, int64(0), c.scalar("SELECT @@TRANCOUNT"))
	require.Equal(t, int64(12), c.scalar("SELECT due FROM dbo.items WHERE id = 12"))
	c.fails(3609, "BEGIN TRAN; DELETE dbo.items WHERE id = 3; DELETE dbo.items WHERE id = 1")
	require.Equal(t, int64(0), c.scalar("SELECT @@TRANCOUNT"))
	c.fails(3609, "DELETE dbo.items WHERE id = 1")
	require.Equal(t, int64(4), c.scalar("SELECT COUNT(*) FROM dbo.items"))
	require.Empty(t, c.srv.Locks())
}

func TestATriggerSeesTheRowsOfItsStatementAndWritesInItsTransaction(t *testing.T) {
	c := withItems(t, 3).client()
	c.exec("CREATE TABLE dbo.log (id int NOT NULL, was int NULL)")
	c.exec("CREATE TRIGGER dbo.logging ON dbo.items AFTER UPDATE AS INSERT dbo.log (id, was) SELECT i.id, d.due FROM inserted AS i INNER JOIN deleted AS d ON d.id = i.id")
	c.exec("UPDATE dbo.items SET due = 7 WHERE id > 1")
	require.Equal(t, []Row{{int64(2), int64(20)}, {int64(3), int64(30)}}, c.query("SELECT id, was FROM dbo.log ORDER BY id"))
	c.exec("BEGIN TRAN; UPDATE dbo.items SET due = 8; ROLLBACK")
	require.Equal(t, int64(2), c.scalar("SELECT COUNT(*) FROM dbo.log"))
	c.exec("INSERT dbo.items VALUES (4, 4, ''); DELETE dbo.items")
	require.Equal(t, int64(2), c.scalar("SELECT COUNT(*) FROM dbo.log"))
}

func replace(text, with string) string { return strings.Replace(text, "%", with, 1) }
