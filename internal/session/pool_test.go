package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestQueuesOnOneDatabaseShareAPoolUntilTheLastPartIsClosed(t *testing.T) {
	world(t, 0, func(w *database) {
		another := func() *Part {
			parts, err := w.open(Need{Kind: Enqueue, Sessions: 1})
			require.NoError(w, err)
			require.Len(w, parts, 1)
			return parts[0]
		}
		first, second := another(), another()
		require.Same(w, first.pool, second.pool)
		require.NoError(w, run(first, "x"))
		require.NoError(w, run(second, "x"))
		require.Equal(w, 1, w.opened(), "one idle session is enough for both")

		done, ok := first.Turn()
		require.True(w, ok)
		_, ok = second.Turn()
		require.False(w, ok, "one long task at a time on the database")
		done()
		done, ok = second.Turn()
		require.True(w, ok)
		done()

		first.Close()
		require.NoError(w, run(second, "x"))
		pool := second.pool
		second.Close()
		require.Zero(w, w.db.Stats().InUse, "the last part closes the sessions")
		third := another()
		require.NotSame(w, pool, third.pool)
		third.Close()
	})
}

func TestACallOnADatabaseWithOneWriterUsesItsSession(t *testing.T) {
	worldOf(t, sqlite.Dialect, 0, func(w *database) {
		parts, err := w.open(Need{Kind: Enqueue, Sessions: 1})
		require.NoError(w, err)
		require.NoError(w, run(parts[0], "x"))
		call := OpenOnce(w.db, sqlite.Dialect)
		require.NoError(w, run(call, "x"))
		call.Close()
		require.Equal(w, 1, w.opened())
		parts[0].Close()
	})
}
