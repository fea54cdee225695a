package limits_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Faults that only a server has: it ends statements by itself, locks tables, and loses bytes of a
// body.

// newServer creates a database on PostgreSQL.
func newServer(t *testing.T) *world {
	testdb.Long(t)
	t.Parallel()
	return newWorld(t, testdb.Postgres)
}

// limited opens the queue on sessions with a statement_timeout.
func (w *world) limited(cfg chanq.Config, timeout time.Duration) *chanq.Queue[string] {
	w.Helper()
	w.Exec(fmt.Sprintf("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET statement_timeout = %d', current_database()); END $$", timeout.Milliseconds()))
	_, db := w.Connect()
	w.Eventually("the queue is opened", func() bool { // on a slow machine a try might exceed the timeout
		_, err := chanq.Open[string](w.Soon(), db, "work", cfg)
		return err == nil
	})
	return testdb.OpenOn[string](w, db, "work", cfg)
}

// A message whose INSERT exceeds the role's statement_timeout, each time, does not keep others from
// being stored.
func TestOnPostgreSQLASendEndedByTheServerDelaysNoOther(t *testing.T) {
	w := newServer(t)
	q := w.Queue("work", chanq.Config{})
	w.Exec(`CREATE FUNCTION sleeping() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$`)
	w.Exec(`CREATE TRIGGER sleeping BEFORE INSERT ON chanq_work FOR EACH ROW WHEN (NEW.body = 'heavy') EXECUTE FUNCTION sleeping()`)
	p := testdb.Produce(w, w.limited(chanq.Config{}, 100*time.Millisecond), chanq.ProducerConfig{})
	ctx, cancel := context.WithCancel(w.Soon())
	heavy := make(chan error, 1)
	go func() {
		_, err := p.Send(ctx, testdb.Texts("heavy")[0])
		heavy <- err
	}()
	w.Eventually("the send is running", func() bool { return p.Stats().Pending > 0 })
	for range 20 {
		testdb.SendBy(w, p, testdb.Texts("light")...)
	}
	require.Empty(t, heavy)
	cancel()
	require.ErrorIs(t, <-heavy, context.Canceled)
	require.NoError(t, p.Flush(w.Soon()))
	require.NoError(t, p.Close(w.Soon()))
	require.Equal(t, chanqadmin.Stats{Ready: 20}, testdb.Counted(w, q))
}

// Bodies arrive although the role's statement_timeout allows reading only a few of them at once.
func TestOnPostgreSQLLargeBodiesArriveAlthoughTheServerEndsStatements(t *testing.T) {
	const count = 16
	w := newServer(t)
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: 32 << 20}})
	for i := range count {
		testdb.Send(w, q, chanq.Message[string]{Body: strings.Repeat(fmt.Sprintf("%08d", i), 5<<18)})
	}
	testdb.Send(w, q, testdb.Texts("light")...)
	c := testdb.Start(w, w.limited(chanq.Config{}, testdb.Slowness*time.Second), chanq.ConsumerConfig{PrefetchBytes: 1 << 30})
	for _, l := range testdb.Take(w, c, count+1) {
		require.Equal(t, 1, l.Attempt)
		require.NoError(t, l.Ack())
	}
	require.NoError(t, c.Shutdown(w.Soon()))
	require.Zero(t, testdb.Counted(w, q))
}

// CREATE INDEX locks its table against writes. On the dead-letter table that delays dead-letters,
// but no acks.
func TestOnPostgreSQLAnIndexOnTheDeadLetterTableDelaysNoAck(t *testing.T) {
	w := newServer(t)
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(strings.Fields(strings.Repeat("m ", 20))...)...)
	c := testdb.Start(w, w.limited(chanq.Config{}, 300*time.Millisecond), chanq.ConsumerConfig{LeaseFor: time.Minute})
	leases := testdb.Take(w, c, 20)
	index, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(t, err)
	_, err = index.ExecContext(w.Soon(), "CREATE INDEX slow ON chanq_work__dead (enqueued_at)")
	require.NoError(t, err)
	for i, l := range leases {
		if i < 5 {
			require.NoError(t, l.Nack(chanq.DeadLetter(nil)))
		} else {
			require.NoError(t, l.Ack())
		}
	}
	for _, l := range leases[5:] {
		require.NoError(t, l.Wait(w.Soon()))
	}
	require.Equal(t, chanqadmin.Stats{Leased: 5}, testdb.Counted(w, q))
	require.NoError(t, index.Rollback())
	for _, l := range leases[:5] {
		require.NoError(t, l.Wait(w.Soon()))
	}
	require.Equal(t, chanqadmin.Stats{Dead: 5}, testdb.Counted(w, q))
	require.NoError(t, c.Shutdown(w.Soon()))
}

// On the live table it delays everything, and no message fails an attempt.
func TestOnPostgreSQLAnIndexOnTheLiveTableCostsNoAttempt(t *testing.T) {
	w := newServer(t)
	cfg := chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}}
	q := w.Queue("work", cfg)
	limited := w.limited(cfg, 300*time.Millisecond)
	c := testdb.Start(w, limited, chanq.ConsumerConfig{LeaseFor: time.Minute, PollEvery: 50 * time.Millisecond})
	index, err := w.DB.BeginTx(w.Soon(), nil)
	require.NoError(t, err)
	testdb.Send(w, q, testdb.Texts(strings.Fields(strings.Repeat("m ", 20))...)...)
	leases := testdb.Take(w, c, 10)
	_, err = index.ExecContext(w.Soon(), "CREATE INDEX slow ON chanq_work (enqueued_at)")
	require.NoError(t, err)
	p := testdb.Produce(w, limited, chanq.ProducerConfig{})
	sent := make(chan error, 1)
	go func() {
		_, err := p.SendBatch(w.Soon(), testdb.Texts("during", "during")...)
		sent <- err
	}()
	for _, l := range leases {
		require.NoError(t, l.Ack())
	}
	<-time.After(5 * time.Second) // meanwhile statements time out
	require.Empty(t, sent)
	require.NoError(t, index.Rollback())
	require.NoError(t, <-sent)
	for _, l := range append(leases, testdb.Take(w, c, 12)...) {
		require.Equal(t, 1, l.Attempt)
		_ = l.Ack()
		require.NoError(t, l.Wait(w.Soon()))
	}
	require.NoError(t, c.Shutdown(w.Soon()))
	require.NoError(t, p.Close(w.Soon()))
	require.Zero(t, testdb.Counted(w, q))
}

// A body of which PostgreSQL has lost a part affects only its own message.
func TestOnPostgreSQLADamagedBodyDelaysNoOtherMessage(t *testing.T) {
	w := newServer(t)
	if _, err := w.DB.ExecContext(w.Soon(), "CREATE EXTENSION pg_surgery"); err != nil {
		t.Skipf("NOT TESTED: a damaged body needs the extension pg_surgery: %v", err)
	}
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}})
	w.Exec("ALTER TABLE chanq_work ALTER COLUMN body SET STORAGE EXTERNAL")
	damaged := testdb.Send(w, q, testdb.Texts(strings.Repeat("damaged", 10_000))...)[0]
	var parts string
	require.NoError(t, w.DB.QueryRowContext(w.Soon(), "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'chanq_work'::regclass").Scan(&parts))
	w.Exec("SELECT heap_force_kill('" + parts + "'::regclass, ARRAY(SELECT ctid FROM " + parts + "))")
	var body []byte
	require.ErrorContains(t, w.DB.QueryRowContext(w.Soon(), "SELECT body FROM chanq_work").Scan(&body), "XX001")

	long := strings.Repeat("whole", 10_000)
	c := testdb.Start(w, q, chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return 0 }})
	for range 3 {
		bodies := make([]string, 50)
		for i := range bodies {
			bodies[i] = long
		}
		testdb.Send(w, q, testdb.Texts(bodies...)...)
		for _, l := range testdb.Take(w, c, 50) {
			require.NotEqual(t, damaged, l.ID)
			require.Equal(t, 1, l.Attempt)
			require.NoError(t, l.Ack())
			require.NoError(t, l.Wait(w.Soon()))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Shutdown(ctx) // the damaged message cannot be moved to the dead-letter table
}
