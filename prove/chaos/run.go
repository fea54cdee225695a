package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

// run is a storm: its workers, their events, and a connection to the queue that no fault affects. Each lock has a
// goroutine, which calm joins.
type run struct {
	*crew.Crew
	storm
	out     io.Writer
	queue   *queue
	history *record.History
	proxies []*netproxy.Proxy // by place, to the server; none to a file

	kills, stops, leaves, holds int
	began                       time.Time
	drained                     int64          // when sending ended
	samples                     []record.Usage // of the first worker

	locking context.Context // ends with calm
	calmed  context.CancelFunc
	locks   sync.WaitGroup
}

// blow runs a storm, prints what happened, and returns its history, which Judge has judged. The queue must not exist
// before, and is empty and removed afterwards. The end of ctx ends the sending early.
func (s storm) blow(ctx context.Context, out io.Writer) (h *record.History, v record.Verdict, err error) {
	r, err := s.begin(ctx, out)
	if err != nil {
		return nil, v, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	if s.Name == handovers {
		err = r.handOver(ctx)
	} else {
		err = r.play(ctx)
	}
	if err != nil {
		return nil, v, err
	}
	v, err = r.report(ctx)
	return r.history, v, err
}

// begin creates the queue, which must not exist: its messages would not be ours.
func (s storm) begin(ctx context.Context, out io.Writer) (r *run, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	r = &run{storm: s, out: out, history: record.NewHistory(s.LeaseFor), began: time.Now()}
	r.history.Strict, r.history.Broken, r.history.Ordered = s.strict(), s.Faults > 0 || s.Ordered, s.Ordered
	r.Crew = crew.New(workerPart, s.Workers, rand.New(rand.NewPCG(s.Seed, 1)), r.history.Hear)
	r.locking, r.calmed = context.WithCancel(context.Background())
	if r.queue, err = connect(s, nil); err != nil {
		return nil, err
	}
	defer func(opened *run) {
		if err != nil {
			err = errors.Join(err, opened.end())
		}
	}(r)
	if err := r.create(ctx); err != nil {
		return nil, err
	}
	network, upstream, err := engines[s.At[0].Engine].Server(s.At[0].Address)
	if err != nil {
		return nil, err
	}
	for range r.Places {
		if network != "" && s.FreezeEvery > 0 {
			p, err := netproxy.Listen(network, upstream)
			if err != nil {
				return nil, err
			}
			r.proxies = append(r.proxies, p)
		}
	}
	return r, nil
}

func (r *run) create(ctx context.Context) error {
	if err := r.queue.open(ctx, r.config()); err == nil {
		r.queue.shards = nil // it is not ours to drop
		return fmt.Errorf("the database has a queue %q: drop its tables or use another database", queueName)
	} else if !errors.Is(err, chanq.ErrNoSchema) {
		return err
	}
	if len(r.At) > 1 {
		if err := chanqshards.Migrate(ctx, r.queue.where, queueName, r.config()); err != nil {
			return err
		}
		return r.queue.open(ctx, r.config())
	}
	tables, err := r.At[0].Open()
	if err != nil {
		return err
	}
	defer tables.Close()
	if err := chanq.Migrate(ctx, tables, queueName, r.config()); err != nil {
		return err
	}
	if r.Guilty > 0 {
		if err := r.engine(0).install(tables); err != nil {
			return err
		}
	}
	return r.queue.open(ctx, r.config())
}

func (r *run) engine(shard int) engine { return engines[r.At[shard].Engine] }

// end kills the remaining processes, waits, and removes the queue.
func (r *run) end() error {
	r.calm()
	r.Abandon()
	for _, p := range r.proxies {
		p.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for i := range r.queue.shards {
		tables, err := r.At[i].Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, chanqadmin.DropWithMessages(ctx, tables, queueName, r.config(), chanqadmin.Change{}))
		if text := r.engine(i).drop; text != "" {
			_, err = tables.ExecContext(ctx, text)
		}
		errs = append(errs, err, tables.Close())
	}
	return errors.Join(append(errs, r.queue.close())...)
}

// play runs the load and the faults, drains the queue and ends the workers.
func (r *run) play(ctx context.Context) error {
	if r.SampleEvery > 0 {
		fmt.Fprintln(r.out, sampleHeader)
	}
	for i := range r.Places {
		if err := r.start(i); err != nil {
			return err
		}
	}
	if err := r.awaken(ctx); err != nil {
		return err
	}
	if err := r.disturb(ctx); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
	defer cancel()
	if err := r.drain(bound); err != nil {
		return err
	}
	if r.SampleEvery > 0 {
		if err := r.sample(); err != nil {
			return err
		}
	}
	return r.End(bound)
}

// awaken waits until all workers run and a message was delivered, so that a short storm on a loaded machine does not
// end before it began.
func (r *run) awaken(ctx context.Context) error {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
	defer cancel()
	starts := func(p *crew.Process) bool { return !r.history.Reported(p.Number, record.Started) }
	return r.until(bound, "all workers run, and a message was delivered", func() (bool, error) {
		t, _ := r.history.Totals(0)
		return ctx.Err() != nil || t.Delivered > 0 && !slices.ContainsFunc(r.Running(), starts), nil
	})
}

// start fills a place with a new process, which first sends messages that a former one might not have stored.
func (r *run) start(place int) (err error) {
	o := order{storm: r.storm, Number: len(r.All), Place: place, Next: r.history.Next()}
	o.Seed += uint64(o.Number)
	if !r.Ordered {
		for _, p := range r.All {
			if p.Place == place {
				o.Again = r.history.Unfinished(p.Number)
			}
		}
	}
	if r.proxies != nil {
		o.FreezeEvery = 0 // the proxy does it
		o.At = slices.Clone(o.At)
		if o.At[0].Address, err = r.engine(0).Through(o.At[0].Address, r.proxies[place].Addr()); err != nil {
			return err
		}
	}
	if err := r.Start(place, o); err != nil {
		return err
	}
	if r.drained > 0 {
		r.Places[place].Order("drain")
	}
	return nil
}

// refill starts a worker in a place again, after a while and when the former worker has ended.
func (r *run) refill(former *crew.Process, wait time.Duration) {
	r.After(wait, func() error {
		if !former.HasEnded() {
			r.refill(former, look)
			return nil
		}
		return r.start(former.Place)
	})
}

// upTo returns a random time.
func (r *run) upTo(d time.Duration) time.Duration {
	return time.Duration(r.Random.Int64N(int64(d) + 1))
}

// disturb injects the faults of the storm until its time is over, or its kills are done.
func (r *run) disturb(ctx context.Context) error {
	var crash errgroup.Group // joined here; kills continue meanwhile
	r.Every(r.SampleEvery, r.SampleEvery, r.sample)
	r.Often(r.KillEvery, r.toOne(func(p *crew.Process) error {
		if r.Kills > 0 && r.kills == r.Kills {
			return nil
		}
		if r.Crash != nil && r.kills == r.Kills/2 {
			crash.Go(func() error {
				defer r.history.Outage()()
				return r.Crash()
			})
		}
		return r.kill(p)
	}))
	r.Every(r.StopEvery/2, r.StopEvery, r.toOne(func(p *crew.Process) error {
		if err := r.Freeze(p, 2*r.LeaseFor); err != nil {
			fmt.Fprintln(r.out, err) // not here
			return nil
		}
		r.stops++
		return nil
	}))
	r.Every(r.LeaveEvery, r.LeaveEvery, r.toOne(func(p *crew.Process) error {
		r.leaves++
		r.Leave(p)
		r.refill(p, r.upTo(r.Gap))
		return nil
	}))
	r.Often(r.LockEvery, r.lock)
	r.Often(r.FreezeEvery, r.freeze)
	for i := range r.At {
		r.Every(r.HoldEvery/4, r.HoldEvery, func() error { return r.hold(i) })
	}
	r.help()
	end := time.Now().Add(r.For)
	err := r.Run(context.WithoutCancel(ctx), look, func() (bool, error) {
		return ctx.Err() != nil || r.Kills > 0 && r.kills == r.Kills || r.Kills == 0 && time.Now().After(end), nil
	})
	r.calm()
	return errors.Join(err, crash.Wait())
}

// help does what the queue needs from outside: it ends processes that handle a deadly message, and redrives dead
// messages that hold their keys.
func (r *run) help() {
	if r.Guilty > 0 {
		r.Every(0, dyingEvery, func() error {
			for _, number := range r.history.TakeDying() {
				if p := r.All[number]; !p.Killed() {
					if err := r.kill(p); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if r.Holds {
		r.Often(400*time.Millisecond, func() error { r.queue.redrive(r.locking, r.LeaseFor); return nil })
	}
}

// toOne calls do with any worker that may be disturbed, unless it would be the last.
func (r *run) toOne(do func(*crew.Process) error) func() error {
	return func() error {
		all := slices.DeleteFunc(r.Running(), func(p *crew.Process) bool { return p.Place < r.Spared })
		if len(all) < 2 {
			return nil
		}
		return do(all[r.Random.IntN(len(all))])
	}
}

// kill kills a worker; another replaces it.
func (r *run) kill(p *crew.Process) error {
	r.kills++
	r.history.Kill(p.Number)
	err := r.Kill(p)
	r.refill(p, r.upTo(r.Gap))
	return err
}

// calm ends all disturbances except those that end by themselves.
func (r *run) calm() {
	r.Calm()
	r.calmed()
	r.locks.Wait()
}

// drain runs all workers until none sends, and only dead messages are left in the queue.
func (r *run) drain(ctx context.Context) error {
	r.locking, r.calmed = context.WithCancel(ctx)
	defer r.calm()
	r.drained = record.Now()
	r.Order("drain")
	r.help()
	sends := func(p *crew.Process) bool { return !r.history.Reported(p.Number, record.Quiet) }
	if err := r.until(ctx, "no worker sends", func() (bool, error) {
		return r.Idle() && !slices.ContainsFunc(r.Running(), sends), nil
	}); err != nil {
		return err
	}
	return r.until(ctx, "the queue is empty", func() (bool, error) {
		for _, shard := range r.queue.shards {
			if empty, err := shard.Empty(ctx); !empty || err != nil {
				return false, err
			}
		}
		_, dead, err := r.queue.stats(ctx)
		return r.Idle() && (!r.Holds || dead == 0), err
	})
}

// until follows the schedule until a condition is true. If ctx ends before, it prints what keeps the queue from
// becoming empty.
func (r *run) until(ctx context.Context, what string, done func() (bool, error)) error {
	err := r.Run(ctx, look, done)
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintf(r.out, "not in %v: %s\n", rest, what)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, p := range r.Running() {
		if !r.history.Reported(p.Number, record.Quiet) {
			fmt.Fprintln(r.out, p.Stacks())
			break
		}
	}
	for _, shard := range r.queue.shards {
		slots, _ := testdb.Admin(shard).Slots(ctx) // a plain queue has none
		for _, slot := range slots {
			if slot.Messages > 0 {
				fmt.Fprintf(r.out, "%s: %+v\n", shard.Label(), slot)
			}
		}
		states := []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead}
		for _, state := range states {
			entries, _ := testdb.Peek(ctx, shard, state, 100) // what can be read helps
			for _, e := range entries {
				fmt.Fprintln(r.out, e.State, e.Key, nameOf(e.Body), "attempts", e.Attempts, "by", e.LeasedBy, "until", e.LeaseUntil, "due", e.DueAt)
			}
		}
	}
	return fmt.Errorf("not in %v: %s: %w", rest, what, err)
}
