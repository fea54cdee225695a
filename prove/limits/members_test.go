package limits_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// Another transaction locks the row of an ordered queue's only consumer, which cannot renew its membership.
func TestALockOnTheRowOfAConsumerDelaysItsMessagesByALeaseOnly(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.Emulator, testdb.EmulatorVersions, testdb.Postgres}, func(w *testdb.World) {
		q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Second})
		pass := func() {
			testdb.SendBy(w, p, chanq.Message[string]{Key: "a", Body: "a"})
			require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
		}
		pass()
		_, elsewhere := w.Connect()
		tx, err := elsewhere.Begin()
		require.NoError(w, err)
		w.Cleanup(func() { _ = tx.Rollback() }) // of a test that failed
		_, err = tx.Exec(`UPDATE chanq__consumers SET host = host`)
		require.NoError(w, err)
		for range 4 {
			time.Sleep(time.Second / 2)
			pass()
		}
		require.NoError(w, tx.Rollback())
		pass()
	})
}
