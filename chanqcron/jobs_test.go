package chanqcron_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
)

// Schedules of several kinds, in a queue of jobs.
func TestSchedulesSendJobsOfSeveralKinds(t *testing.T) {
	type mail struct{ To string }
	mails, cleanUp := chanqjobs.Define[mail]("mail"), chanqjobs.Define[int]("clean up")
	testdb.OnEach(t, engines, func(w *testdb.World) {
		require.NoError(w, w.Migrate("jobs", chanq.Config{}))
		require.NoError(w, chanqcron.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		jobs, err := chanqjobs.Open(w.Soon(), w.DB, "jobs", chanq.Config{})
		require.NoError(w, err)
		cron := chanqcron.New(w.DB, jobs)
		require.NoError(w, cron.Ensure(w.Soon(),
			chanqcron.Schedule[chanqjobs.Job]{Name: "mail", Line: "every 1s", Message: mails.New(mail{"ann"})},
			chanqcron.Schedule[chanqjobs.Job]{Name: "clean up", Line: "every 1s", Message: cleanUp.New(7)}))
		got := map[string]any{}
		mux := chanqjobs.NewMux()
		ctx, cancel := context.WithCancel(w.Soon())
		defer cancel()
		var mu sync.Mutex
		handled := func(kind string, body any) error {
			mu.Lock()
			defer mu.Unlock()
			if got[kind] = body; len(got) == 2 {
				cancel()
			}
			return nil
		}
		chanqjobs.Handle(mux, mails, func(_ context.Context, l *chanq.Lease[mail]) error { return handled(l.Type, l.Body) }, chanqjobs.Options{})
		chanqjobs.Handle(mux, cleanUp, func(_ context.Context, l *chanq.Lease[int]) error { return handled(l.Type, l.Body) }, chanqjobs.Options{})
		require.NoError(w, chanqjobs.Run(ctx, cron.Run, chanqjobs.Work(jobs, 2, mux.Handle, chanq.ConsumerConfig{})))
		require.Equal(w, map[string]any{"mail": mail{"ann"}, "clean up": 7}, got)
	})
}
