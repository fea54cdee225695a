package chanq

import (
	"context"
	"database/sql"
	"math"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
)

// When a claim is made, and how many messages it asks for.

// flow is what the claimer knows of its readers' pace. Only the claimer uses it,
// save skipped and coming.
type flow struct {
	delivered int64        // leases sent on the channel, about to be, or set aside
	skipped   atomic.Int64 // of those, the ones that readers dropped
	samples   []flowSample
	meanBytes int  // of a body, by the last claim
	lastClaim int  // messages of the last claim
	atWork    bool // the last claim found some

	beside chan struct{} // closed when the claim before is delivered; nil: it is
	coming atomic.Int64  // leases of it that are not on the channel yet
	used   []claimedRow  // of it
	free   []claimedRow  // no claim's
}

type flowSample struct {
	at    time.Duration
	taken int64
}

// takenLately is how many leases readers took in about the last second.
func (f *flow) takenLately(now time.Duration, buffered int) int {
	taken := f.delivered - int64(buffered) - f.skipped.Load()
	f.samples = append(f.samples, flowSample{now, taken})
	for len(f.samples) > 1 && now-f.samples[1].at >= time.Second {
		f.samples = f.samples[1:]
	}
	if len(f.samples) > 256 { // keep every other: the oldest decides
		half := f.samples[:0:0]
		for i := 0; i < len(f.samples); i += 2 {
			half = append(half, f.samples[i])
		}
		f.samples = half
	}
	return int(taken - f.samples[0].taken)
}

// room returns for how many messages there is room, if ready messages are about to become leases; 0 for none. Then progress has a value
// when enough leases have ended. Readers that take leases without settling them are noticed by the clock.
func (c *consumer[T]) room(ready int) int {
	buffered := c.buffered()
	most := min(c.cfg.Prefetch, max(minClaim, c.flow.takenLately(base.Now(), buffered)))
	buffered += ready
	room := min(most-buffered, c.size.Of(c.queue.dialect.Traits().ClaimRows))
	if c.flow.meanBytes == 0 { // nothing is known of sizes, except that of the largest
		room = min(room, max(1, c.cfg.PrefetchBytes/c.queue.cfg.MaxBody))
	} else {
		fit := c.cfg.PrefetchBytes/c.flow.meanBytes - buffered
		if buffered == 0 { // a body larger than all of the room comes alone
			fit = max(fit, 1)
		}
		room = min(room, fit)
	}
	if buffered > most/2 || c.settler.Backlogged() || room <= 0 {
		c.wakeAt.Store(c.taken.Load() + int64(max(1, buffered-most/2)))
		return 0
	}
	c.wakeAt.Store(0)
	return room
}

// waitForRoom returns how many messages to claim next, 0 after Stop.
func (c *consumer[T]) waitForRoom() int {
	look := c.cfg.PollMin
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for c.stop.Err() == nil {
		if room := c.room(0); room > 0 {
			return room
		}
		c.unsubscribe() // its readers are busy: other consumers may wake
		timer.Reset(look)
		look = min(2*look, 100*time.Millisecond)
		select {
		case <-c.stop.Done():
		case <-c.progress:
		case <-timer.C:
		}
	}
	return 0
}

// pauseAfter returns the pause that follows on a claim, or a read, that brought so many messages; full: as many as it asked for.
func (c *consumer[T]) pauseAfter(idle *batch.Backoff, got int, full bool) time.Duration {
	idle.Reset()
	if c.subscription.Claimed(full) {
		c.unsubscribe()
	}
	if full {
		return 0
	}
	pause := idle.Pause()
	if got >= worthwhile {
		pause /= 4
	}
	if c.subscription.Live() { // it need not wait for long in order to look seldom
		pause = min(pause, notify.ShortPause)
	}
	return pause
}

// pause waits for d, a signal of this process, a notification, the end of a suspect, a survey that found something, or Stop. It
// reports one of the middle four.
func (c *consumer[T]) pause(d time.Duration, heard <-chan struct{}) (woken bool) {
	end := time.Now().Add(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-c.stop.Done():
			return false
		case <-c.ears.woken:
			c.subscription.InProcess()
			return true
		case _, open := <-heard:
			if c.subscription.Received(open) {
				return true
			}
			heard = nil
			timer.Reset(min(time.Until(end), c.subscription.Deaf()))
		case <-c.cleared:
			return true
		case s := <-c.surveyed:
			if c.surveyEnded(s) {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}

// waitForMessage returns when a claim may find something, or after Stop. empty says that
// one has just found nothing. A message that the first look finds due all the same is locked by another session, and no reason to
// claim, unless it may have come in between, or lies below where the claim began.
//
// The first look is before the first pause, because that may be long already: a notification about a
// scheduled message does not shorten it. After a claim that brought something the look may wait
// for a while if the Notifier is live.
func (c *consumer[T]) waitForMessage(idle *batch.Backoff, empty bool) {
	if spare := c.subscription.Spare(c.cfg.PollMax); !empty && spare > 0 && c.doze(spare) {
		return
	}
	waited := false
	for first := true; c.stop.Err() == nil; first = false {
		wait := idle.Poll()
		began := c.subscribe(wait)
		due, any, below, err := c.look()
		if err == nil && c.suspectsWait() {
			return
		}
		ready := err == nil && any && due <= 0
		switch {
		case err != nil && !first:
			return // the claim meets the error, too, and deals with it
		case ready && !first && !waited && c.subscription.Waits():
			waited, wait = true, min(wait, notify.Every) // a consumer that the Notifier woke may be about to claim it
		case ready && (!first || !empty || began || below):
			if !first && !c.subscription.Live() {
				c.unsubscribe() // no consumer was woken for it: the Notifier may have room for another one
			}
			return
		case err == nil && !ready && c.subscription.Live():
			wait = c.cfg.PollMax
		}
		if !ready {
			waited = false
		}
		if err == nil && any && due > 0 {
			wait = min(wait, due)
		}
		if c.doze(wait) {
			return
		}
	}
}

// doze is a pause that ends with a notification, too, and when a survey is worth it.
func (c *consumer[T]) doze(wait time.Duration) (woken bool) {
	wait = min(wait, c.subscription.Deaf(), c.surveys.floor.wait(base.Now()))
	if rest := min(wait, c.subscription.Rest()); rest > 0 {
		if c.pause(rest, nil) {
			return true
		}
		wait -= rest
	}
	return c.pause(wait, c.subscription.Heard())
}

// subscribe has the consumer listen to the Notifier before a pause that is long enough,
// unless its readers are busy. It reports whether it listens only from now on.
func (c *consumer[T]) subscribe(pause time.Duration) bool {
	switch {
	case len(c.out) > 0 && !c.queue.ordered(): // other consumers may claim the next message
		c.unsubscribe()
	case c.subscription.Heard() == nil && (pause > notify.ShortPause || pause >= c.cfg.PollMax):
		c.subscription.Subscribe()
		return c.subscription.Heard() != nil
	}
	return false
}

// unsubscribe ends listening to the Notifier. A notification for which no claim was made is passed on to another consumer.
func (c *consumer[T]) unsubscribe() {
	if c.subscription.Unsubscribe() && !c.queue.ordered() { // each owner of a slot is notified
		c.queue.debouncer.Notify(1, notify.Slots{}, false)
	}
}

// look asks when there may be something to claim: by a survey, if one is due for which
// claims may wait, or else from where claims begin. below says that a survey found
// something where no claim would have.
func (c *consumer[T]) look() (due time.Duration, any, below bool, err error) {
	c.hear()
	if c.surveys.floor.isDue(base.Now()) {
		if !c.surveys.apart {
			s, below := c.surveyNow()
			if s.err == nil {
				c.count(func(s *ConsumerStats) { s.Looks++ })
			}
			return s.due, s.any, below, s.err
		}
		c.surveyApart()
	}
	due, any, err = c.nextDue()
	return due, any, false, err
}

func (c *consumer[T]) nextDue() (due time.Duration, any bool, err error) {
	var ms sql.NullInt64
	ctx, cancel := context.WithTimeout(c.abandoned, c.cfg.StatementTimeout)
	defer cancel()
	err = c.sessions.RunPatient(ctx, c.queue.sql.NextDue(c.surveys.floor.ask(base.Now())), func(rows *sql.Rows) error { return rows.Scan(&ms) })
	if err != nil {
		c.mind("claim", err)
		return 0, false, err
	}
	c.count(func(s *ConsumerStats) { s.Looks++ })
	due = math.MaxInt64
	if ms.Valid {
		due = time.Duration(ms.Int64) * time.Millisecond
	}
	c.subscription.Looked(due)
	return due, ms.Valid, nil
}
