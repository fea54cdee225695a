package keystorm_test

import (
	"context"
	"database/sql"
	"flag"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// Disturbances from outside of the workers, in the first database.
var (
	stormSnapshot = flag.Bool("storm.snapshot", false, "a REPEATABLE READ transaction stays open until all is handled (PostgreSQL)")
	stormOpen     = flag.Bool("storm.open", false, "one transaction after another sends, is open for 2 s, and is rolled back (not SQLite)")
)

// disturb begins what the flags ask for, until the function that it returns is called.
func (s *storm) disturb() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var apart conc.WaitGroup
	engine, db := s.task.Databases[0].Engine, s.shards[0].DB
	if *stormSnapshot && engine == testdb.Postgres.Name {
		apart.Go(func() {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
			if err != nil {
				s.fail(err)
				return
			}
			defer func() { _ = tx.Rollback() }()
			var n int
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM chanq_keys`).Scan(&n); err != nil {
				s.fail(err)
			}
			<-ctx.Done()
		})
	}
	if *stormOpen && engine != testdb.SQLite.Name {
		apart.Go(func() {
			for ctx.Err() == nil {
				tx, err := db.BeginTx(context.Background(), nil)
				if err == nil {
					_, err = s.queue.Shard(0).SendTx(context.Background(), tx, chanq.Message[string]{Key: "open", Body: "rolled back"})
				}
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Second):
				}
				if err == nil {
					err = tx.Rollback()
				}
				if err != nil && ctx.Err() == nil {
					s.t.Log(err) // the database undoes some
				}
			}
		})
	}
	return func() {
		cancel()
		apart.Wait()
	}
}
