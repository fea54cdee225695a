package chanqadmin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Pages of names are found by binary search, so names are sorted by their bytes, whatever the collation of the database.
func TestNamesOfQueuesAreInTheOrderOfTheirBytes(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		w.Queue("orders", chanq.Config{})
		for _, text := range []string{
			"ALTER TABLE chanq__queues RENAME TO others", "CREATE TABLE chanq__queues (name TEXT COLLATE NOCASE)", "INSERT INTO chanq__queues VALUES ('b'), ('a'), ('C')",
		} {
			_, err := w.DB.Exec(text)
			require.NoError(t, err, text)
		}
		names, err := chanqadmin.Queues(w.Soon(), w.DB, chanq.Config{})
		require.NoError(t, err)
		require.Equal(t, []string{"C", "a", "b"}, names)
	})
}
