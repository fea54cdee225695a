package chanq

import (
	"context"
	"math/rand/v2"
	"time"
)

// TryLease on a queue of several shards: one is asked after the other, beginning anywhere, until
// there are enough. One that does not answer is not waited for by the others.

// tryPatience is for how long TryLease waits for a shard before it asks the next beside it, and for
// those that have not answered once there is a message.
const tryPatience = time.Second

// tried is what a shard answered.
type tried[T any] struct {
	leases []*Lease[T]
	err    error
}

func tryLeaseOfEach[T any](ctx context.Context, shards []*queue, n int, d time.Duration, config ConsumerConfig) ([]*Lease[T], error) {
	bound, enough := context.WithCancel(ctx)
	defer enough()
	answers := make(chan tried[T], len(shards))
	var leases []*Lease[T]
	var errs []error
	first, asked, open := rand.IntN(len(shards)), 0, 0
	ask := func() {
		shard, want := shards[(first+asked)%len(shards)], n-len(leases)
		asked++
		open++
		go func() { // it is waited for
			a := tried[T]{err: shard.fail("try lease", errLeft)}
			defer func() { answers <- a }()
			defer func() {
				if p := recover(); p != nil {
					a.err = shard.fail("try lease", panicked(p))
				}
			}()
			a.leases, a.err = tryLease[T](bound, shard, want, d, config)
		}()
	}
	ask()
	timer := time.NewTimer(tryPatience)
	defer timer.Stop()
	late := false // nobody is waited for any more, but for the end of what was asked
	for open > 0 {
		more := false
		select {
		case a := <-answers:
			open--
			errs = append(errs, a.err)
			take := min(len(a.leases), n-len(leases))
			leases = append(leases, a.leases[:take]...)
			if len(leases) == n {
				enough()
			}
			giveBackSpare(ctx, a.leases[take:], d)
			more = true
		case <-timer.C:
			more = true
			late = late || asked == len(shards) && len(leases) > 0
			timer.Reset(tryPatience)
		}
		switch {
		case late || len(leases) == n:
			late = true
			enough()
		case more && asked < len(shards):
			ask()
			timer.Reset(tryPatience)
		}
	}
	if len(leases) > 0 {
		return leases, nil
	}
	return nil, joined(errs)
}

// giveBackSpare gives back leases of one shard that came when there were enough: uncounted, and if
// that fails they come again when they have ended.
func giveBackSpare[T any](ctx context.Context, spare []*Lease[T], d time.Duration) {
	var back []*lease
	for _, l := range spare {
		if l.lease.takeBack() {
			back = append(back, l.lease)
		}
	}
	if len(back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(d, leaveTimeout))
	defer cancel()
	back[0].owner.(*loneOwner).store(ctx, back)
}
