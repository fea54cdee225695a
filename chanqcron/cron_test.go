package chanqcron_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

func TestSeveralProcessesSendOneMessagePerTick(t *testing.T) {
	onEach(t, engines, func(w *world) {
		w.ensure(
			schedule{Name: "often", Line: "every 1s", Overlap: true, CatchUp: chanqcron.CatchUpAll,
				Message: chanq.Message[string]{Body: "b", Type: "kind", Headers: map[string]string{"a": "b"}, Priority: chanq.PriorityHigh, TTL: time.Hour}},
			schedule{Name: "seldom", Line: "every 2s", Overlap: true, CatchUp: chanqcron.CatchUpAll, Message: chanq.Msg("x")})
		for range 4 {
			defer w.run(w.cron())()
		}
		w.Eventually("9 messages are sent", func() bool { return testdb.Stats(w, w.jobs).Ready >= 9 })
		all := w.take()
		requireEach(w, 1, 5, w.ticks(all["often"]))
		requireEach(w, 2, 2, w.ticks(all["seldom"]))
		l := all["often"][0]
		require.Equal(w, []any{"b", "kind", "b", chanq.PriorityHigh, time.Hour}, []any{l.Body, l.Type, l.Headers["a"], l.Priority, l.ExpiresAt.Sub(l.EnqueuedAt)})
		if w.Engine.Bubble { // elsewhere a busy machine delays one of them
			require.WithinDuration(w, w.entry("seldom").Last, w.entry("often").Last, time.Second)
		}
	})
}

// requireEach requires ticks of each step, at least some.
func requireEach(w *world, step, least int, ticks []int) {
	w.Helper()
	require.GreaterOrEqual(w, len(ticks), least)
	for i, at := range ticks {
		require.Equal(w, i*step, at, "%v", ticks)
	}
}

// The second process has read that the tick is due before the first one sends it.
func TestATickThatAnotherProcessHasSentIsNotSentAgain(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "every 1m", Overlap: true})
		faults, db := w.Connect()
		slow := w.cronOn(db)
		defer w.run(slow)()
		time.Sleep(30 * time.Second)
		gate := make(chan struct{})
		strike := testdb.NewStrike(faultdb.Hold(gate), func(op faultdb.Op) bool { return op.Kind == faultdb.Begin })
		faults.Inject(strike.Choose)
		time.Sleep(32 * time.Second)
		require.NotEmpty(w, strike.Struck())
		stop := w.run(w.cron())
		time.Sleep(time.Second)
		stop()
		require.Len(w, w.take()["a"], 1)
		close(gate)
		time.Sleep(time.Second)
		require.Empty(w, w.take())
		time.Sleep(time.Minute)
		require.Len(w, w.take()["a"], 1)
	})
}

// counter counts the statements of a process by their beginnings.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func count(w *world, faults *faultdb.Connector) *counter {
	c := &counter{counts: map[string]int{}}
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind == faultdb.Exec || op.Kind == faultdb.Query {
			c.mu.Lock()
			defer c.mu.Unlock()
			text := op.Text
			if len(op.Args) > 0 && op.Text == "sp_executesql" {
				text, _ = op.Args[0].Value.(string)
			}
			switch {
			case strings.Contains(text, "UPDATE") && strings.Contains(text, "chanq__schedules"):
				c.counts["ticks"]++
			case strings.Contains(text, "chanq__schedules"):
				c.counts["reads"]++
			case strings.Contains(text, "chanq_jobs"):
				c.counts["sends"]++
			}
		}
		return faultdb.Fault{}
	})
	return c
}

func TestATickCostsTwoStatementsAndOneInEachOtherProcess(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(schedule{Name: "hourly", Line: "0 * * * *", Overlap: true})
		var counters []*counter
		for range 3 {
			faults, db := w.Connect()
			defer w.run(w.cronOn(db))()
			counters = append(counters, count(w, faults))
		}
		time.Sleep(10*time.Hour - 10*time.Second) // the clock of a bubble begins at midnight
		total := map[string]int{}
		for _, c := range counters {
			c.mu.Lock()
			for what, n := range c.counts {
				total[what] += n
			}
			c.mu.Unlock()
		}
		w.Logf("of 3 processes and 9 ticks: %v", total)
		require.Equal(w, 9, total["sends"])
		require.LessOrEqual(w, total["ticks"], 3*9)
		require.GreaterOrEqual(w, total["ticks"], 9)
		require.InDelta(w, 3*(10*60*2+9), total["reads"], 3*10)
		require.Len(w, w.take()["hourly"], 9)
	})
}

func TestTicksOfAnOutage(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(
			schedule{Name: "last", Line: "every 1m", Overlap: true},
			schedule{Name: "none", Line: "every 10m", CatchUp: chanqcron.CatchUpNone, Overlap: true},
			schedule{Name: "late", Line: "every 10m", CatchUp: chanqcron.CatchUpNone, Grace: 10 * time.Minute, Overlap: true},
			schedule{Name: "all", Line: "every 1m", CatchUp: chanqcron.CatchUpAll, Overlap: true},
			schedule{Name: "most", Line: "every 1m", CatchUp: chanqcron.CatchUpAll, MaxMissed: 3, Overlap: true},
		)
		time.Sleep(time.Hour + 5*time.Minute + 30*time.Second)
		stop := w.run(w.cron())
		time.Sleep(time.Second)
		stop()
		all := w.take()
		require.Len(w, all["last"], 1)
		require.Empty(w, all["none"])
		require.Len(w, all["late"], 1)
		require.Len(w, all["all"], 65)
		require.Equal(w, []int{0, 60, 120}, w.ticks(all["most"]))
		late := func(name string) time.Duration {
			l := all[name][len(all[name])-1]
			at, _ := chanqcron.Tick(&l.Delivery)
			return l.EnqueuedAt.Sub(at).Round(time.Second)
		}
		require.Equal(w, 30*time.Second, late("last"))
		require.Equal(w, 5*time.Minute+30*time.Second, late("late"))
		require.Equal(w, 30*time.Second, late("most"), "the latest ones")
	})
}

func TestWithoutOverlapNoMessageIsSentWhileThePreviousOneLives(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "every 1m", Message: chanq.Msg("x")})
		defer w.run(w.cron())()
		time.Sleep(10 * time.Minute)
		require.Equal(w, 1, testdb.Stats(w, w.jobs).Ready)
		held := testdb.Lease(w, w.jobs, 1, time.Hour)
		time.Sleep(10 * time.Minute)
		require.Zero(w, testdb.Stats(w, w.jobs).Ready)
		require.NoError(w, held[0].Ack())
		time.Sleep(90 * time.Second)
		require.Equal(w, 1, testdb.Stats(w, w.jobs).Ready)
	})
}

func TestADeploymentMovesNoTick(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		s := schedule{Name: "a", Line: "every 1h", Zone: "Europe/Berlin", Message: chanq.Msg("first")}
		w.ensure(s)
		next := w.entry("a").Next
		time.Sleep(90 * time.Minute) // nothing runs: the tick is missed
		s.Message = chanq.Msg("second")
		s.CatchUp, s.Grace = chanqcron.CatchUpNone, 2*time.Hour
		w.ensure(s)
		e := w.entry("a")
		require.Equal(w, next, e.Next)
		require.WithinDuration(w, time.Now(), e.Ensured, time.Second)
		require.Equal(w, chanqcron.CatchUpNone, e.CatchUp)
		defer w.run(w.cron())()
		time.Sleep(time.Second)
		sent := w.take()["a"]
		require.Len(w, sent, 1)
		require.Equal(w, "second", sent[0].Body)
		at, _ := chanqcron.Tick(&sent[0].Delivery)
		require.True(w, next.Equal(at), "%v, want %v", at, next)

		s.Line = "every 2h"
		w.ensure(s)
		require.WithinDuration(w, time.Now().Truncate(2*time.Hour).Add(2*time.Hour), w.entry("a").Next, 0)
	})
}

func TestTwoVersionsOfAProgramSettleOnTheLaterEnsure(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		older, newer := w.cron(), w.cron()
		require.NoError(w, older.Ensure(w.Soon(), schedule{Name: "a", Line: "every 1m", Overlap: true}))
		defer w.run(older)()
		require.NoError(w, newer.Ensure(w.Soon(), schedule{Name: "a", Line: "every 5m", Overlap: true}))
		defer w.run(newer)()
		time.Sleep(16 * time.Minute)
		require.Equal(w, []int{0, 300, 600}, w.ticks(w.take()["a"]))
	})
}

func TestAPausedScheduleStaysPaused(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		s := schedule{Name: "a", Line: "every 1m", Overlap: true, CatchUp: chanqcron.CatchUpAll}
		w.ensure(s)
		c := w.cron()
		require.NoError(w, c.Pause(w.Soon(), "a", "me", "a reason"))
		s.Message = chanq.Msg("other")
		s.Line = "every 2m"
		w.ensure(s)
		defer w.run(c)()
		time.Sleep(time.Hour)
		require.Empty(w, w.take())
		e := w.entry("a")
		require.WithinDuration(w, time.Now().Add(-time.Hour), e.Pause.Since, time.Second)
		require.Equal(w, "me a reason", e.Pause.By+" "+e.Pause.Reason)

		_, err := w.cron().Send(w.Soon(), "a")
		require.NoError(w, err)
		sent := w.take()["a"]
		require.Equal(w, "other", sent[0].Body)
		_, is := chanqcron.Tick(&sent[0].Delivery)
		require.False(w, is)

		require.NoError(w, c.Resume(w.Soon(), "a"))
		require.NoError(w, w.cron().Resume(w.Soon(), "a"), "it is not paused any more")
		time.Sleep(5 * time.Minute)
		require.Equal(w, []int{0, 120}, w.ticks(w.take()["a"]), "what passed in the pause is not sent")
		require.Zero(w, w.entry("a").Pause)

		require.NoError(w, c.Remove(w.Soon(), "a"))
		time.Sleep(5 * time.Minute)
		require.Empty(w, w.take())
		for _, err := range []error{c.Pause(w.Soon(), "a", "", ""), c.Resume(w.Soon(), "a"), c.Remove(w.Soon(), "a")} {
			require.ErrorIs(w, err, chanqcron.ErrNoSchedule)
		}
		_, err = c.Send(w.Soon(), "a")
		require.ErrorIs(w, err, chanqcron.ErrNoSchedule)
		require.EqualError(w, c.Remove(w.Soon(), "a"), `chanq: remove schedule "a": no such schedule`)
	})
}

func TestSendRespectsOverlap(t *testing.T) {
	onEach(t, engines, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "0 0 1 1 *"})
		s, err := chanqcron.Open(w.Soon(), w.DB, chanq.Config{})
		require.NoError(w, err)
		first, err := s.Send(w.Soon(), "a")
		require.NoError(w, err)
		second, err := s.Send(w.Soon(), "a")
		require.NoError(w, err)
		require.Equal(w, chanq.Receipt{ID: first.ID, Duplicate: true}, second)
	})
}

// The answer of the commit is lost. The receipt has the ID of the message, which is in the queue.
func TestASendOfUnknownOutcomeHasAReceipt(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "0 0 1 1 *", Overlap: true})
		s, err := chanqcron.Open(w.Soon(), w.DB, chanq.Config{})
		require.NoError(w, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if text := op.Text + fmt.Sprint(op.Args); op.Kind != faultdb.Prepare && strings.Contains(text, "INSERT INTO") && strings.Contains(text, "chanq_jobs") {
				return faultdb.Fail(context.DeadlineExceeded).Applied()
			}
			return f
		})
		receipt, err := s.Send(ctx, "a")
		w.Faults.Inject(nil)
		var op *chanq.OpError
		require.ErrorAs(w, err, &op)
		require.True(w, op.Unknown, "%v", err)
		require.Equal(w, op.ID, receipt.ID)
		require.Equal(w, receipt.ID, w.take()["a"][0].ID)
	})
}

func TestNothingIsStoredOfSchedulesWithAFault(t *testing.T) {
	onEach(t, engines, func(w *world) {
		c := w.cron()
		good := schedule{Name: "good", Line: "every 1m"}
		for want, s := range map[string]schedule{
			`Schedule.Name is "", 0 bytes: must be 1 to 100 bytes`:                                         {Line: "every 1m"},
			`, 101 bytes: must be 1 to 100 bytes`:                                                          {Name: strings.Repeat("n", 101), Line: "every 1m"},
			`chanq: ensure schedule "a": line "0 2 * * foo": column 9: day of week: "foo": must be 0 to 7`: {Name: "a", Line: "0 2 * * foo"},
			`line of 201 bytes: must be at most 200`:                                                       {Name: "a", Line: strings.Repeat("1", 201)},
			`zone "Mars/Base": must be a name of the IANA database`:                                        {Name: "a", Line: "every 1m", Zone: "Mars/Base"},
			`zone "Local"`:                                                 {Name: "a", Line: "every 1m", Zone: "Local"},
			`Schedule.CatchUp is CatchUp(3)`:                               {Name: "a", Line: "every 1m", CatchUp: 3},
			`Schedule.Grace is 1ms`:                                        {Name: "a", Line: "every 1m", Grace: time.Millisecond},
			`Schedule.MaxMissed is 1001: must be 1 to 1000`:                {Name: "a", Line: "every 1m", MaxMissed: 1001},
			`Schedule.Overlap is false: must be true with CatchUpAll`:      {Name: "a", Line: "every 1m", CatchUp: chanqcron.CatchUpAll},
			`Schedule.Message.ID must be unset`:                            {Name: "a", Line: "every 1m", Message: chanq.Message[string]{ID: chanq.NewID()}},
			`Schedule.Message.DedupKey must be unset`:                      {Name: "a", Line: "every 1m", Message: chanq.Message[string]{DedupKey: "k"}},
			`Schedule.Message.Delay is 1s: must be 0`:                      {Name: "a", Line: "every 1m", Message: chanq.Message[string]{Delay: time.Second}},
			`Message.Key is "k": must be empty, since queue jobs is plain`: {Name: "a", Line: "every 1m", Message: chanq.Message[string]{Key: "k"}},
			`Message.Body is 1048577 bytes: must be at most Spec.MaxBody`:  {Name: "a", Line: "every 1m", Message: chanq.Msg(strings.Repeat("b", 1<<20+1))},
		} {
			err := c.Ensure(w.Soon(), good, s)
			require.ErrorContains(w, err, want)
		}
		err := c.Ensure(w.Soon(), schedule{Name: "a", Line: "x"}, schedule{Name: "b", Zone: "y"})
		require.ErrorContains(w, err, `ensure schedule "a": line "x": 1 fields`)
		require.ErrorContains(w, err, `ensure schedule "b": line "": 0 fields`)
		require.ErrorContains(w, c.Ensure(w.Soon(), good, good), `ensure schedule "good": two schedules have this name`)
		list, err := c.List(w.Soon())
		require.NoError(w, err)
		require.Empty(w, list)
	})
}

func TestAScheduleOfAnotherQueueIsNotReplaced(t *testing.T) {
	onEach(t, engines, func(w *world) {
		require.NoError(w, w.cron().Ensure(w.Soon(), schedule{Name: "cleanup", Line: "every 1m"}))
		other := chanqcron.New(w.DB, testdb.QueueOf[string](w.World, "other", chanq.Config{}))
		err := other.Ensure(w.Soon(), schedule{Name: "cleanup", Line: "every 2m"})
		require.ErrorContains(w, err, `ensure schedule "cleanup": a schedule of another queue has this name`)
		list, err := other.List(w.Soon())
		require.NoError(w, err)
		require.Len(w, list, 1)
		require.Equal(w, []string{"jobs", "every 1m"}, []string{list[0].Queue, list[0].Line})
	})
}

func TestALineOfANewerProgramIsLeftToOthersAndReported(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "every 1m", Overlap: true}, schedule{Name: "b", Line: "every 1m", Overlap: true})
		names := w.jobs.Names()
		w.Exec(names.SQL(`UPDATE {chanq__schedules} SET line = ?1 WHERE name = ?2`), "at sunset", "a")
		c := w.cron()
		var reports []string
		c.Failed = func(err error) { reports = append(reports, err.Error()) }
		stop := w.run(c)
		time.Sleep(10*time.Minute + time.Second)
		stop()
		require.Len(w, w.take()["b"], 10)
		require.Equal(w, []string{`chanq: run schedule "a": this program leaves it to others: line "at sunset": 2 fields: must be 5: minute, hour, day of month, month, day of week`}, reports)
	})
}

// Whichever operation of a process fails, before or after it is applied: no tick is lost or sent twice.
func TestAFailureLosesNoTickAndSendsNoneTwice(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "every 1m", Overlap: true, CatchUp: chanqcron.CatchUpAll, Message: chanq.Msg("x")})
		faults, db := w.Connect()
		c := w.cronOn(db)
		failures := 0
		c.Failed = func(error) { failures++ }
		stop := w.run(c)
		time.Sleep(30 * time.Second)
		strikes := 0
		for applied := range 2 {
			for n := range 8 {
				from := faults.Ops()
				strike := testdb.NewStrike(w.Broken(applied == 1), func(op faultdb.Op) bool { return op.N == from+n && op.Kind != faultdb.Rollback })
				faults.Inject(strike.Choose)
				time.Sleep(time.Minute)
				if strike.Struck() != "" {
					strikes++
				}
			}
		}
		faults.Inject(nil)
		time.Sleep(5 * time.Minute)
		stop()
		ticks := w.ticks(w.take()["a"])
		requireEach(w, 60, 2*8+5, ticks)
		require.Greater(w, strikes, 10)
		require.Positive(w, failures)
	})
}

func TestAProcessThatHangsInATickDelaysItNoLongerThanItsTransaction(t *testing.T) {
	onEach(t, bubbles, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "every 1m", Overlap: true, CatchUp: chanqcron.CatchUpAll})
		faults, db := w.Connect()
		hanging := w.cronOn(db)
		hanging.Failed = func(error) {}
		defer w.run(hanging)()
		time.Sleep(30 * time.Second)
		faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if op.Kind == faultdb.Commit {
				return faultdb.Hang()
			}
			return faultdb.Fault{}
		})
		other := w.cron()
		other.Failed = func(error) {}
		defer w.run(other)()
		time.Sleep(10 * time.Minute)
		require.InDelta(w, 10, len(w.take()["a"]), 1)
		faults.Inject(nil)
	})
}

type shifted struct {
	mssqltest.RealClock
	by time.Duration
}

func (s shifted) Now() time.Time { return s.RealClock.Now().Add(s.by) }

func TestTheClockOfTheDatabaseDecides(t *testing.T) {
	onEach(t, []testdb.Engine{testdb.EmulatorAt(shifted{by: 25*time.Hour + 30*time.Minute})}, func(w *world) {
		w.ensure(schedule{Name: "a", Line: "0 3 * * *"}) // in 90 min
		defer w.run(w.cron())()
		time.Sleep(89 * time.Minute)
		require.Empty(w, w.take())
		time.Sleep(90 * time.Second)
		sent := w.take()["a"]
		require.Len(w, sent, 1)
		at, _ := chanqcron.Tick(&sent[0].Delivery)
		require.Equal(w, time.Date(2000, 1, 2, 3, 0, 0, 0, time.UTC), at)
	})
}

func TestRunWaitsForTheDatabaseAndNotForATable(t *testing.T) {
	testdb.OnEach(t, bubbles, func(w *testdb.World) {
		jobs := w.Queue("jobs", chanq.Config{})
		c := chanqcron.New(w.DB, jobs)
		err := c.Run(context.Background())
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "run chanqcron.Migrate, or the command: chanq schedule migrate")
		require.ErrorIs(w, c.Ensure(w.Soon(), schedule{Name: "a", Line: "every 1m"}), chanq.ErrNoSchema)
		_, err = chanqcron.Open(w.Soon(), w.DB, chanq.Config{})
		require.ErrorIs(w, err, chanq.ErrNoSchema)

		world := newWorld(w)
		world.ensure(schedule{Name: "a", Line: "every 1m"})
		w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Cut(w.Failure(sqlbatch.Unknown)) })
		var failures atomic.Int64
		c.Failed = func(error) { failures.Add(1) }
		stop := world.run(c)
		time.Sleep(10 * time.Minute)
		w.Heal()
		require.Positive(w, failures.Load())
		time.Sleep(2 * time.Second)
		stop()
		require.Len(w, world.take()["a"], 1)

		w.Exec(jobs.Names().SQL(`UPDATE {chanq__tables} SET version = 7, min_version = 7 WHERE name = 'schedules'`))
		require.ErrorIs(w, c.Run(context.Background()), chanq.ErrNewerSchema)
		require.ErrorIs(w, c.Ensure(w.Soon(), schedule{Name: "a", Line: "every 1m"}), chanq.ErrNewerSchema)
	})
}

func TestTheLifeOfASchedule(t *testing.T) {
	onEach(t, engines, func(w *world) {
		c := w.cron()
		s := schedule{Name: "a", Line: "0 0 1 1 *", Zone: "Asia/Kathmandu", Message: chanq.Msg("first")}
		require.NoError(w, c.Ensure(w.Soon(), s))
		e := w.entry("a")
		require.Equal(w, "jobs 0 0 1 1 * Asia/Kathmandu last", strings.Join([]string{e.Queue, e.Line, e.Zone, e.CatchUp.String()}, " "))
		require.Zero(w, e.Last)
		require.True(w, e.Next.After(time.Now()))
		s.Line, s.Message = "every 1s", chanq.Msg("second")
		require.NoError(w, c.Ensure(w.Soon(), s, schedule{Name: "b", Line: "0 0 1 1 *"}))
		require.NoError(w, c.Pause(w.Soon(), "a", "me", "a reason"))
		defer w.run(c)()
		time.Sleep(1500 * time.Millisecond) // in which nothing may happen
		require.Empty(w, w.take())
		require.Equal(w, "a reason", w.entry("a").Pause.Reason)
		require.NoError(w, c.Resume(w.Soon(), "a"))
		w.Eventually("a message is sent", func() bool { return testdb.Stats(w, w.jobs).Ready == 1 })
		sent := w.take()["a"]
		require.Equal(w, "second", sent[0].Body)
		require.NotZero(w, w.entry("a").Last)
		require.NoError(w, c.Remove(w.Soon(), "a"))
		_, err := c.Send(w.Soon(), "b")
		require.NoError(w, err)
		require.ErrorIs(w, c.Remove(w.Soon(), "a"), chanqcron.ErrNoSchedule)
	})
}

// Its schedules stay. They neither delay those of another queue, nor fill the log, and go on when the queue is made again.
func TestADroppedQueueIsReportedUntilItsSchedulesAreRemoved(t *testing.T) {
	onEach(t, engines, func(w *world) {
		second := schedule{Line: "every 1s", Overlap: true, CatchUp: chanqcron.CatchUpAll}
		named := func(s schedule, name string) schedule { s.Name = name; return s }
		w.ensure(named(second, "a"), named(second, "b"))
		c := w.cron()
		failed := make(chan error, 1000)
		c.Failed = func(err error) { failed <- err }
		require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), "jobs", chanq.Config{}, chanqadmin.Change{}))
		defer w.run(c)()
		other := &world{w.World, w.Queue("other", chanq.Config{History: chanq.HistoryOff})}
		healthy := chanqcron.New(w.DB, other.jobs)
		require.NoError(w, healthy.Ensure(w.Soon(), named(second, "healthy")))
		defer w.run(healthy)()
		w.Eventually("5 messages of the other schedule are sent", func() bool { return testdb.Stats(w, other.jobs).Ready >= 5 })
		requireEach(w, 1, 5, other.ticks(other.take()["healthy"]))

		err := testdb.Receive(w, failed, "a report")
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		for _, name := range []string{"a", "b"} {
			require.ErrorContains(w, err, fmt.Sprintf(`tick schedule %q`, name))
			require.ErrorContains(w, err, fmt.Sprintf("or remove the schedule, for example by the command: chanq schedule remove %q", name))
			_, err := c.Send(w.Soon(), name)
			require.ErrorIs(w, err, chanq.ErrNoSchema)
		}
		list, err := c.List(w.Soon())
		require.NoError(w, err)
		require.Equal(w, []string{"jobs", "jobs", "other"}, []string{list[0].Queue, list[1].Queue, list[2].Queue})
		if w.Engine.Bubble {
			require.LessOrEqual(w, len(failed), 3, "the pauses grow")
		}

		require.NoError(w, c.Remove(w.Soon(), "b"))
		w.Queue("jobs", chanq.Config{History: chanq.HistoryOff})
		w.Eventually("a schedule of the new queue is sent", func() bool { return testdb.Stats(w, w.jobs).Ready >= 3 })
		all := w.take()
		requireEach(w, 1, 3, w.ticks(all["a"]))
		require.Empty(w, all["b"])
	})
}
