package chanqtest_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/chanqtest"
	"github.com/chanq/chanq/embedded"
)

type mail struct{ To string }

var (
	welcome = chanqjobs.Define[mail]("welcome")
	report  = chanqjobs.Define[int]("report")
)

// A day of a program: an hourly schedule, a delayed job, a job that fails for hours, one that expires, and one whose worker hangs for longer
// than its lease.
func TestADayInABubbleTakesMilliseconds(t *testing.T) {
	began := time.Now()
	virtual := time.Duration(0)
	synctest.Test(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		jobs := jobsOf(t, db)
		require.NoError(t, chanqcron.Migrate(t.Context(), db, chanq.Config{}))
		cron := chanqcron.New(db, jobs)
		require.NoError(t, cron.Ensure(t.Context(), chanqcron.Schedule[chanqjobs.Job]{Name: "hourly", Line: "0 * * * *", Message: report.New(7)}))
		start := time.Now()
		var reports []time.Duration
		var mails []string
		mux := chanqjobs.NewMux()
		chanqjobs.Handle(mux, report, func(context.Context, *chanq.Lease[int]) error {
			reports = append(reports, time.Since(start).Round(time.Minute))
			return nil
		}, chanqjobs.Options{})
		chanqjobs.Handle(mux, welcome, func(_ context.Context, l *chanq.Lease[mail]) error {
			if l.Body.To == "bob" && time.Since(start) < 5*time.Hour {
				return chanq.RetryAfter(time.Hour, errors.New("bob is away"))
			}
			if l.Body.To == "carl" && l.Attempt == 1 {
				time.Sleep(90 * time.Second) // three times LeaseFor: the lease is extended
			}
			mails = append(mails, l.Body.To)
			return nil
		}, chanqjobs.Options{})
		late, short := welcome.New(mail{"ann"}), welcome.New(mail{"dan"})
		late.Delay = 23 * time.Hour
		short.Delay, short.TTL = 10*time.Minute, 20*time.Minute
		send(t, jobs, late, short, welcome.New(mail{"bob"}), welcome.New(mail{"carl"}))
		for range 24 {
			chanqtest.Drain(t, cron.Run, worker(jobs, mux.Handle))
			time.Sleep(time.Hour)
		}
		chanqtest.Drain(t, cron.Run, worker(jobs, mux.Handle))
		require.Len(t, reports, 24)
		require.Equal(t, time.Hour, reports[0].Round(time.Hour))
		require.ElementsMatch(t, []string{"carl", "bob", "ann"}, mails)
		require.Empty(t, chanqtest.Sent(t, jobs))
		require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_jobs__dead"), "dan's mail has expired")
		virtual = time.Since(start)
	})
	took := time.Since(began)
	require.Greater(t, virtual, 24*time.Hour)
	require.Less(t, took, time.Minute) // some 100 ms; a loaded machine takes longer
	t.Logf("%v passed in %v", virtual.Round(time.Second), took.Round(time.Millisecond))
}

func TestSentShowsWhatWaitsInTheOrderOfClaims(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		jobs := jobsOf(t, db)
		require.Empty(t, chanqtest.Sent(t, jobs))
		later, urgent, keyed := welcome.New(mail{"later"}), welcome.New(mail{"urgent"}), report.New(1)
		later.Delay, later.TTL = 2*time.Hour, 3*time.Hour
		urgent.Priority, urgent.Headers = chanq.PriorityUrgent, map[string]string{"trace": "7"}
		keyed.DedupKey, keyed.Delay = "daily", time.Hour
		send(t, jobs, later, welcome.New(mail{"now"}), urgent, keyed)
		require.Equal(t, []string{
			`welcome {"To":"urgent"} priority urgent headers map[trace:7]`,
			`welcome {"To":"now"}`,
			`report 1 in 1h0m0s dedup key "daily"`,
			`welcome {"To":"later"} in 2h0m0s ttl 3h0m0s`,
		}, lines(chanqtest.Sent(t, jobs)))
		chanqtest.Work(t, jobs, func(context.Context, *chanq.Lease[chanqjobs.Job]) error {
			return chanq.RetryAfter(5*time.Hour, errors.New("no network"))
		})
		sent := lines(chanqtest.Sent(t, jobs))
		require.Regexp(t, `^welcome {"To":"now"} in 5h0m\d+s attempts 1: no network$`, sent[len(sent)-1], "%q", sent)
	})
}

func TestWorkHandlesWhatIsDueAndReturnsTheOutcomes(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		orders, parcels := queueOf[string](t, db, "orders", chanq.Spec{}), queueOf[string](t, db, "parcels", chanq.Spec{})
		late := chanq.Msg("late")
		late.Delay = time.Hour
		send(t, orders, chanq.Msg("tea"), chanq.Msg("bad"), chanq.Msg("away"), chanq.Msg("bomb"), late)
		outcomes := chanqtest.Work(t, orders, func(ctx context.Context, l *chanq.Lease[string]) error {
			switch l.Body {
			case "bad":
				return chanq.DeadLetter(errors.New("no such item"))
			case "away":
				return errors.New("503")
			case "bomb":
				panic("boom")
			}
			return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := parcels.SendTx(ctx, tx, chanq.Msg(l.Body)); err != nil {
					return err
				}
				return l.AckTx(ctx, tx)
			})
		})
		require.Equal(t, []string{
			"attempt 1: ack", "attempt 1: dead-letter: no such item", "attempt 1: retry: 503", "attempt 1: retry: panic: boom",
		}, lines(outcomes))
		require.Equal(t, []string{"tea"}, lines(chanqtest.Sent(t, parcels)))
		require.Len(t, chanqtest.Sent(t, orders), 3)
		chanqtest.Work(t, orders, func(_ context.Context, l *chanq.Lease[string]) error {
			require.Contains(t, []string{"away", "bomb"}, l.Body, "on a slow machine their retries are due")
			return nil
		})
	})
}

// The messages of one queue go to another one, which no part handles.
func TestDrainLeavesWhatIsScheduledAndQueuesWithoutAConsumer(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		orders, parcels := queueOf[int](t, db, "orders", chanq.Spec{}), queueOf[int](t, db, "parcels", chanq.Spec{})
		late := chanq.Msg(0)
		late.Delay = time.Hour
		send(t, orders, late)
		for i := range 100 {
			send(t, orders, chanq.Msg(i))
		}
		chanqtest.Drain(t, worker(orders, func(ctx context.Context, l *chanq.Lease[int]) error {
			_, err := parcels.Send(ctx, chanq.Msg(l.Body))
			return err
		}))
		require.Len(t, chanqtest.Sent(t, parcels), 100)
		require.Len(t, chanqtest.Sent(t, orders), 1)
	})
}

// A key waits while its first message waits for a retry, and while it is dead.
func TestDrainDoesNotWaitForAKeyThatIsBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		orders := queueOf[string](t, db, "orders", chanq.Spec{Kind: chanq.KindOrdered, DeadKey: chanq.DeadKeyHolds})
		for _, key := range []string{"ada", "bob", "ada", "bob", "eve"} {
			send(t, orders, chanq.Message[string]{Key: key, Body: key})
		}
		part := worker(orders, func(_ context.Context, l *chanq.Lease[string]) error {
			switch l.Body {
			case "ada":
				return chanq.RetryAfter(time.Hour, errors.New("later"))
			case "bob":
				return chanq.DeadLetter(errors.New("never"))
			}
			return nil
		})
		began := time.Now()
		chanqtest.Drain(t, part)
		require.Less(t, time.Since(began), time.Minute)
		require.Len(t, chanqtest.Sent(t, orders), 3)
		time.Sleep(time.Hour)
		chanqtest.Drain(t, part)
		require.Len(t, chanqtest.Sent(t, orders), 3)
	})
}

// They look once per second.
func TestDrainWaitsForBatchesAndDeaths(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		jobs := jobsOf(t, db)
		require.NoError(t, chanqjobs.Migrate(t.Context(), db, chanq.Config{}))
		batches := chanqjobs.NewBatches(jobs)
		send := func(ctx context.Context, tx *sql.Tx) error {
			return batches.SendTx(ctx, tx, chanqjobs.NewBatch(), report.New(0), welcome.New(mail{"ada"}), welcome.New(mail{"bob"}))
		}
		require.NoError(t, chanq.InTx(t.Context(), db, send))
		var done, dead atomic.Int64
		deaths := chanqjobs.NewDeaths(jobs, func(context.Context, *sql.Tx, chanqadmin.Entry) error { dead.Add(1); return nil })
		chanqtest.Drain(t, batches.Run, deaths.Run, worker(jobs, func(_ context.Context, l *chanq.Lease[chanqjobs.Job]) error {
			if l.Type == report.Name() {
				done.Add(1)
				return nil
			}
			return chanq.DeadLetter(errors.New("no such address"))
		}))
		require.EqualValues(t, 1, done.Load(), "the done job")
		require.EqualValues(t, 2, dead.Load(), "deaths")
	})
}

// A retry may begin and end between two looks of Drain, and Deaths looks once per second.
func TestDrainWaitsForTheDeathOfALastRetry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		cfg := chanq.Config{Spec: chanq.Spec{MaxAttempts: 4}}
		require.NoError(t, chanq.Migrate(t.Context(), db, "orders", cfg))
		orders, err := chanq.Open[string](t.Context(), db, "orders", cfg)
		require.NoError(t, err)
		_, err = orders.Send(t.Context(), chanq.Message[string]{Body: "a"})
		require.NoError(t, err)
		var dead atomic.Int64
		deaths := chanqjobs.NewDeaths(orders, func(context.Context, *sql.Tx, chanqadmin.Entry) error { dead.Add(1); return nil })
		fail := func(context.Context, *chanq.Lease[string]) error { return errors.New("no such address") }
		backoff := func(*chanq.Delivery, error) time.Duration { return 400 * time.Millisecond } // it dies after 1.2 s
		chanqtest.Drain(t, deaths.Run, chanqjobs.Work(orders, 1, fail, chanq.ConsumerConfig{Backoff: backoff}))
		require.EqualValues(t, 1, dead.Load())
	})
}

func TestDrainSaysWhatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		jobs := jobsOf(t, db)
		late := welcome.New(mail{"later"})
		late.Delay = 2 * time.Hour
		send(t, jobs, welcome.New(mail{"ada"}), welcome.New(mail{"bob"}), late)
		text := failure(t, func(tb testing.TB) {
			chanqtest.Drain(tb, chanqjobs.Work(jobs, 1, func(ctx context.Context, _ *chanq.Lease[chanqjobs.Job]) error {
				<-ctx.Done()
				return ctx.Err()
			}, chanq.ConsumerConfig{Name: "mailer", Prefetch: 1, MaxExtend: 10 * time.Hour}))
		})
		require.Regexp(t, `the queues are not idle after 1h0m0s of the bubble's time:\nqueue "jobs": \d ready, \d leased, 1 scheduled, 0 dead\n`, text)
		require.Regexp(t, `  leased by mailer: [0-9a-f-]{36} welcome {"To":"ada"}`, text)
		require.Contains(t, text, "a handler of mailer has not returned")

		text = failure(t, func(tb testing.TB) { chanqtest.Drain(tb) })
		require.Contains(t, text, "messages wait, and no consumer runs:\nqueue \"jobs\": ")
		require.Contains(t, text, "pass a part that handles this queue")

		require.Contains(t, failure(t, func(tb testing.TB) {
			chanqtest.Drain(tb, func(context.Context) error { return errors.New("no mail server") })
		}), "a part returned an error: no mail server")

		free := make(chan struct{})
		require.Contains(t, failure(t, func(tb testing.TB) {
			chanqtest.Drain(tb, func(context.Context) error { <-free; return nil }, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}), "part 1 of 2 has not returned for 1h0m0s of the bubble's time after its context was cancelled")
		close(free)

		admin, err := chanqadmin.Open(t.Context(), db, "jobs", chanq.Config{})
		require.NoError(t, err)
		require.NoError(t, admin.Pause(t.Context(), chanqadmin.Change{Reason: "test"}))
		chanqtest.Drain(t, worker(jobs, func(context.Context, *chanq.Lease[chanqjobs.Job]) error { return nil }))
		require.NotEmpty(t, chanqtest.Sent(t, jobs), "a paused queue is idle")
	})
}

func TestDrainWaitsForAWorkerThatStartsSlowly(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		orders := queueOf[int](t, db, "orders", chanq.Spec{})
		send(t, orders, chanq.Msg(1))
		handled, start := false, time.Minute
		if strings.HasSuffix(t.Name(), "postgres") {
			start = 4 * time.Second // of real time
		}
		part := worker(orders, func(context.Context, *chanq.Lease[int]) error { handled = true; return nil })
		chanqtest.Drain(t, func(ctx context.Context) error {
			select {
			case <-time.After(start):
				return part(ctx)
			case <-ctx.Done():
				return nil
			}
		})
		require.True(t, handled)
	})
}

func TestDrainFailsIfNothingRan(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		nothing := func(context.Context) error { return nil }
		forever := func(ctx context.Context) error { <-ctx.Done(); return nil }
		for _, part := range []chanqjobs.Part{nothing, forever} {
			require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Drain(tb, part) }), "the databases of this test have no queue")
		}
		orders, parcels := queueOf[int](t, db, "orders", chanq.Spec{}), queueOf[int](t, db, "parcels", chanq.Spec{})
		send(t, orders, chanq.Msg(1), chanq.Msg(2))
		text := failure(t, func(tb testing.TB) { chanqtest.Drain(tb, nothing) })
		require.Contains(t, text, "messages wait, and no consumer runs:\nqueue \"orders\": 2 ready")
		chanqtest.Drain(t, func(ctx context.Context) error { // it ends when it is idle, and leaves what it has sent
			c, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
			if err != nil {
				return err
			}
			return c.Handle(1, func(ctx context.Context, l *chanq.Lease[int]) error {
				_, err := parcels.Send(ctx, chanq.Msg(l.Body))
				return err
			})
		})
		require.Len(t, chanqtest.Sent(t, parcels), 2)
	})
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		other, err := embedded.Open(":memory:")
		require.NoError(t, err)
		defer other.Close()
		q := queueOf[int](t, other, "orders", chanq.Spec{})
		require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Sent(tb, q) }), `this test has no database of chanqtest: open the queue "orders"`)
		require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Drain(tb) }), "this test has no database")
		require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Crash(tb, other, 1) }), "db is not of chanqtest")
		a, b := chanqtest.DB(t), chanqtest.DB(t)
		require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Sent(tb, q) }), `none of the 2 databases of this test has the queue "orders"`)
		queueOf[int](t, a, "orders", chanq.Spec{})
		queueOf[int](t, b, "orders", chanq.Spec{})
		require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Sent(tb, q) }), `2 databases of this test have a queue "orders"`)
	})
}

// A consumer that a test forgets would otherwise be found by the bubble, without a hint.
func TestADatabaseThatIsInUseAtTheEndFailsItsTest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c *chanq.Consumer[int]
		text := failure(t, func(tb testing.TB) {
			var err error
			c, err = queueOf[int](tb, chanqtest.DB(tb), "orders", chanq.Spec{}).Consume(context.Background(), chanq.ConsumerConfig{})
			require.NoError(tb, err)
			time.Sleep(time.Second)
		})
		require.Contains(t, text, "connections of SQLite database ")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Shutdown(ctx)
	})
}

func TestTravelMovesDelaysRetriesLeasesTTLsAndSchedules(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		if e.name == "emulator" {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			jobs := jobsOf(t, db)
			require.NoError(t, chanqcron.Migrate(t.Context(), db, chanq.Config{}))
			cron := chanqcron.New(db, jobs)
			require.NoError(t, cron.Ensure(t.Context(), chanqcron.Schedule[chanqjobs.Job]{Name: "daily", Line: "0 6 * * *", Message: report.New(7)}))
			late, short := welcome.New(mail{"late"}), welcome.New(mail{"short"})
			late.Delay, short.Delay, short.TTL = time.Hour, 2*time.Hour, 3*time.Hour
			send(t, jobs, late, short, welcome.New(mail{"retry"}))
			all := map[string]int{}
			part := chanqjobs.Part(worker(jobs, func(_ context.Context, l *chanq.Lease[chanqjobs.Job]) error {
				if all[l.Type+string(l.Body.Bytes())]++; l.Type == welcome.Name() && l.Attempt == 1 && string(l.Body.Bytes()) == `{"To":"retry"}` {
					return chanq.RetryAfter(20*time.Hour, errors.New("later"))
				}
				return nil
			}))
			chanqtest.Drain(t, cron.Run, part)
			require.Equal(t, map[string]int{`welcome{"To":"retry"}`: 1}, all)
			chanqtest.Travel(t, db, time.Hour)
			chanqtest.Drain(t, part)
			require.Equal(t, map[string]int{`welcome{"To":"retry"}`: 1, `welcome{"To":"late"}`: 1}, all)
			chanqtest.Travel(t, db, 24*time.Hour)
			chanqtest.Drain(t, cron.Run, part)
			require.Equal(t, map[string]int{`welcome{"To":"retry"}`: 2, `welcome{"To":"late"}`: 1, "report7": 1}, all)
			require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_jobs__dead"), "one has expired")

			send(t, jobs, report.New(8))
			consumer, err := jobs.Consume(t.Context(), chanq.ConsumerConfig{MaxExtend: 100 * time.Millisecond, LeaseFor: time.Minute})
			require.NoError(t, err)
			held := <-consumer.C()
			const until = "SELECT MAX(until / 1000) FROM chanq__consumers"
			const reported = "SELECT at / 1000 FROM chanq__progress"
			require.NoError(t, chanqjobs.Migrate(t.Context(), db, chanq.Config{}))
			_, err = db.ExecContext(t.Context(), "INSERT INTO chanq__progress (queue, id, fence, at, done, note) "+
				"SELECT 'jobs', id, 1, 100000, 0, '' FROM chanq_jobs")
			require.NoError(t, err)
			for number(t, db, "SELECT COUNT(*) FROM chanq__consumers") == 0 { // its first message may precede its row
				time.Sleep(time.Millisecond)
			}
			listed := number(t, db, until)
			chanqtest.Travel(t, db, time.Minute)
			require.Less(t, number(t, db, until), listed)
			require.Equal(t, 40, number(t, db, reported))
			require.Equal(t, []string{"report, attempt 2: ack"}, lines(chanqtest.Work(t, jobs, func(context.Context, *chanq.Lease[chanqjobs.Job]) error { return nil })))
			require.NoError(t, held.Ack())
			require.ErrorIs(t, held.Wait(t.Context()), chanq.ErrLeaseLost)
			require.NoError(t, consumer.Shutdown(t.Context()))
		})
	}
}

func TestTravelRefusesADatabaseThatMightBeReal(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/shop.db"
	other, err := embedded.Open(path)
	require.NoError(t, err)
	defer other.Close()
	q := queueOf[int](t, other, "orders", chanq.Spec{})
	send(t, q, chanq.Message[int]{Delay: time.Hour})
	text := failure(t, func(tb testing.TB) { chanqtest.Travel(tb, other, time.Hour) })
	require.Contains(t, text, "chanqtest has not created the database")
	require.Contains(t, text, "shop.db")
	c, err := embedded.Connector(path)
	require.NoError(t, err)
	opened := chanqtest.Open(t, c)
	require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Travel(tb, opened, time.Hour) }), "but not created it")
	require.Contains(t, failure(t, func(tb testing.TB) { chanqtest.Travel(tb, chanqtest.DB(tb), -1) }), "must not be negative")
	require.Equal(t, []string{"0 in 1h0m0s"}, lines(chanqtest.Sent(t, q)))
}
