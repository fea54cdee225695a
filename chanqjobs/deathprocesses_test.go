package chanqjobs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
)

// inProcesses are the databases that processes share.
var inProcesses = []testdb.Engine{testdb.SQLite, testdb.Postgres}

// openIn opens the database of a process and its queue of jobs.
func openIn(ctx context.Context, p testdb.Place, cfg chanq.Config) (*sql.DB, *chanq.Queue[chanqjobs.Job], error) {
	db, err := p.Open()
	if err != nil {
		return nil, nil, err
	}
	q, err := chanqjobs.Open(ctx, db, "jobs", cfg)
	if ctx.Err() != nil { // it ends while it starts
		err = nil
	}
	return db, q, err
}

// noticeDeaths is a process that notices deaths. It is slow between its statement and the commit, where most kills meet it.
func noticeDeaths(ctx context.Context, p testdb.Place, _ <-chan string) error {
	db, q, err := openIn(ctx, p, chanq.Config{History: chanq.HistoryOff})
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer db.Close()
	d := chanqjobs.NewDeaths(q, func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
		if err := insertNotice(ctx, tx, q.Names(), dead); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
		if rand.N(10) == 0 {
			return errors.New("it fails now and then")
		}
		return nil
	})
	d.Failed = func(err error) { fmt.Println(err) }
	return d.Run(ctx)
}

func TestKilledProcessesNoticeEachDeathOnce(t *testing.T) {
	testdb.OnEach(t, inProcesses, func(w *testdb.World) {
		w.Within(5 * time.Minute)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		migrateNotices(w)
		const places = 4
		c := crew.New("deaths", places, rand.New(rand.NewPCG(1, 2)), func(int, string) error { return nil })
		defer c.Abandon()
		require.NoError(w, c.Fill(w.Place()))
		ids := map[chanq.ID]bool{}
		dying := 0
		c.Often(300*time.Millisecond, func() error { // deaths go on while processes are killed
			if dying++; dying > testdb.Of(0, 40, 400) {
				return nil
			}
			for _, id := range die(w, q, note.New("a"), note.New("b"), note.New("c"), note.New("d"), note.New("e")) {
				ids[id] = true
			}
			return nil
		})
		c.KillOften(500*time.Millisecond, math.MaxInt, w.Place())
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return dying > testdb.Of(0, 40, 400), nil }))
		c.Calm()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return len(notices(w, q.Names())) == len(ids), nil }))
		require.NoError(w, c.End(ctx))

		for id, causes := range notices(w, q.Names()) {
			require.Equal(w, []chanq.Cause{chanq.CauseRejected}, causes, id)
		}
		w.Logf("%d processes, %d kills, %d deaths", len(c.All), c.Killed(), len(ids))
		require.Greater(w, c.Killed(), 5)
	})
}
