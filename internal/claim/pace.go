package claim

import (
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
)

// Pace decides when a consumer claims messages, and how many. One goroutine uses it, except for the methods that may be
// called at any time.
//
// A claim asks for the free room of the buffer when at least half of its capacity is free. It never asks for more than
// readers took in the last second, or 16, so that a slow process does not keep messages from others. After a full batch
// more messages might be there, so the next claim follows immediately. A short batch does not prove that the queue is
// empty, because rows locked by others are skipped. It is followed by a pause of firstPause, or a quarter of it if the
// claim was worth its statement.
//
// A claim that begins with a message which has lost a lease asks for as many messages as the consumer has settled or
// holds, as far as the last rescan knows: for one at first. After a claim that brought such a message, no claim follows
// before a lease has ended, or before the readers have waited for a while. Otherwise a program that dies by itself some
// seconds after each start would hold the same messages each time, and they would be dead-lettered: see prove/scatter.
type Pace struct {
	cfg  Config // the only copy: the claims have its address
	feed Feed
	size batch.Size // of claims

	samples     []sample
	meanBytes   int           // of a body, by the last claim
	endedThen   int64         // ended, when a claim brought a message that has lost a lease; negative: it did not
	hungrySince time.Duration // when readers began to wait, or the last claim returned

	ended    atomic.Int64  // leases that were settled or have ended
	wakeAt   atomic.Int64  // value of ended at which progress gets a value; 0: never
	progress chan struct{} // of capacity 1; of an ordered queue also: a statement might be due

	restsUntil atomic.Int64 // no room until this time: see Rest
	// correction is added to Feed.Sent: plus the leases that were settled without a delivery, minus those that a reader
	// skipped.
	correction atomic.Int64

	claims, claimed, empty, looks atomic.Int64 // see Counts
}

// sample is the number of leases that readers had received at a time.
type sample struct {
	at       time.Duration
	received int64
}

// sampleEvery is the minimum time between two samples.
const sampleEvery = time.Second / 64

// minClaim is the minimum size of a claim if there is room, however slow the readers were.
const minClaim = 16

// worthwhile is the number of messages that makes a short claim worth its statement: from this size on the rows cost
// more than the round trip.
const worthwhile = 64

// lapsedWait is how long readers wait at most for the end of a message that has lost a lease. LeaseFor may be hours.
const lapsedWait = 30 * time.Second

// NewPace returns the pace of a consumer.
func NewPace(cfg Config) *Pace {
	return &Pace{cfg: cfg, endedThen: -1, progress: make(chan struct{}, 1)}
}

// Serve sets the feed that readers are served from. It is called before the first claim.
func (p *Pace) Serve(f Feed) { p.feed = f }

// Ended returns about how many leases were settled or have ended. It may be called at any time.
func (p *Pace) Ended() int64 { return p.ended.Load() }

// LeaseEnded records that a lease was settled or has ended. It may be called at any time.
func (p *Pace) LeaseEnded() {
	n := p.ended.Add(1)
	if at := p.wakeAt.Load(); at != 0 && n >= at {
		base.Signal(p.progress)
	}
}

// Skip records that a reader dropped a lease that had ended. It may be called at any time.
func (p *Pace) Skip() { p.correction.Add(-1) }

// Rest suspends claims for d because the readers take nothing, so that other consumers can claim the messages that this
// one releases. It may be called at any time.
func (p *Pace) Rest(d time.Duration) { p.restsUntil.Store(int64(base.Now() + d)) }

// Progress triggers another check of the room. It may be called at any time.
func (p *Pace) Progress() { base.Signal(p.progress) }

// Counts are totals so far. The claims of an ordered queue are its reads of messages.
type Counts struct {
	Claims, Empty int64 // claims that found messages, and claims that found none
	Claimed       int64 // leased messages
	Looks         int64 // statements that read when a message is due; of an ordered queue, checks of the slots
}

// Counts returns the totals. It may be called at any time.
func (p *Pace) Counts() Counts {
	return Counts{Claims: p.claims.Load(), Claimed: p.claimed.Load(), Empty: p.empty.Load(), Looks: p.looks.Load()}
}

// drop records leases that no reader gets. They count as received: otherwise claims would become small when many
// messages have expired.
func (p *Pace) drop(n int) { p.correction.Add(int64(n)) }

// receivedLately returns how many leases readers received in about the last second.
func (p *Pace) receivedLately(now time.Duration) int {
	received := p.feed.Sent() + p.correction.Load() - int64(p.feed.Buffered())
	if last := len(p.samples) - 1; last < 0 || now-p.samples[last].at >= sampleEvery {
		p.samples = append(p.samples, sample{now, received})
	}
	for len(p.samples) > 1 && now-p.samples[1].at >= time.Second {
		p.samples = p.samples[1:]
	}
	return int(received - p.samples[0].received)
}

// room returns the number of messages to claim, with waiting messages about to go to the feed; 0 for none. In that case
// progress gets a value when enough leases have ended. Leases that readers take without settling them are noticed by
// the timer.
func (p *Pace) room(waiting int) int {
	if int64(base.Now()) < p.restsUntil.Load() {
		return 0
	}
	buffered := waiting + p.feed.Coming() // in this order: see consume.Feed
	buffered += p.feed.Buffered()
	if p.waits(buffered) {
		p.wakeAt.Store(p.endedThen + 1)
		return 0
	}
	most := min(p.cfg.Prefetch, max(minClaim, p.receivedLately(base.Now())))
	room := min(most-buffered, p.size.Of(p.cfg.Traits.ClaimRows))
	if p.meanBytes == 0 { // sizes are unknown, except for the maximum
		room = min(room, max(1, p.cfg.PrefetchBytes/max(1, p.cfg.Queue.Policy().MaxBody)))
	} else {
		fit := p.cfg.PrefetchBytes/p.meanBytes - buffered
		if buffered == 0 { // a body larger than the whole room is claimed alone
			fit = max(fit, 1)
		}
		room = min(room, fit)
	}
	if buffered > most/2 || p.cfg.Holder.Backlogged() || room <= 0 {
		p.wakeAt.Store(p.ended.Load() + int64(max(1, buffered-most/2)))
		return 0
	}
	p.wakeAt.Store(0)
	return room
}

// waits reports that a message which has lost a lease is to end before the next claim.
func (p *Pace) waits(buffered int) bool {
	now := base.Now()
	if buffered > 0 {
		p.hungrySince = now
	}
	if p.ended.Load() != p.endedThen || now >= p.hungrySince+min(p.cfg.LeaseFor, lapsedWait) {
		p.endedThen = -1
	}
	return p.endedThen >= 0
}

// careful returns how many messages a claim may bring that begins with one which has lost a lease.
func (p *Pace) careful() int {
	leases, _ := p.cfg.Holder.Held()
	return max(1, int(p.ended.Load())+leases)
}

// held records whether a reader gets a message of the last claim or read that has lost a lease.
func (p *Pace) held(lapsed bool) {
	if !lapsed {
		p.endedThen = -1
	}
}

// brought records the result of a claim or a read. held follows.
func (p *Pace) brought(messages, bytes int) {
	p.meanBytes = max(1, bytes/messages)
	p.endedThen, p.hungrySince = p.ended.Load(), base.Now()
}

// after returns the pause after a claim or read that returned got messages. full means as many as it asked for.
func (p *Pace) after(idle *batch.Backoff, got int, full bool) time.Duration {
	idle.Reset()
	p.cfg.Subscription.Claimed()
	if full {
		p.unsubscribe()
		return 0
	}
	pause := idle.Pause()
	if got >= worthwhile {
		pause /= 4
	}
	return pause
}

// subscribe subscribes the consumer to the Notifier before a pause that is long enough. It reports whether the
// subscription is new.
func (p *Pace) subscribe(pause time.Duration) bool {
	s := p.cfg.Subscription
	if s.Heard() == nil && (pause >= notify.Every || pause >= p.cfg.PollEvery) {
		s.Subscribe()
		return s.Heard() != nil
	}
	return false
}

// unsubscribe ends the subscription. A notification that was not followed by a claim is passed on to another consumer.
func (p *Pace) unsubscribe() {
	if p.cfg.Subscription.Unsubscribe() {
		p.cfg.Holder.PassOn()
	}
}
