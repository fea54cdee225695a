package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACatchRunsForTheFirstErrorOfItsTry(t *testing.T) {
	c := withItems(t, 2).client()
	r := c.exec(`BEGIN TRY
	SELECT 1; INSERT dbo.items (id) VALUES (1); SELECT 2;
END TRY
BEGIN CATCH
	SELECT ERROR_NUMBER();
END CATCH;
SELECT 3; IF ERROR_NUMBER() IS NULL SELECT 4;`)
	require.Equal(t, []any{int64(1), int64(515), int64(3), int64(4)}, r.values())
	require.Empty(t, r.errors)
	require.Equal(t, []any{int64(1), int64(2)}, c.exec("BEGIN TRY SELECT 1; END TRY BEGIN CATCH SELECT 9; END CATCH; SELECT 2").values())
	c.fails(515, "BEGIN TRY INSERT dbo.items (id) VALUES (1); END TRY BEGIN CATCH THROW; END CATCH; SELECT 1")
	c.fails(10704, "THROW;")
	require.Equal(t, []any{int64(51000)}, c.exec(`BEGIN TRY
	BEGIN TRY INSERT dbo.items (id) VALUES (1); END TRY BEGIN CATCH THROW 51000, 'x', 1; END CATCH
END TRY BEGIN CATCH SELECT ERROR_NUMBER(); END CATCH`).values())
}

func TestALockTimeoutThatIsCaughtLeavesTheTransactionOpen(t *testing.T) {
	s := withItems(t, 2)
	writer, reader := s.client(), s.client()
	writer.exec("BEGIN TRAN; UPDATE dbo.items SET note = 'new' WHERE id = 1")
	r := reader.exec(`SET XACT_ABORT OFF; SET LOCK_TIMEOUT 0; BEGIN TRAN; UPDATE dbo.items SET note = 'mine' WHERE id = 2;
BEGIN TRY SELECT note FROM dbo.items WHERE id = 1; END TRY BEGIN CATCH SELECT ERROR_NUMBER(); END CATCH;
SELECT @@TRANCOUNT; COMMIT`)
	require.Contains(t, r.values(), int64(1222))
	require.Equal(t, int64(1), r.values()[len(r.values())-1])
	require.Equal(t, "mine", reader.scalar("SELECT note FROM dbo.items WHERE id = 2"))

	reader.fails(1222, "SET XACT_ABORT ON; BEGIN TRAN; BEGIN TRY SELECT note FROM dbo.items WHERE id = 1; END TRY BEGIN CATCH SELECT 1; END CATCH")
}
