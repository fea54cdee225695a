package guarantees

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// pgx caches prepared statements. After the ALTER the server refuses them, once per connection, with the SQLSTATE of a feature that it does
// not support (0A000).
func TestOnPostgreSQLAChangeOfAColumnsTypeEndsNothing(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.Postgres}, func(w *testdb.World) {
		for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
			name := "work_" + kind.String()
			q := w.Queue(name, chanq.Config{Spec: chanq.Spec{Kind: kind}})
			c := testdb.Start(w, q, chanq.ConsumerConfig{})
			deliver := func(text string) {
				for range 3 {
					_, err := q.Send(w.Soon(), testdb.Texts("a")...)
					require.NoError(w, err, text)
					require.NoError(w, testdb.Take(w, c, 1)[0].Ack(), text)
					_, err = testdb.Peek(w.Soon(), q, chanqadmin.StateReady, 1)
					require.NoError(w, err, text)
				}
			}
			deliver("before")
			for _, change := range []string{"type TYPE varchar(100)", "attempts TYPE bigint"} {
				w.Exec(`ALTER TABLE chanq_` + name + ` ALTER COLUMN ` + change)
				deliver(change)
			}
			require.NoError(w, c.Err())
		}
	})
}
