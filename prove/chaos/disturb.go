package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
	"github.com/chanq/chanq/sqlbatch"
)

// freeze stops the data on one connection of one worker. Data that was already sent arrives afterwards. Without a
// proxy, each worker freezes its own connections.
func (r *run) freeze() error {
	if r.proxies == nil || len(r.Running()) == 0 {
		return nil
	}
	p := r.Running()[r.Random.IntN(len(r.Running()))]
	thaw, connected := r.proxies[p.Place].Freeze(r.Random.IntN(1000))
	if !connected {
		return nil
	}
	from := record.Now()
	r.After(r.upTo(r.engine(0).freezeFor), func() error {
		thaw()
		r.history.Froze(p.Number, from)
		return nil
	})
	return nil
}

// lock locks any leased row, as another program's transaction does, or the whole database if it has one writer. In an
// ordered queue it locks the rows of all consumers, or of all slots.
func (r *run) lock() error {
	shard := r.Random.IntN(len(r.At))
	e := r.engine(shard)
	length, all := r.upTo(e.lockFor), e.lockAll
	switch {
	case all != "":
	case r.Ordered:
		length = r.upTo(2 * r.LeaseFor)
		rows := []string{"chanq__consumers SET name = name", "chanq__slots SET fence = fence"}
		all = "UPDATE " + rows[r.Random.IntN(2)]
	case e.lockTable != "" && r.Random.IntN(10) == 0:
		length, all = r.upTo(hiccup), e.lockTable
	}
	r.locks.Go(func() {
		err := r.lockFor(shard, length, all)
		deadlock := e.Dialect.Classify(err) == sqlbatch.RolledBack // with a worker
		if err != nil && r.locking.Err() == nil && !deadlock {
			r.Fail(fmt.Errorf("lock a row: %w", err))
		}
	})
	return nil
}

// lockFor runs all, which blocks others, or locks a leased row, and rolls back after a time.
func (r *run) lockFor(shard int, length time.Duration, all string) error {
	c, err := r.queue.where[shard].DB.Conn(r.locking)
	if err != nil {
		return err
	}
	defer c.Close()
	from := record.Now()
	var id chanq.ID
	var release func() error
	if text := r.engine(shard).lockAll; text != "" {
		_, err = c.ExecContext(r.locking, text)
		release = func() error { _, err := c.ExecContext(context.Background(), "ROLLBACK"); return err }
	} else if tx, wrong := c.BeginTx(r.locking, nil); wrong != nil {
		return wrong
	} else if release = tx.Rollback; all != "" {
		_, err = tx.ExecContext(r.locking, all)
	} else {
		var raw []byte
		err = tx.QueryRowContext(r.locking, r.engine(shard).lockOne).Scan(&raw)
		copy(id[:], raw)
	}
	if err == nil {
		crew.Rest(r.locking, length)
		err = release()
		r.history.Locked(id, from)
		return err
	}
	_ = release()                      // the error is known
	if errors.Is(err, sql.ErrNoRows) { // no message is leased
		return nil
	}
	return err
}

// hold keeps two transactions open in a database, for three quarters of HoldEvery. One has read, so that the database
// cannot clean up messages that end meanwhile. One has sent a message and is rolled back at the end, so that readers
// do not know whether there is a message with that number.
func (r *run) hold(shard int) error {
	release, err := r.holdOpen(shard)
	if err == nil {
		r.holds++
		r.After(r.HoldEvery*3/4, release)
	}
	return err
}

func (r *run) holdOpen(shard int) (release func() error, err error) {
	ctx, db := context.Background(), r.queue.where[shard].DB
	engine := r.At[shard].Engine
	if engine == testdb.SQLite.Name { // it has one writer: a transaction that has sent would stop all workers
		rows, err := db.QueryContext(ctx, "SELECT name FROM sqlite_schema")
		if err != nil {
			return nil, err
		}
		if !rows.Next() {
			return nil, errors.Join(errors.New("a database without tables"), rows.Close())
		}
		return rows.Close, nil
	}
	sender, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	m := chanq.Message[body]{Body: newBody("held", 0)} // it must never be received: it is not in the history
	for n := 0; m.Key == "" || r.queue.shardOf(m) != shard; n++ {
		m.Key = "held " + strconv.Itoa(n)
	}
	if _, err := r.queue.shards[shard].SendTx(ctx, sender, m); err != nil {
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
