package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestQueuesOnOneDatabaseShareAPoolUntilTheLastPartIsClosed(t *testing.T) {
	world(t, 0, func(w *database) {
		open := func() *Part {
			parts, err := Open(w.db, postgres.Dialect, time.Hour, Need{Kind: Enqueue, Sessions: 1})
			require.NoError(w, err)
			require.Len(w, parts, 1)
			return parts[0]
		}
		first, second := open(), open()
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
		third := open()
		require.NotSame(w, pool, third.pool)
		third.Close()
	})
}

func TestACallOnADatabaseWithOneWriterUsesItsSession(t *testing.T) {
	worldOf(t, sqlite.Dialect, 0, func(w *database) {
		parts, err := Open(w.db, sqlite.Dialect, time.Hour, Need{Kind: Enqueue, Sessions: 1})
		require.NoError(w, err)
		require.NoError(w, run(parts[0], "x"))
		call := OpenOnce(w.db, sqlite.Dialect)
		require.NoError(w, run(call, "x"))
		call.Close()
		require.Equal(w, 1, w.opened())
		parts[0].Close()
	})
}
