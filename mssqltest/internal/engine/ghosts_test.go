package engine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func ghosts(o *Options) { o.KeepGhosts = true }

const firstDue = "SELECT TOP (1) id FROM dbo.items WITH (READPAST, READCOMMITTEDLOCK, INDEX (IX_items_due), FORCESEEK) WHERE due > 0 ORDER BY due, id"

// keysRead returns the number of keys that one run of a text reads.
func (c *client) keysRead(text string) int64 {
	c.srv.ResetQueryStats()
	c.exec(text)
	for _, plan := range c.srv.QueryStats() {
		if plan.Text == text {
			return plan.KeysRead
		}
	}
	return 0
}

func TestGhostsAreWalkedAndNeverReturnedUntilTheirCleanup(t *testing.T) {
	for _, level := range []func(*Options){func(*Options) {}, rcsi} {
		s := withItems(t, 20, ghosts, level)
		c := s.client()
		c.exec("DELETE dbo.items WHERE id <= 8; UPDATE dbo.items SET due = due + 1000 WHERE id <= 12")
		require.Equal(t, []any{int64(13)}, c.exec(firstDue).values())
		require.EqualValues(t, 13, c.keysRead(firstDue), "those of eight rows and of four keys that moved")
		require.EqualValues(t, 1, c.keysRead("SELECT TOP (1) id FROM dbo.items WITH (INDEX (IX_items_due), FORCESEEK) WHERE due > 120 ORDER BY due, id"))
		require.EqualValues(t, 12, c.scalar("SELECT COUNT(*) FROM dbo.items"))
		c.exec("INSERT dbo.items VALUES (3, 30, 'again')")
		require.Equal(t, []any{int64(3)}, c.exec(firstDue).values())
		s.CleanGhosts()
		c.exec("DELETE dbo.items WHERE id = 3")
		require.EqualValues(t, 2, c.keysRead(firstDue), "the ghost since then")
	}
}

func TestAGhostStaysLockedUntilItsDeleteCommits(t *testing.T) {
	s := withItems(t, 2, ghosts)
	writer, reader := s.client(), s.client()
	writer.exec("BEGIN TRAN; DELETE dbo.items WHERE id = 1")
	require.Equal(t, []any{int64(2)}, reader.exec(firstDue).values(), "a reader that skips locked rows continues")
	read := reader.start("SELECT id FROM dbo.items WITH (READCOMMITTEDLOCK) WHERE due > 0")
	reader.blocked()
	writer.exec("COMMIT")
	require.Equal(t, []any{int64(2)}, read.result().values())
}

func TestWithoutThatOptionDeletedRowsLeaveNothing(t *testing.T) {
	s := withItems(t, 20)
	c := s.client()
	c.exec("DELETE dbo.items WHERE id <= 8")
	require.EqualValues(t, 1, c.keysRead(firstDue))
}

func TestEntriesOfIndexesThatAStatementWritesAreCounted(t *testing.T) {
	c := newServer(t).client()
	c.exec(itemsTable + "CREATE INDEX IX_items_note ON dbo.items (note)")
	c.exec("INSERT dbo.items VALUES (1, 10, 'n1'), (2, 20, 'n2'), (3, 30, 'n3'), (4, 40, 'n4'), (5, 50, 'n5')")
	for text, want := range map[string]int64{
		"INSERT dbo.items VALUES (6, 60, 'n6'), (7, 70, 'n7')": 4,
		"UPDATE dbo.items SET due = 55 WHERE id = 5":           2, // the entry is removed and added
		"UPDATE dbo.items SET note = 'x' WHERE id = 4":         2,
		"UPDATE dbo.items SET note = 'n3' WHERE id = 3":        0,
		"DELETE dbo.items WHERE id <= 2":                       4,
	} {
		c.srv.ResetQueryStats()
		c.exec(text)
		for _, plan := range c.srv.QueryStats() {
			if plan.Text == text {
				require.Equal(t, want, plan.KeysWritten, text)
			}
		}
	}
}

func TestUpdlockKeepsTheLocksOfRowsThatDoNotQualify(t *testing.T) {
	for hints, kept := range map[string]int{"UPDLOCK, ": 4, "READCOMMITTEDLOCK, ": 0} {
		s := withItems(t, 2)
		holder, other := s.client(), s.client()
		holder.exec(fmt.Sprintf("BEGIN TRAN; SELECT id FROM dbo.items WITH (%sREADPAST, INDEX (IX_items_due), FORCESEEK) WHERE due > 0 AND note = 'none'", hints))
		held := 0
		for _, l := range s.Locks() {
			if l.Resource.Key != "" {
				held++
			}
		}
		require.Equal(t, kept, held, "%s: entry and row", hints)
		require.Len(t, other.exec("UPDATE dbo.items WITH (READPAST) SET note = 'x' OUTPUT inserted.id").values(), 2-kept/2)
		holder.exec("ROLLBACK")
	}
}
