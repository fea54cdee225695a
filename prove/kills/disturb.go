package kills

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// disturber locks rows and freezes connections. Its goroutines, one for each lock
// and each freeze that lasts, are joined by end.
type disturber struct {
	engine engine
	db     *sql.DB // of its own: nothing of the run waits for it
	crew   *crew
	random *rand.Rand // of the run's goroutine

	stopped context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup
	failed  chan error // the first error of a lock
}

func newDisturber(e engine, address string, c *crew, random *rand.Rand) (*disturber, error) {
	db, err := e.open(address, nil)
	if err != nil {
		return nil, err
	}
	d := &disturber{engine: e, db: db, crew: c, random: random, failed: make(chan error, 1)}
	d.stopped, d.stop = context.WithCancel(context.Background())
	return d, nil
}

// end ends what lasts, and waits.
func (d *disturber) end() {
	d.stop()
	d.work.Wait()
	_ = d.db.Close() // nothing is open on it
}

// rest waits, but not beyond end.
func (d *disturber) rest(length time.Duration) {
	t := time.NewTimer(length)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.stopped.Done():
	}
}

// lock locks a leased row, any, as another program's transaction does, or all of
// a database that has one writer.
func (d *disturber) lock() {
	length := time.Duration(1 + d.random.Int64N(int64(d.engine.lockFor)))
	d.work.Go(func() {
		if err := d.lockFor(length); err != nil && d.stopped.Err() == nil {
			select {
			case d.failed <- fmt.Errorf("lock a row: %w", err):
			default:
			}
		}
	})
}

func (d *disturber) lockFor(length time.Duration) error {
	c, err := d.db.Conn(d.stopped)
	if err != nil {
		return err
	}
	defer c.Close()
	from := now()
	if d.engine.lockAll != "" {
		if _, err := c.ExecContext(d.stopped, d.engine.lockAll); err != nil {
			return err
		}
		d.rest(length)
		_, err := c.ExecContext(context.Background(), "ROLLBACK")
		d.crew.lockedAll()
		return err
	}
	tx, err := c.BeginTx(d.stopped, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // again, perhaps
	var raw []byte
	switch err := tx.QueryRowContext(d.stopped, d.engine.lockOne).Scan(&raw); err {
	case nil:
	case sql.ErrNoRows: // nothing is leased
		return nil
	default:
		return err
	}
	var id chanq.ID
	copy(id[:], raw)
	d.rest(length)
	err = tx.Rollback()
	d.crew.locked(id, Span{from, now()})
	return err
}

// freeze stops what goes through one connection of one worker. What had been sent
// arrives afterwards.
func (d *disturber) freeze() {
	thaw, process := d.crew.freeze(d.random)
	if thaw == nil {
		return // a worker that is not connected yet
	}
	from, length := now(), time.Duration(1+d.random.Int64N(int64(d.engine.freezeFor)))
	d.work.Go(func() {
		d.rest(length)
		thaw()
		d.crew.froze(process, Span{from, now()})
	})
}
