package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
)

const handovers = "handovers"

// The documented limits.
const (
	joinWithin  = 3 * time.Second
	leaveWithin = 500 * time.Millisecond
	killWithin  = 2 * time.Second // plus a lease
)

// handOver measures, over processes, how soon the slots of an ordered queue are balanced after a process has joined,
// left, or was killed, and for how long a slot has no owner while one leaves and joins each second. The result
// depends on the machine.
func (r *run) handOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	var joins, leaves, killed []time.Duration
	measure := func(list *[]time.Duration, err error) error {
		began := time.Now()
		if err == nil {
			err = r.until(ctx, "the slots are balanced", func() (bool, error) { return r.balanced(ctx) })
		}
		*list = append(*list, time.Since(began))
		return err
	}
	for place := range r.Places {
		if err := measure(&joins, r.start(place)); err != nil {
			return err
		}
	}
	for place := range r.Places {
		former := r.Places[place]
		r.Leave(former)
		if err := measure(&leaves, nil); err != nil {
			return err
		}
		if err := r.until(ctx, "it has ended", func() (bool, error) { return former.HasEnded(), nil }); err != nil {
			return err
		}
		if err := measure(&joins, r.start(place)); err != nil {
			return err
		}
		r.history.Kill(r.Places[place].Number)
		if err := measure(&killed, r.Kill(r.Places[place])); err != nil {
			return err
		}
		if err := measure(&joins, r.start(place)); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.out, "balanced after one joined: %s\nall taken after one left: %s\nafter one was killed (LeaseFor %v): %s\n",
		quantiles(joins), quantiles(leaves), r.LeaseFor, quantiles(killed))
	if err := r.comeAndGo(ctx, 20); err != nil {
		return err
	}
	join, leave, kill := slices.Max(joins), slices.Max(leaves), slices.Max(killed)
	if join > joinWithin || leave > leaveWithin || kill > killWithin+r.LeaseFor {
		return fmt.Errorf("it took longer than %v, %v and %v", joinWithin, leaveWithin, killWithin+r.LeaseFor)
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.End(ctx)
}

// owners returns the numbers of the processes that own the slots, -1 for a slot without an owner.
func (r *run) owners(ctx context.Context) (owners []int, err error) {
	all, err := testdb.Admin(r.queue.shards[0]).Slots(ctx)
	for _, slot := range all {
		owner := -1
		if slot.Owner != "" {
			if owner, err = strconv.Atoi(slot.Owner); err != nil {
				return nil, err
			}
		}
		owners = append(owners, owner)
	}
	return owners, err
}

// balanced reports whether the running processes own all slots, each at most its share.
func (r *run) balanced(ctx context.Context) (bool, error) {
	owners, err := r.owners(ctx)
	counts := map[int]int{}
	for _, n := range owners {
		counts[n]++
	}
	there, running := 0, r.Running()
	for _, p := range running {
		n := counts[p.Number]
		if there += n; n > (slots+len(running)-1)/len(running) {
			return false, err
		}
	}
	return there == slots, err
}

// comeAndGo makes one worker leave and join again each second, the given number of times, while the others stay.
func (r *run) comeAndGo(ctx context.Context, times int) error {
	began, before := time.Now(), len(r.history.Latencies())
	var free []time.Duration // for how long slots had no owner, each time
	since := make([]time.Time, slots)
	last, err := r.owners(ctx)
	if err != nil {
		return err
	}
	moves, turns := 0, 0
	r.Every(0, time.Second, func() error {
		turns++
		if p := r.Places[len(r.Places)-1]; p != nil {
			r.Leave(p)
			r.refill(p, time.Second/2)
		}
		return nil
	})
	err = r.until(ctx, "all came and went", func() (bool, error) {
		now := time.Now()
		owners, err := r.owners(ctx)
		for slot, owner := range owners {
			alive := slices.ContainsFunc(r.Places, func(p *crew.Process) bool { return p != nil && p.Number == owner })
			switch {
			case !alive && since[slot].IsZero():
				since[slot] = now
			case alive && !since[slot].IsZero():
				free = append(free, now.Sub(since[slot]))
				since[slot] = time.Time{}
			}
			if alive && owner != last[slot] {
				moves++
				last[slot] = owner
			}
		}
		return turns == times, err
	})
	r.Calm()
	fmt.Fprintf(r.out, "one leaves and joins again each second, %d times: %.1f slots move per second\n",
		times, float64(moves)/time.Since(began).Seconds())
	fmt.Fprintf(r.out, "without an owner: %s\nsent to handled: %s\n", quantiles(free), quantiles(r.history.Latencies()[before:]))
	return err
}
