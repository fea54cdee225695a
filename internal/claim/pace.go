package claim

import (
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
)

// Pace decides when a consumer asks for messages, and for how many. One goroutine uses it, except for the methods of which it is
// said.
//
// A claim asks for the free room of the buffer, when at least half of what it may hold is free, and never for more than readers
// took in the last second, or 16, so that a slow process does not keep messages from others. A full batch means that more may be there, so the next claim
// follows at once. A short one is no proof of an empty queue, since rows that others have locked are skipped: it is followed by a
// pause of firstPause, or a quarter of it where the claim was worth its statement.
type Pace struct {
	cfg  Config
	feed Feed
	size batch.Size // of claims

	samples   []sample
	meanBytes int // of a body, by the last claim
	lastClaim int // messages of the last claim

	taken    atomic.Int64
	wakeAt   atomic.Int64  // count of taken at which progress is to have a value; 0 never
	progress chan struct{} // of capacity 1

	rested  atomic.Int64 // until then there is no room: see Rest
	dropped atomic.Int64 // leases that were settled before a reader got them, less those that a reader skipped

	claims, claimed, empty, looks atomic.Int64 // see Counts
}

// sample is how many leases readers had taken at a time.
type sample struct {
	at    time.Duration
	taken int64
}

// sampleEvery is the least time between two samples.
const sampleEvery = time.Second / 64

// minClaim is the least that a claim asks for where there is room, however slow the readers were.
const minClaim = 16

// worthwhile is how many messages make a short claim worth its statement: from
// here on the rows cost more than the round trip.
const worthwhile = 64

// NewPace returns the pace of a consumer.
func NewPace(cfg Config) *Pace { return &Pace{cfg: cfg, progress: make(chan struct{}, 1)} }

// Serve sets the feed that readers are served from. It is called before the first claim.
func (p *Pace) Serve(f Feed) { p.feed = f }

// Taken returns about how many leases were settled or ended, which is to say that readers took them. It may be called at any time.
func (p *Pace) Taken() int64 { return p.taken.Load() }

// Take notes that a lease was settled or has ended. It may be called at any time.
func (p *Pace) Take() {
	n := p.taken.Add(1)
	if at := p.wakeAt.Load(); at != 0 && n >= at {
		base.Signal(p.progress)
	}
}

// Skip notes that a reader dropped a lease that had ended. It may be called at any time.
func (p *Pace) Skip() { p.dropped.Add(-1) }

// Rest ends claims for a while, in which other consumers may claim what this one releases, because its readers take nothing. It may be
// called at any time.
func (p *Pace) Rest(d time.Duration) { p.rested.Store(int64(base.Now() + d)) }

// Progress has the room looked at again. It may be called at any time.
func (p *Pace) Progress() { base.Signal(p.progress) }

// Counts is what was claimed so far.
type Counts struct{ Claims, Claimed, Empty, Looks int64 }

// Counts may be called at any time.
func (p *Pace) Counts() Counts {
	return Counts{Claims: p.claims.Load(), Claimed: p.claimed.Load(), Empty: p.empty.Load(), Looks: p.looks.Load()}
}

// drop notes leases that no reader gets. They count as taken: otherwise claims would become small when many messages have expired.
func (p *Pace) drop(n int) { p.dropped.Add(int64(n)) }

// takenLately is how many leases readers took in about the last second.
func (p *Pace) takenLately(now time.Duration) int {
	taken := p.feed.Sent() + p.dropped.Load() - int64(p.feed.Buffered())
	if last := len(p.samples) - 1; last < 0 || now-p.samples[last].at >= sampleEvery {
		p.samples = append(p.samples, sample{now, taken})
	}
	for len(p.samples) > 1 && now-p.samples[1].at >= time.Second {
		p.samples = p.samples[1:]
	}
	return int(taken - p.samples[0].taken)
}

// room returns for how many messages there is room, if as many as waiting are about to go to the feed; 0 for none. Then progress
// has a value when enough leases have ended. Readers that take leases without settling them are noticed by the clock.
func (p *Pace) room(waiting int) int {
	if int64(base.Now()) < p.rested.Load() {
		return 0
	}
	buffered := waiting + p.feed.Coming() // in this order: see consume.Feed
	buffered += p.feed.Buffered()
	most := min(p.cfg.Prefetch, max(minClaim, p.takenLately(base.Now())))
	room := min(most-buffered, p.size.Of(p.cfg.Traits.ClaimRows))
	if p.meanBytes == 0 { // nothing is known of sizes, except that of the largest
		room = min(room, max(1, p.cfg.PrefetchBytes/max(1, p.cfg.Policy().MaxBody)))
	} else {
		fit := p.cfg.PrefetchBytes/p.meanBytes - buffered
		if buffered == 0 { // a body larger than all of the room comes alone
			fit = max(fit, 1)
		}
		room = min(room, fit)
	}
	if buffered > most/2 || p.cfg.Holder.Backlogged() || room <= 0 {
		p.wakeAt.Store(p.taken.Load() + int64(max(1, buffered-most/2)))
		return 0
	}
	p.wakeAt.Store(0)
	return room
}

// brought notes what a claim, or a read, has brought.
func (p *Pace) brought(messages, bytes int) {
	p.lastClaim, p.meanBytes = messages, max(1, bytes/messages)
}

// after returns the pause that follows on a claim, or a read, that brought so many messages; full: as many as it asked for.
func (p *Pace) after(idle *batch.Backoff, got int, full bool) time.Duration {
	idle.Reset()
	if p.cfg.Subscription.Claimed(full) {
		p.unsubscribe()
	}
	if full {
		return 0
	}
	pause := idle.Pause()
	if got >= worthwhile {
		pause /= 4
	}
	if p.cfg.Subscription.Live() { // it need not wait for long in order to look seldom
		pause = min(pause, notify.ShortPause)
	}
	return pause
}

// subscribe has the consumer listen to the Notifier before a pause that is long enough. It reports whether it listens only from now
// on.
func (p *Pace) subscribe(pause time.Duration) bool {
	s := p.cfg.Subscription
	if s.Heard() == nil && (pause > notify.ShortPause || pause >= p.cfg.PollEvery) {
		s.Subscribe()
		return s.Heard() != nil
	}
	return false
}

// unsubscribe ends listening. A notification for which no claim was made is passed on to another consumer.
func (p *Pace) unsubscribe() {
	if p.cfg.Subscription.Unsubscribe() {
		p.cfg.Holder.PassOn()
	}
}
