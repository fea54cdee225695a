package chanqadmin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Each transaction is short, and the next one begins before Locks gets the file.
func TestShortTransactionsDoNotLockAFile(t *testing.T) {
	testdb.Run(t, testdb.SQLiteFile, func(w *testdb.World) {
		q := testdb.Admin(w.Queue("orders", chanq.Config{}))
		_, db := w.Connect()
		begun := make(chan struct{}, 2)
		write := func(hold time.Duration, commits bool) {
			tx, err := db.BeginTx(w.Soon(), nil)
			require.NoError(w, err)
			_, err = tx.ExecContext(w.Soon(), "UPDATE chanq__queues SET created_at = created_at + 1")
			require.NoError(w, err)
			begun <- struct{}{}
			time.Sleep(hold)
			if commits {
				require.NoError(w, tx.Commit())
			} else {
				require.NoError(w, tx.Rollback())
			}
		}
		for commits, want := range map[bool]int{true: 0, false: 1} {
			ended := make(chan struct{})
			w.Cleanup(func() { <-ended })
			go func() {
				defer close(ended)
				if commits {
					write(700*time.Millisecond, true)
				}
				write(3*time.Second, false)
			}()
			<-begun
			list, err := q.Locks(w.Soon())
			require.NoError(w, err)
			require.Len(w, list, want, "commits %v", commits)
			for _, l := range list {
				require.True(w, l.File)
				require.False(w, l.Reads)
				require.GreaterOrEqual(w, l.For, time.Second)
			}
			<-ended
			if commits {
				<-begun
			}
			list, err = q.Locks(w.Soon())
			require.NoError(w, err)
			require.Empty(w, list)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := q.Locks(ended)
		require.ErrorIs(w, err, context.Canceled)
		_, err = chanqadmin.Locks(w.Soon(), w.DB, "No", chanq.Config{})
		require.ErrorContains(w, err, "chanq: locks No: queue name")
	})
}
