package keystorm_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// hold keeps two transactions open in each database, three times during the trial and for 25 % of it. One has read, so that the
// database cannot clean up messages that end meanwhile. One has sent a message and is rolled back at the end, so that readers do not
// know whether there is a message with that number.
func (s *trial) hold(length time.Duration) {
	for i := range s.shards {
		s.Every(length/12, length/3, func() error {
			release, err := s.holdOpen(i)
			if err != nil {
				return err
			}
			s.holds++
			s.After(length/4, release)
			return nil
		})
	}
}

func (s *trial) holdOpen(shard int) (release func() error, err error) {
	ctx, db := context.Background(), s.shards[shard].DB
	engine := s.task.Databases[shard].Engine
	if engine == testdb.SQLite.Name { // it has one writer: a transaction that has sent would stop all workers
		return holdRead(db)
	}
	sender, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	m := chanq.Message[string]{Body: "1 0"} // it must never be received: it is not in the history
	for n := 0; m.Key == "" || s.queue.shardOf(m) != shard; n++ {
		m.Key = "held " + strconv.Itoa(n)
	}
	if _, err := s.queue.shards[shard].SendTx(ctx, sender, m); err != nil {
		return nil, errors.Join(err, sender.Rollback())
	}
	if engine != testdb.Postgres.Name {
		return sender.Rollback, nil
	}
	reader, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err == nil {
		_, err = reader.ExecContext(ctx, "SELECT count(*) FROM chanq_"+queueName)
	}
	if err != nil {
		return nil, errors.Join(err, sender.Rollback())
	}
	return func() error { return errors.Join(reader.Rollback(), sender.Rollback()) }, nil
}

// lock locks the rows of all consumers, or of all slots, for up to two leases again and again. SQLite has no row locks.
func (s *trial) lock() {
	for i, shard := range s.shards {
		if s.task.Databases[i].Engine == testdb.SQLite.Name {
			continue
		}
		s.Often(5**stormLease, func() error { // no two overlap
			tx, err := shard.DB.BeginTx(context.Background(), nil)
			if err != nil {
				return err
			}
			row := []string{"chanq__consumers SET name = name", "chanq__slots SET fence = fence"}[s.Random.IntN(2)]
			if _, err := tx.ExecContext(context.Background(), "UPDATE "+row); err != nil {
				return tx.Rollback() // a deadlock with a worker
			}
			s.locks++
			s.After(time.Duration(s.Random.Int64N(2*int64(*stormLease))), tx.Rollback)
			return nil
		})
	}
}

// holdRead begins a statement that reads, and does not end it.
func holdRead(db *sql.DB) (release func() error, err error) {
	rows, err := db.QueryContext(context.Background(), "SELECT name FROM sqlite_schema")
	if err != nil {
		return nil, err
	}
	if !rows.Next() {
		return nil, errors.Join(errors.New("a database without tables"), rows.Close())
	}
	return rows.Close, nil
}
