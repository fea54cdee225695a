package chanqcron_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/prove/testdb/crew"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"cron": child.Does(runSchedules)})
	os.Exit(m.Run())
}

// everySecond returns schedules that tick each second. After an outage, each second one sends all ticks, the others the last.
func everySecond() (all []schedule) {
	for i := range 20 {
		s := schedule{Name: fmt.Sprintf("all %d", i), Line: "every 1s", Overlap: true, CatchUp: chanqcron.CatchUpAll, MaxMissed: 1000}
		if i%2 == 1 {
			s.Name, s.CatchUp = fmt.Sprintf("last %d", i), chanqcron.CatchUpLast
		}
		all = append(all, s)
	}
	return all
}

// runSchedules is a process that ensures and runs the schedules. It may end while it starts.
func runSchedules(ctx context.Context, p testdb.Place, _ <-chan string) error {
	if err := startSchedules(ctx, p); ctx.Err() == nil {
		return err
	}
	return nil
}

func startSchedules(ctx context.Context, p testdb.Place) error {
	db, err := p.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	q, err := chanq.Open[string](ctx, db, "jobs", chanq.Config{History: chanq.HistoryOff})
	if err != nil {
		return err
	}
	cron := chanqcron.New(db, q)
	cron.Failed = func(err error) { fmt.Println(err) }
	if err := cron.Ensure(ctx, everySecond()...); err != nil {
		return err
	}
	return cron.Run(ctx)
}

func TestKilledProcessesLoseNoTickAndSendNoneTwice(t *testing.T) {
	onEach(t, []testdb.Engine{testdb.SQLite, testdb.Postgres}, func(w *world) {
		w.Within(5 * time.Minute)
		const places, outage = 4, 5 * time.Second
		span := testdb.Of(0, 20*time.Second, 5*time.Minute)
		c := crew.New("cron", places, rand.New(rand.NewPCG(1, 2)), func(p int, line string) error {
			w.Logf("process %d: %s", p, line)
			return nil
		})
		defer c.Abandon()
		start := func() error {
			c.KillOften(700*time.Millisecond, math.MaxInt, w.Place())
			return c.Fill(w.Place())
		}
		require.NoError(w, start())
		c.After(span/2, func() error {
			c.Calm()
			for _, p := range c.Running() {
				if err := c.Kill(p); err != nil {
					return err
				}
			}
			c.After(outage, start)
			return nil
		})
		end := time.Now().Add(span + outage)
		ctx, cancel := context.WithTimeout(context.Background(), 3*span+time.Minute)
		defer cancel()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return time.Now().After(end), nil }))
		c.Calm()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return w.entry("all 0").Next.After(time.Now()), nil }))
		require.NoError(w, c.End(ctx))

		all := w.take()
		require.Len(w, all, 20)
		ticks := 0
		for _, s := range everySecond() {
			seconds := w.ticks(all[s.Name])
			ticks += len(seconds)
			if s.CatchUp == chanqcron.CatchUpAll {
				requireEach(w, 1, int((span+outage)/time.Second)-3, seconds)
				continue
			}
			longest := 0
			for i := 1; i < len(seconds); i++ {
				require.Greater(w, seconds[i], seconds[i-1], "%s: a tick was sent twice", s.Name)
				longest = max(longest, seconds[i]-seconds[i-1])
			}
			require.GreaterOrEqual(w, longest, int(outage/time.Second)-1, "%s: the ticks of the outage are one message", s.Name)
			for _, l := range all[s.Name] {
				at, _ := chanqcron.Tick(&l.Delivery)
				require.Less(w, l.EnqueuedAt.Sub(at), outage-time.Second, "%s: a tick that was not the last", s.Name)
			}
		}
		w.Logf("%d processes, %d kills, %d ticks", len(c.All), c.Killed(), ticks)
	})
}
