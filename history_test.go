package chanq

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
)

// sample is a sum of samples.
type sample struct {
	counted                             bool
	ready, dead                         int64
	sent, acked, nacked, died, delivers int64
	times                               sqlbatch.Times
}

// The steps of samples.
var stepFine, stepMinute, stepHour = sampleStep(0), sampleStep(1), sampleStep(2)

func sampleStep(i int) time.Duration { return time.Duration(sqlbatch.SampleSteps[i]) * time.Second }

// read returns the sum of the samples of a step.
func read(ctx context.Context, q *Queue[string], step time.Duration) (sum sample, err error) {
	err = q.core.once(ctx, q.core.table.SQL.Samples(0, step), func(rows *sql.Rows) error {
		var s sample
		var at int64
		var ready, scheduled, leased, dead, oldest sql.NullInt64
		into := []any{&at, &ready, &scheduled, &leased, &dead, &oldest, &s.sent, &s.acked, &s.nacked, &s.died,
			&s.delivers}
		var times sqlbatch.Times
		for i := range times {
			into = append(into, &times[i])
		}
		err := rows.Scan(into...)
		for i, n := range times {
			sum.times[i] += n
		}
		sum.sent, sum.acked, sum.nacked, sum.died, sum.delivers = sum.sent+s.sent, sum.acked+s.acked,
			sum.nacked+s.nacked, sum.died+s.died, sum.delivers+s.delivers
		if ready.Valid {
			sum.counted, sum.ready, sum.dead = true, max(sum.ready, ready.Int64), max(sum.dead, dead.Int64)
		}
		return err
	})
	return sum, q.core.fail("history", err)
}

// total is read, which must not fail.
func total(t *testing.T, q *Queue[string], step time.Duration) sample {
	t.Helper()
	sum, err := read(t.Context(), q, step)
	require.NoError(t, err)
	return sum
}

// peek returns the counts that are not in the history yet.
func peek(q *Queue[string]) sqlbatch.Sample {
	s := q.core.recorder.Take()
	q.core.recorder.Add(s)
	return s
}

// recorded waits until the history meets a condition.
func recorded(t *testing.T, q *Queue[string], is func(sample) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return is(total(t, q, stepFine)) }, time.Minute, 5*time.Millisecond)
}

func TestTheHistoryHasWhatBecameOfAQueue(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	q.core.recorder.Every = 20 * time.Millisecond
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.SendBatch(soon(t), Message[string]{Body: "a"}, Message[string]{Body: "b"}, Message[string]{Body: "c"},
		Message[string]{Body: "d"})
	require.NoError(t, err)
	recorded(t, q, func(s sample) bool { return s.sent == 4 && s.counted && s.ready == 4 })

	c := testConsumer(t, q, ConsumerConfig{})
	leases, err := c.Receive(soon(t), 4, 0)
	require.NoError(t, err)
	for i := len(leases); i < 4; i++ {
		leases = append(leases, <-c.C())
	}
	require.NoError(t, leases[0].Ack())
	require.NoError(t, leases[1].Ack())
	require.NoError(t, leases[2].Nack(RetryAfter(time.Hour, errors.New("later"))))
	require.NoError(t, leases[3].Nack(DeadLetter(errors.New("never"))))
	c.core.dispose(&leases[0].Delivery, 700*time.Millisecond, nil) // a call of a handler
	c.core.dispose(&leases[1].Delivery, 0, nil)                    // one that took less than a step of a coarse clock
	recorded(t, q, func(s sample) bool { return s.acked == 2 && s.nacked == 1 && s.died == 1 && s.delivers == 4 })
	for _, step := range []time.Duration{stepFine, stepMinute, stepHour} {
		s := total(t, q, step)
		require.Equal(t, [5]int64{4, 2, 1, 1, 4}, [5]int64{s.sent, s.acked, s.nacked, s.died, s.delivers}, step)
		calls := s.times[10] % sqlbatch.OneWait
		require.EqualValues(t, 1, calls, "512 ms to 1024 ms")
		var times int64
		for _, n := range s.times[:sqlbatch.TimesOf(time.Minute)] {
			times += n
		}
		require.Equal(t, 4*sqlbatch.OneWait+2*sqlbatch.OneCall, times, "waits by the database's clock")
	}
}

func TestTheLastPartOfAQueueNotesWhatIsLeft(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	q.core.recorder.Every = 700 * time.Millisecond
	p := testProducer(t, q, ProducerConfig{})
	recorded(t, q, func(s sample) bool { return s.counted }) // now it sleeps for that long
	_, err := p.Send(soon(t), Message[string]{Body: "a"})
	require.NoError(t, err)
	require.NoError(t, p.Close(soon(t)))
	require.Equal(t, int64(1), total(t, q, stepFine).sent)
}

// A program that runs only for seconds, started again and again, also deletes old samples.
func TestAYoungProgramKeepsTheHistoryBounded(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	_, err := q.core.db.ExecContext(t.Context(),
		`INSERT INTO chanq__samples
  (queue, step, at, sent, acked, nacked, died, delivered) VALUES ('orders', 10, 0, 7, 0, 0, 0, 0)`)
	require.NoError(t, err)
	q.core.recorder.Every = 20 * time.Millisecond
	testProducer(t, q, ProducerConfig{})
	recorded(t, q, func(s sample) bool { return s.counted && s.sent == 0 })
}

// A refused deletion is reported once, not with each sample that can be stored.
func TestAHistoryThatMayNotBeThinnedIsReportedOnce(t *testing.T) {
	events := make(chan HousekeepingEvent, 100)
	q := openTestQueue[string](t, Config{Hooks: Hooks{Housekeeping: func(e HousekeepingEvent) { events <- e }}})
	_, err := q.core.db.ExecContext(t.Context(), `INSERT INTO chanq__samples
  (queue, step, at, sent, acked, nacked, died, delivered) VALUES ('orders', 10, 0, 7, 0, 0, 0, 0);
		CREATE TRIGGER kept BEFORE DELETE ON chanq__samples BEGIN SELECT RAISE(ABORT, 'kept'); END`)
	require.NoError(t, err)
	q.core.recorder.Every = 20 * time.Millisecond
	p := testProducer(t, q, ProducerConfig{})
	require.Error(t, (<-events).Err)
	for range 5 {
		before := total(t, q, stepFine).sent
		_, err := p.Send(soon(t), Message[string]{Body: "a"})
		require.NoError(t, err)
		recorded(t, q, func(s sample) bool { return s.sent > before })
	}
	require.Empty(t, events)
}

func TestWhatCannotBeNotedIsNotedLater(t *testing.T) {
	events := make(chan HousekeepingEvent, 100)
	q := openTestQueue[string](t, Config{Hooks: Hooks{Housekeeping: func(e HousekeepingEvent) { events <- e }}})
	_, err := q.core.db.ExecContext(t.Context(), "ALTER TABLE chanq__samples RENAME TO away")
	require.NoError(t, err)
	_, err = read(t.Context(), q, stepHour)
	require.ErrorIs(t, err, ErrNoSchema)
	q.core.recorder.Every = 20 * time.Millisecond
	p := testProducer(t, q, ProducerConfig{})
	_, err = p.Send(soon(t), Message[string]{Body: "a"})
	require.NoError(t, err)
	e := <-events
	require.Equal(t, "history", e.Task)
	require.ErrorIs(t, e.Err, ErrNoSchema)
	_, err = q.core.db.ExecContext(t.Context(), "ALTER TABLE away RENAME TO chanq__samples")
	require.NoError(t, err)
	recorded(t, q, func(s sample) bool { return s.sent == 1 })
	require.NoError(t, (<-events).Err, "it continues")
}

func TestAHistoryThatIsOffWritesNothing(t *testing.T) {
	q := openTestQueue[string](t, Config{History: HistoryOff})
	q.core.recorder.Every = time.Millisecond
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.Send(soon(t), Msg("a"))
	require.NoError(t, err)
	_, err = q.Send(soon(t), Msg("b"))
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond)
	require.Zero(t, total(t, q, stepFine))
	_, err = Open[string](t.Context(), q.core.db, "orders", Config{History: 7})
	require.ErrorContains(t, err, "Config.History is 7")
}

// opener creates an empty database.
type opener = func(testing.TB) *sql.DB

// onEngines runs a function on each engine.
func onEngines[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, do func(T, opener)) {
	for name, open := range map[string]opener{
		"sqlite":   openSQLite,
		"postgres": func(t testing.TB) *sql.DB { return pgtest.Open(t) },
		"emulator": func(t testing.TB) *sql.DB {
			db, err := sql.Open("sqlserver", mssqltest.Start(t, mssqltest.Options{}).DSN())
			require.NoError(t, err)
			return db
		},
	} {
		t.Run("engine="+name, func(t T) {
			do(t, func(t testing.TB) *sql.DB {
				db := open(t)
				t.Cleanup(func() { db.Close() })
				return db
			})
		})
	}
}

func TestTheHistoryCountsWhatTransactionsDo(t *testing.T) {
	onEngines(t, func(t *testing.T, open opener) {
		db := open(t)
		require.NoError(t, Migrate(t.Context(), db, "orders", Config{}))
		q, err := Open[string](t.Context(), db, "orders", Config{})
		require.NoError(t, err)
		q.core.recorder.Every = time.Hour // so that no sample takes the counts while the test reads them
		in := func(do func(*sql.Tx), end func(*sql.Tx) error) {
			t.Helper()
			tx, err := db.BeginTx(soon(t), nil)
			require.NoError(t, err)
			do(tx)
			require.NoError(t, end(tx))
		}
		in(func(tx *sql.Tx) {
			_, err := q.SendTx(soon(t), tx, Message[string]{Body: "a", DedupKey: "k"},
				Message[string]{Body: "b", DedupKey: "k"}, Message[string]{Body: "c"}, Message[string]{Body: "d"})
			require.NoError(t, err)
		}, (*sql.Tx).Commit)
		counted := func() [3]int64 {
			s := peek(q)
			return [3]int64{s.Sent, s.Acked, s.Nacked}
		}
		require.Equal(t, [3]int64{3, 0, 0}, counted(), "a duplicate is not sent")

		c := testConsumer(t, q, ConsumerConfig{})
		leases := []*Lease[string]{<-c.C(), <-c.C(), <-c.C()}
		all := func(tx *sql.Tx) { require.NoError(t, AckTx(soon(t), tx, leases...)) }
		in(all, (*sql.Tx).Rollback)
		require.NoError(t, leases[2].Nack(RetryAfter(time.Hour, nil)))
		require.NoError(t, leases[2].Wait(soon(t)))
		// A settle is counted after Wait has returned.
		count := func(want [3]int64, why string) {
			t.Helper()
			require.Eventually(t, func() bool { return counted() == want }, time.Minute, time.Millisecond, why)
		}
		count([3]int64{3, 3, 1}, "acks in a transaction count at the call")
		require.NoError(t, leases[1].Ack())
		require.NoError(t, leases[1].Wait(soon(t)))
		count([3]int64{3, 4, 1}, "also after a rollback")
		leases = leases[:1]
		in(all, (*sql.Tx).Commit)
		require.NoError(t, leases[0].Ack())
		require.ErrorIs(t, leases[0].Wait(soon(t)), ErrSettled)
		require.Equal(t, [3]int64{3, 5, 1}, counted(), "once")

		p, err := q.Producer(t.Context(), ProducerConfig{}) // stores the counts
		require.NoError(t, err)
		_, err = q.core.recorder.Store(soon(t), q.core.recorder.Take())
		require.NoError(t, err)
		require.NoError(t, p.Close(soon(t)))
		s := total(t, q, stepFine)
		require.Equal(t, [3]int64{3, 5, 1}, [3]int64{s.sent, s.acked, s.nacked})
	})
}

// In a transaction of InTx nothing is counted before the commit.
func TestTheHistoryCountsWhatInTxHasCommitted(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	q.core.recorder.Every = time.Hour
	db := q.core.db
	counted := func() [2]int64 { s := peek(q); return [2]int64{s.Sent, s.Acked} }
	failed := errors.New("failed")
	send := func(end error) error {
		return InTx(soon(t), db, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.SendTx(ctx, tx, Message[string]{Body: "a", DedupKey: "k"},
				Message[string]{Body: "b", DedupKey: "k"})
			require.NoError(t, err)
			_, err = q.SendTx(ctx, tx, Msg("c"), Msg("d"))
			require.NoError(t, err)
			require.Equal(t, [2]int64{}, counted())
			return end
		})
	}
	require.Equal(t, failed, send(failed))
	require.Equal(t, [2]int64{}, counted())
	require.NoError(t, send(nil))
	require.Equal(t, [2]int64{3, 0}, counted(), "a duplicate is not sent")

	c := testConsumer(t, q, ConsumerConfig{})
	leases := []*Lease[string]{<-c.C(), <-c.C(), <-c.C()}
	ack := func(end error) error {
		return InTx(soon(t), db, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, AckTx(ctx, tx, leases...))
			require.Equal(t, [2]int64{3, 0}, counted())
			return end
		})
	}
	require.Equal(t, failed, ack(failed))
	require.Equal(t, [2]int64{3, 0}, counted())
	require.NoError(t, ack(nil))
	require.Equal(t, [2]int64{3, 3}, counted())
}

// A program might have neither a producer nor a consumer.
func TestTheHistoryHasWhatAProgramSendsThatOnlySends(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	q.core.recorder.Every = 20 * time.Millisecond
	for sent := int64(1); sent <= 4; sent++ {
		if sent%2 == 0 {
			_, err := q.Send(soon(t), Msg("a"))
			require.NoError(t, err)
		} else {
			tx, err := q.core.db.BeginTx(soon(t), nil)
			require.NoError(t, err)
			_, err = q.SendTx(soon(t), tx, Msg("a"))
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		}
		recorded(t, q, func(s sample) bool { return s.sent == sent })
	}
}

func TestTheHistoryCountsWhatQueueSendStores(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	q.core.recorder.Every = time.Hour
	_, err := q.Send(soon(t), Msg("a"), Msg("b"))
	require.NoError(t, err)
	require.Equal(t, int64(2), peek(q).Sent)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = q.Send(ended, Msg("c"))
	require.Error(t, err)
	require.Equal(t, int64(2), peek(q).Sent)
}

// BenchmarkHistory measures a program's cost of the history: one add in ten seconds, and in one of
// all programs also a count. add is the statement that adds the program's counts to the samples.
// count is Stats, of a queue of 20,000 messages, and its sample. docs/internals/operation.md has the
// figures.
func BenchmarkHistory(b *testing.B) {
	for engine, open := range map[string]func() *sql.DB{
		"sqlite":   func() *sql.DB { return openSQLite(b) },
		"postgres": func() *sql.DB { return pgtest.Open(b) },
	} {
		b.Run("engine="+engine, func(b *testing.B) {
			ctx, db := context.Background(), open()
			cfg := Config{History: HistoryOff, Durability: DurabilityAsIs}
			require.NoError(b, Migrate(ctx, db, "orders", cfg))
			q, err := Open[string](ctx, db, "orders", cfg)
			require.NoError(b, err)
			p, err := q.Producer(ctx, ProducerConfig{})
			require.NoError(b, err)
			for range 40 {
				batch := make([]Message[string], 500)
				_, err = p.SendBatch(ctx, batch...)
				require.NoError(b, err)
			}
			require.NoError(b, p.Close(ctx))
			b.Run("do=add", func(b *testing.B) {
				for b.Loop() {
					_, err := q.core.recorder.Store(ctx, sqlbatch.Sample{Sent: 500, Acked: 500, Delivered: 500})
					require.NoError(b, err)
				}
			})
			b.Run("do=count", func(b *testing.B) {
				for b.Loop() {
					c := counts(b, q)
					_, err := q.core.recorder.Store(ctx, sqlbatch.Sample{Depth: &sqlbatch.Depth{Ready: c.Ready,
						Oldest: c.OldestReady}})
					require.NoError(b, err)
				}
			})
		})
	}
}

// BenchmarkWithHistory compares the throughput of a queue with and without the history, alternately.
// ratio is messages per second with it, divided by those without. A sample is taken every half second,
// which is twenty times as often as in a program.
func BenchmarkWithHistory(b *testing.B) {
	onEngines(b, func(b *testing.B, open opener) {
		var without, with float64
		for b.Loop() {
			without += throughput(b, open, HistoryOff)
			with += throughput(b, open, HistoryKept)
		}
		b.ReportMetric(with/without, "ratio")
		b.ReportMetric(with/float64(b.N), "msgs/s")
	})
}

// throughput returns the messages per second that pass through a new queue, for two seconds.
func throughput(b *testing.B, open opener, h History) float64 {
	b.Helper()
	db := open(b)
	cfg := Config{History: h, Durability: DurabilityAsIs}
	require.NoError(b, Migrate(b.Context(), db, "orders", cfg))
	q, err := Open[string](b.Context(), db, "orders", cfg)
	require.NoError(b, err)
	q.core.recorder.Every = 500 * time.Millisecond
	p, err := q.Producer(context.Background(), ProducerConfig{})
	require.NoError(b, err)
	c, err := q.Consume(context.Background(), ConsumerConfig{})
	require.NoError(b, err)
	var handled atomic.Int64
	ended := make(chan error, 1)
	go func() { // ends with Shutdown
		ended <- c.Handle(8, func(context.Context, *Lease[string]) error { handled.Add(1); return nil })
	}()
	start := time.Now()
	batch := make([]Message[string], 500)
	for time.Since(start) < 2*time.Second {
		_, err := p.SendBatch(b.Context(), batch...)
		require.NoError(b, err)
	}
	rate := float64(handled.Load()) / time.Since(start).Seconds()
	require.NoError(b, p.Close(b.Context()))
	require.NoError(b, c.Shutdown(b.Context()))
	require.NoError(b, <-ended)
	return rate
}
