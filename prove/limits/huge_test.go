package limits_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

func TestAHugeBodyAffectsNoOtherMessage(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.Queue("work", chanq.Config{})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		huge := strings.Repeat("x", 64<<20)
		st := w.Statements("work")
		var sends atomic.Int64 // the producer connects meanwhile
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if testdb.RunsStore(op, 1, st.Enqueue) || testdb.RunsStore(op, 1, st.EnqueueNew) {
				sends.Add(1)
			}
			return faultdb.Fault{}
		})
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: huge})
		require.ErrorIs(w, err, chanq.ErrTooLarge)
		require.Less(w, len(err.Error()), 500, "the error does not carry the body")
		require.Zero(w, sends.Load(), "nothing was sent to the database")
		w.Faults.Inject(nil)

		_, err = p.SendBatch(w.Soon(), []chanq.Message[string]{{Body: "a"}, {Body: huge}, {Body: "b"}}...)
		var batch *chanq.BatchError
		require.ErrorAs(w, err, &batch)
		require.NoError(w, errors.Join(batch.Errs[0], batch.Errs[2]))
		require.ErrorIs(w, batch.Errs[1], chanq.ErrTooLarge)

		p.C() <- chanq.Message[string]{Body: huge}
		for range 100 {
			p.C() <- chanq.Message[string]{Body: "c"}
		}
		testdb.SendBy(w, p, testdb.Texts("d")...)
		require.ErrorIs(w, p.Flush(w.Soon()), chanq.ErrTooLarge)
		err = p.Close(w.Soon())
		var unsent *chanq.UnsentError[string]
		require.ErrorAs(w, err, &unsent)
		require.Len(w, unsent.Unsent, 1)
		require.Len(w, unsent.Unsent[0].Message.Body, 64<<20)
		require.Less(w, len(err.Error()), 500)
		require.Equal(w, chanqadmin.Stats{Ready: 103}, testdb.Counted(w, q))
	})
}
