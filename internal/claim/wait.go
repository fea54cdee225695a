package claim

import (
	"math"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
)

// The pauses of a Plain.

// waitForRoom returns how many messages to claim next, 0 after Stop.
func (p *Plain) waitForRoom() int {
	look := batch.Backoff{Low: firstPause, High: 100 * time.Millisecond}
	for p.cfg.Stop.Err() == nil {
		if room := p.pace.room(p.buffer.Waiting()); room > 0 {
			return room
		}
		p.pace.unsubscribe() // its readers are busy: other consumers may be woken
		timer := time.NewTimer(look.Pause())
		select {
		case <-p.cfg.Stop.Done():
		case <-p.pace.progress:
		case <-timer.C:
		}
		timer.Stop()
	}
	return 0
}

// pause waits for d, a signal of this process, a notification, the end of all leases, a rescan that found something, or
// Stop. It reports that one of the middle four occurred.
func (p *Plain) pause(d time.Duration, heard <-chan struct{}) (woken bool) {
	end := time.Now().Add(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-p.cfg.Stop.Done():
			return false
		case <-p.cfg.Waiter.Woken():
			p.cfg.Subscription.InProcess()
			return true
		case _, open := <-heard:
			if p.cfg.Subscription.Received(open) {
				return true
			}
			heard = nil
			timer.Reset(min(time.Until(end), p.cfg.Subscription.MutedFor()))
		case <-p.cfg.Cleared:
			return true
		case r := <-p.rescans.found:
			if p.rescans.ended(r) {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}

// waitForMessage returns when a claim might find something, or after Stop. empty means that the last claim found
// nothing. A message that the first poll finds due nevertheless is locked by another session. It is no reason to claim,
// unless it might have appeared in between, or is before the position where the claim began.
//
// The first poll precedes the first pause, because that might be long already: a notification about a scheduled message
// does not shorten it. After a claim that returned messages the poll may be delayed if the Notifier is live.
func (p *Plain) waitForMessage(idle *batch.Backoff, empty bool) {
	s, waited := p.cfg.Subscription, false
	if spare := min(s.Spare(), p.cfg.PollEvery); !empty && spare > 0 && p.doze(spare) {
		return
	}
	for first := true; p.cfg.Stop.Err() == nil; first = false {
		wait := idle.Poll()
		began := p.subscribe(wait)
		due, below, err := p.look()
		ready := err == nil && due <= 0
		switch {
		case err != nil && !first:
			return // the claim gets the error as well, and handles it
		case ready && !first && !waited && s.Waits():
			waited, wait = true, min(wait, notify.Every) // a consumer that the Notifier woke might be about to claim it
		case ready && (!first || !empty || began || below):
			p.found(first)
			return
		case err == nil && !ready && s.Live():
			wait = p.cfg.PollEvery
		}
		if !ready {
			waited = false
		}
		if err == nil && !ready {
			wait = min(wait, due)
		}
		if p.doze(wait) {
			return
		}
	}
}

// found follows a poll that found a message. If it was not the first one, no consumer was woken for the message: the
// Notifier might have room for another one.
func (p *Plain) found(first bool) {
	if !first && !p.cfg.Subscription.Live() {
		p.pace.unsubscribe()
	}
}

// doze is a pause that also ends with a notification, and when a rescan is useful.
func (p *Plain) doze(wait time.Duration) (woken bool) {
	s := p.cfg.Subscription
	wait = min(wait, s.MutedFor(), p.rescans.head.wait(base.Now()))
	if rest := min(wait, s.BackoffFor()); rest > 0 {
		if p.pause(rest, nil) {
			return true
		}
		wait -= rest
	}
	return p.pause(wait, s.Heard())
}

// subscribe calls subscribe of the pace, unless readers are busy: then other consumers may claim the next message.
func (p *Plain) subscribe(pause time.Duration) bool {
	if p.buffer.Waiting()+p.pace.feed.Coming()+p.pace.feed.Buffered() > 0 {
		p.pace.unsubscribe()
		return false
	}
	return p.pace.subscribe(pause)
}

// look returns when there might be something to claim. It makes a rescan if one is due; otherwise, and if that takes
// long, it reads from the head. below reports that a rescan found a message that no claim would have found, or expired
// leases.
func (p *Plain) look() (due time.Duration, below bool, err error) {
	if r, below, is := p.rescans.inPlaceOfPoll(); is {
		if r.err == nil {
			p.pace.looks.Add(1)
			p.cfg.Subscription.Looked(r.Due)
		}
		if len(p.rescans.lost) > 0 { // the rescue precedes the next claim
			return 0, true, nil
		}
		return r.Due, below, r.err
	}
	due, err = p.table.NextDue(p.cfg.SpareTimeout(), p.rescans.head.ask(base.Now()))
	if err != nil {
		return math.MaxInt64, false, err
	}
	p.pace.looks.Add(1)
	p.cfg.Subscription.Looked(due)
	return due, false, nil
}
