package chanqjobs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// task is the input of a process.
type task struct{ Engine, Address string }

// inProcesses are the databases that processes share.
var inProcesses = []testdb.Engine{testdb.SQLite, testdb.Postgres}

// open opens the database of a process.
func (t task) open(ctx context.Context) (*sql.DB, *chanq.Queue[chanqjobs.Job], error) {
	for _, e := range inProcesses {
		if e.Name != t.Engine {
			continue
		}
		c, err := e.Connect(t.Address)
		if err != nil {
			return nil, nil, err
		}
		db := sql.OpenDB(c)
		q, err := chanqjobs.Open(ctx, db, "jobs", chanq.Config{History: chanq.HistoryOff})
		return db, q, err
	}
	return nil, nil, fmt.Errorf("unknown engine %q", t.Engine)
}

// noticeDeaths is a process that notices deaths. It is slow between its statement and the commit, where most kills meet it.
func noticeDeaths(ctx context.Context, t task, _ <-chan string) error {
	db, q, err := t.open(ctx)
	if err != nil {
		if ctx.Err() != nil { // it ends while it starts
			err = nil
		}
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
		start := func() error {
			for place, p := range c.Places {
				if p == nil {
					if err := c.Start(place, task{w.Engine.Name, w.Address}); err != nil {
						return err
					}
				}
			}
			return nil
		}
		require.NoError(w, start())
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
		c.Often(500*time.Millisecond, func() error {
			if p := c.Places[c.Random.IntN(places)]; p != nil {
				if err := c.Kill(p); err != nil {
					return err
				}
			}
			return start()
		})
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return dying > testdb.Of(0, 40, 400), nil }))
		c.Calm()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) { return len(notices(w, q.Names())) == len(ids), nil }))
		require.NoError(w, c.End(ctx))

		kills := 0
		for _, p := range c.All {
			if p.Killed() {
				kills++
			}
		}
		for id, causes := range notices(w, q.Names()) {
			require.Equal(w, []chanq.Cause{chanq.CauseRejected}, causes, id)
		}
		w.Logf("%d processes, %d kills, %d deaths", len(c.All), kills, len(ids))
		require.Greater(w, kills, 5)
	})
}
