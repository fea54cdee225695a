package consume

import (
	"context"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
)

// watchTicks is into how many parts watch divides its pause.
const watchTicks = 4

// watch ends the leases of cancelled messages, until ctx ends. It looks up the rows of leases that readers have had for
// PollEvery, so that quicker readers cost no statement: the first time at most a quarter of PollEvery later, and then
// every PollEvery, all together.
//
// Leases have no time at which a reader took them. Their Numbers have the order in which they were taken: those up to
// the number that readers had taken PollEvery ago are old enough.
func (t tasks) watch(ctx context.Context) {
	var taken [watchTicks]int64 // at the last ticks
	for i, from := 0, int64(0); ctx.Err() == nil; i = (i + 1) % watchTicks {
		batch.Sleep(ctx, max(t.PollEvery, lookLeast)/watchTicks)
		to := taken[i]
		taken[i] = t.of.feed.Taken()
		if i == 0 {
			from = 0
		}
		t.endCancelled(from, to)
		from = to
	}
}

// endCancelled looks up the rows of held leases by their Numbers, above from and up to the number to.
func (t tasks) endCancelled(from, to int64) {
	held := t.of.owner.extender.Held(func(l *lease.Lease) bool {
		n := l.Number.Load()
		return n > from && n <= to
	})
	if len(held) == 0 {
		return
	}
	seen, err := t.lookUp(held)
	for _, l := range held {
		if err == nil && l.Row(seen).Cancels(l) {
			t.of.owner.Lose(l, lease.Lost)
		}
	}
}
