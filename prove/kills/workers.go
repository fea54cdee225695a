package kills

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb/crew"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

// workers has the workers of a run, their events, and the faults other than kills: frozen connections and locked rows.
// Each lock has a goroutine, which calm joins.
type workers struct {
	*crew.Crew
	*watch
	trial   trial
	history *History
	proxies []*netproxy.Proxy // by place, to the server; none to a file

	drained int64 // when sending ended

	locking context.Context // ends with calm
	calmed  context.CancelFunc
	locks   sync.WaitGroup
}

func startWorkers(s trial, watch *watch) (*workers, error) {
	w := &workers{watch: watch, trial: s, history: NewHistory(leaseFor)}
	w.history.Strict, w.history.Broken = s.strict(), s.Faults > 0
	w.Crew = crew.New(WorkerPart, s.Workers, rand.New(rand.NewPCG(s.Seed, 1)), w.history.Hear)
	w.locking, w.calmed = context.WithCancel(context.Background())
	if err := w.startAll(); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

func (w *workers) startAll() error {
	network, upstream, err := w.engine.Server(w.trial.Address)
	if err != nil {
		return err
	}
	for i := range w.Places {
		if network != "" && w.trial.FreezeEvery > 0 {
			p, err := netproxy.Listen(network, upstream)
			if err != nil {
				return err
			}
			w.proxies = append(w.proxies, p)
		}
		if err := w.start(i, nil); err != nil {
			return err
		}
	}
	return nil
}

// start fills a place with a new process, which first sends messages that a former one might not have stored.
func (w *workers) start(place int, again []Again) (err error) {
	o := order{trial: w.trial, Number: len(w.All), Again: again}
	if w.proxies != nil {
		o.FreezeEvery = 0
		if o.Address, err = w.engine.Through(o.Address, w.proxies[place].Addr()); err != nil {
			return err
		}
	}
	return w.Start(place, o)
}

// killOne kills any worker except those that are spared.
func (w *workers) killOne() error {
	if len(w.Places) <= w.trial.Spared {
		return nil
	}
	return w.kill(w.Places[w.trial.Spared+w.Random.IntN(len(w.Places)-w.trial.Spared)])
}

// killDying kills the processes that handle deadly messages.
func (w *workers) killDying() error {
	for _, number := range w.history.takeDying() {
		if p := w.All[number]; !p.Killed() {
			if err := w.kill(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// kill kills a worker and starts another in its place.
func (w *workers) kill(p *crew.Process) error {
	w.history.Kill(p.Number)
	if err := w.Kill(p); err != nil {
		return err
	}
	err := w.start(p.Place, w.history.Unfinished(p.Number))
	if err == nil && w.drained > 0 {
		w.Places[p.Place].Order("drain")
	}
	return err
}

// freeze stops the data on one connection of one worker. Data that was already sent arrives afterwards. Without a
// proxy, each worker freezes its own connections.
func (w *workers) freeze() error {
	if w.proxies == nil {
		return nil
	}
	place := w.Random.IntN(len(w.proxies))
	thaw, connected := w.proxies[place].Freeze(w.Random.IntN(1000))
	if !connected {
		return nil
	}
	from, process := now(), w.Places[place].Number
	w.After(w.upTo(w.engine.freezeFor), func() error {
		thaw()
		w.history.froze(process, from)
		return nil
	})
	return nil
}

func (w *workers) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + w.Random.Int64N(int64(d)))
}

// lock locks any leased row, as another program's transaction does, or the whole database if it has one writer.
func (w *workers) lock() error {
	length, all := w.upTo(w.engine.lockFor), w.engine.lockAll
	if w.engine.lockTable != "" && w.Random.IntN(10) == 0 {
		length, all = w.upTo(hiccup), "BEGIN; "+w.engine.lockTable
	}
	w.locks.Go(func() {
		if err := w.lockFor(length, all); err != nil && w.locking.Err() == nil {
			w.Fail(fmt.Errorf("lock a row: %w", err))
		}
	})
	return nil
}

// lockFor runs all, which blocks every other writer, or locks a leased row, and rolls back after a time.
func (w *workers) lockFor(length time.Duration, all string) error {
	c, err := w.db.Conn(w.locking)
	if err != nil {
		return err
	}
	defer c.Close()
	from := now()
	var id chanq.ID
	if all != "" {
		if _, err := c.ExecContext(w.locking, all); err != nil {
			return err
		}
		crew.Rest(w.locking, length)
		_, err := c.ExecContext(context.Background(), "ROLLBACK")
		w.history.locked(id, from)
		return err
	}
	tx, err := c.BeginTx(w.locking, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // perhaps for the second time
	var raw []byte
	switch err := tx.QueryRowContext(w.locking, w.engine.lockOne).Scan(&raw); err {
	case nil:
	case sql.ErrNoRows: // no message is leased
		return nil
	default:
		return err
	}
	copy(id[:], raw)
	crew.Rest(w.locking, length)
	err = tx.Rollback()
	w.history.locked(id, from)
	return err
}

// calm ends all disturbances except freezes, which end by themselves.
func (w *workers) calm() {
	w.Calm()
	w.calmed()
	w.locks.Wait()
}

// end kills the remaining processes, waits, and removes the queue.
func (w *workers) end() {
	w.calm()
	w.Abandon()
	for _, p := range w.proxies {
		p.Close()
	}
	w.close()
}
