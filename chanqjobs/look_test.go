package chanqjobs

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// The jobs of a large batch are acked in the order of its IDs, so a look passes what is left of the acked ones: on
// PostgreSQL 50,000 dead rows, until a vacuum.
func TestALookIsQuickWhileALargeBatchIsDrained(t *testing.T) {
	const jobs = 50_000
	kind := Define[int]("piece")
	testdb.OnEach(t, []testdb.Engine{testdb.SQLite, testdb.Postgres}, func(w *testdb.World) {
		q := testdb.QueueOf[Job](w, "jobs", chanq.Config{Codec: Codec(nil), History: chanq.HistoryOff})
		require.NoError(w, Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		b := NewBatches(q)
		ms := make([]chanq.Message[Job], jobs)
		for i := range ms {
			ms[i] = kind.New(i)
		}
		for range 20 { // other open batches
			require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
				later := kind.New(0)
				later.Delay = time.Hour
				return b.SendTx(ctx, tx, NewBatch(), kind.New(0), later)
			}))
		}
		began := time.Now()
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			return b.SendTx(ctx, tx, NewBatch(), kind.New(0), ms...)
		}))
		sent := time.Since(began)

		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		go func() { _ = c.Handle(8, func(context.Context, *chanq.Lease[Job]) error { return nil }) }()
		var looks []time.Duration
		r := batchRunner{Batches: b}
		for ready := 0; ready == 0; {
			began := time.Now()
			found, open, err := r.look(w.Soon())
			looks = append(looks, time.Since(began))
			require.NoError(w, err)
			require.Equal(w, 21, open)
			ready = len(found)
			time.Sleep(20 * time.Millisecond)
		}
		for range 20 {
			began := time.Now()
			_, _, err := r.look(w.Soon())
			require.NoError(w, err)
			looks = append(looks, time.Since(began))
		}
		slices.Sort(looks)
		median := looks[len(looks)/2]
		w.Logf("%d jobs sent in %v; %d looks: median %v, the slowest %v", jobs, sent.Round(time.Millisecond), len(looks), median, looks[len(looks)-1])
		require.Less(w, median, 100*time.Millisecond)
	})
}
