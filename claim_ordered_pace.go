package chanq

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/batch"
)

// When the claimer of an ordered queue does something: until then it pauses. And what it
// does when it has ended, until its slots are given back.

// pause waits as Consumer.pause does, and for a change of the lines.
func (d *dispatch[T]) pause(wait time.Duration, heard <-chan struct{}) (rung bool) {
	c := d.c
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for end := monotonic() + wait; ; wait = end - monotonic() {
		select {
		case <-c.stop.Done():
			return false
		case <-c.ears.bell:
			c.seat.told()
			return true
		case _, open := <-heard:
			if c.seat.rang(open) {
				return true
			}
			heard = nil
			timer.Reset(min(end-monotonic(), c.seat.deaf()))
		case <-c.cleared:
			return true
		case <-d.changed:
			wait = d.untilDue(wait)
			if d.wanted.Swap(false) || wait <= 0 {
				return true
			}
			timer.Reset(wait)
		case <-timer.C:
			return false
		}
	}
}

// waitForMessage returns when a claim may find something, or after Stop: as that of
// Consumer, but that the look is one at the slots.
func (d *dispatch[T]) waitForMessage(idle *batch.Backoff, empty bool) {
	c := d.c
	for first := true; c.stop.Err() == nil; first = false {
		wait := idle.Poll()
		sat := c.beSeated(wait)
		if sat || !first {
			d.tenure.hurry()
		}
		look, err := d.tend(c.stop)
		if err == nil {
			err = d.sample(c.stop, true)
		}
		if err == nil {
			err = d.askHeld(c.stop)
		}
		if err != nil {
			if !first {
				return // the claim meets the error, too, and deals with it
			}
		} else if look != nil && look.any {
			if look.due <= 0 && (!first || !empty || sat) {
				return
			}
			if look.due > 0 {
				wait = min(wait, look.due)
			}
		} else if c.seat.stands {
			wait = c.cfg.PollMax
		}
		wait = d.untilDue(min(wait, c.seat.deaf()))
		if first && empty { // what is due in less than the database's millisecond was not claimed
			wait = max(wait, time.Millisecond)
		}
		if wait <= 0 || d.pause(wait, c.seat.heard) {
			return
		}
	}
}

// untilDue is for how long, up to most, nothing is to be done for entries or slots.
func (d *dispatch[T]) untilDue(most time.Duration) time.Duration {
	var due time.Duration
	var any, held bool
	d.with(func(ls *lines) {
		due, any = ls.due()
		held = ls.held > 0
	})
	if any {
		most = min(most, due-monotonic())
	}
	if held {
		most = min(most, d.asked+heldEvery-monotonic())
	}
	if !d.tenure.alive() {
		return most
	}
	return min(most, max(d.tenure.wait(), d.rest-monotonic()))
}

// vacate gives the slots back, as their handlers end, until ctx ends, or there are none.
func (d *dispatch[T]) vacate(ctx context.Context) {
	d.tenure.leave()
	pause := batch.Backoff{Low: d.c.cfg.PollMin, High: d.c.cfg.PollMax}
	for !d.tenure.empty() && ctx.Err() == nil {
		if _, err := d.tend(ctx); err != nil {
			batch.Sleep(ctx, pause.Pause())
			continue
		}
		if d.tenure.empty() {
			return
		}
		select {
		case <-d.changed:
		case <-ctx.Done():
		case <-time.After(min(time.Second, max(time.Millisecond, d.tenure.wait()))):
		}
	}
}
