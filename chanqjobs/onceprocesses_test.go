package chanqjobs_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
)

// callOnce is a process that calls Once for one key after the other, each with an effect if it is the first. It pauses
// after the effect, where most kills meet it. Like a caller that repeats what might have failed, it begins with the first key.
func callOnce(ctx context.Context, p testdb.Place, _ <-chan string) error {
	db, q, err := openIn(ctx, p, chanq.Config{History: chanq.HistoryOff})
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer db.Close()
	n := q.Names()
	for key := 0; ctx.Err() == nil; key = (key + 1) % onceKeys {
		err := chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			first, err := chanqjobs.Once(ctx, tx, q, "effect", fmt.Sprint(key), time.Hour)
			if err != nil || !first {
				return err
			}
			_, err = tx.ExecContext(ctx, n.SQL("INSERT INTO {chanq__effects} (item) VALUES (?1)"), key)
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			return err
		})
		if err != nil && ctx.Err() == nil {
			fmt.Println(err)
		}
	}
	return nil
}

const onceKeys = 400

func TestKilledProcessesRepeatNoEffectOfOnceAndLoseNone(t *testing.T) {
	testdb.OnEach(t, inProcesses, func(w *testdb.World) {
		w.Within(5 * time.Minute)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		w.Define(q.Names().SQL("{create chanq__effects} (item integer NOT NULL)"))
		const places, kills = 4, 12
		c := crew.New("once", places, rand.New(rand.NewPCG(1, 2)), func(p int, line string) error {
			return fmt.Errorf("process %d: %s", p, line)
		})
		defer c.Abandon()
		require.NoError(w, c.Fill(w.Place()))
		c.KillOften(300*time.Millisecond, kills, w.Place())
		effects := func() (all, distinct int) {
			require.NoError(w, w.DB.QueryRowContext(w.Soon(), q.Names().SQL("SELECT count(*), count(DISTINCT item) FROM {chanq__effects}")).Scan(&all, &distinct))
			return all, distinct
		}
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		require.NoError(w, c.Run(ctx, 100*time.Millisecond, func() (bool, error) {
			_, distinct := effects()
			return c.Killed() == kills && distinct == onceKeys, nil
		}))
		c.Calm()
		require.NoError(w, c.End(ctx))
		all, distinct := effects()
		w.Logf("%d processes, %d kills, %d effects of %d keys", len(c.All), c.Killed(), all, distinct)
		require.Equal(w, onceKeys, distinct)
		require.Equal(w, onceKeys, all, "an effect was repeated")
	})
}
