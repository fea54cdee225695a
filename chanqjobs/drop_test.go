package chanqjobs_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
)

// A queue that is made again must not send the done job of a batch whose jobs were dropped.
func TestADroppedQueueTakesItsBatchesResultsAndProgressAlong(t *testing.T) {
	onEachBatch(t, engines, func(w *batchWorld) {
		other := jobsOf(w.World, "other", chanq.Config{History: chanq.HistoryOff})
		kept := func(q *chanq.Queue[chanqjobs.Job]) chanq.ID {
			m := doubling(w.World, q, chanqjobs.Options{})
			id := testdb.Send(w.World, q, charge.New(7))[0]
			handle(w.World, q, 1, m.Handle, chanq.ConsumerConfig{})
			testdb.Send(w.World, q, note.New("it reports"))
			l := testdb.Receive(w.World, testdb.Start(w.World, q, chanq.ConsumerConfig{}).C(), "the job")
			require.NoError(w, chanqjobs.ReporterOf(q, l).Report(w.Soon(), 0.5, "half"))
			return id
		}
		kept(w.jobs)
		result := kept(other)
		batch := w.send(1, 2)
		require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), "jobs", chanq.Config{}, chanqadmin.Change{}))

		for table, left := range map[string]int{"batches": 0, "results": 1, "progress": 1} {
			var n int
			require.NoError(w, w.DB.QueryRowContext(w.Soon(), other.Names().SQL("SELECT count(*) FROM {chanq__"+table+"}")).Scan(&n))
			require.Equal(w, left, n, table)
		}
		got, err := chanqjobs.Await[sum](w.Soon(), other, result)
		require.NoError(w, err)
		require.Equal(w, sum{7, 14}, got)

		again := newBatchWorld(w.World)
		_, err = again.Status(w.Soon(), batch)
		require.ErrorIs(w, err, chanqjobs.ErrNoBatch)
		again.run(again.Batches)
		time.Sleep(1500 * time.Millisecond)
		require.Empty(w, again.done())
	})
}

// As consumers do.
func TestBatchesAndDeathsEndWithTheirQueue(t *testing.T) {
	onEachBatch(t, engines, func(w *batchWorld) {
		w.send(1)
		deaths := chanqjobs.NewDeaths(w.jobs, func(context.Context, *sql.Tx, chanqadmin.Entry) error { return nil })
		ended := make(chan error, 2)
		for _, run := range []chanqjobs.Part{w.Run, deaths.Run} {
			go func() { ended <- run(w.Soon()) }()
		}
		time.Sleep(1500 * time.Millisecond)
		require.Empty(w, ended)
		require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), "jobs", chanq.Config{}, chanqadmin.Change{}))
		for range cap(ended) {
			require.ErrorIs(w, testdb.Receive(w, ended, "the end"), chanq.ErrNoSchema)
		}
	})
}
