package consume

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/settle"
)

// Consumer claims, and owns the leases.
//
// The supervisor starts and ends its goroutines, and End waits for all of them:
//   - that of its claims (internal/claim), one for a slow rescan, and at the end of an ordered queue one that returns its slots;
//   - the feed, which decodes bodies and sends leases on the channel;
//   - those of the settler and the extender (internal/settle);
//   - the heartbeat, the trimmer, the witness of acks in transactions, and on PostgreSQL one that vacuums;
//   - one for events about lost leases, outages and isolated settles while there are some to report.
//
// A statement that does not return is left to a goroutine of internal/session.
type Consumer struct {
	cfg      Config
	parts    parts
	here     *claim.Membership // of an ordered queue: until when it is a member, as far as it is known here; else nil
	settler  *settle.Settler
	extender *settle.Extender
	witness  witness
	home     lease.Home
	claims   claims
	source   claim.Source // of the leases that the claims bring
	order    *claim.Slots // of an ordered queue, else nil
	pace     *claim.Pace
	feed     feed
	group    *Group // nil: it does not stop when it is idle

	neighbours *claim.Neighbours
	trial      *claim.Trial
	waiter     *notify.Waiter

	stop    context.Context
	stopNow context.CancelFunc
	// abandoned ends when what is not in the database yet is given up, or when there is nothing left.
	abandoned    context.Context
	abandon      context.CancelFunc
	drained      chan struct{} // stopping, and the last lease ended
	interrupting atomic.Bool   // a call of End closes interrupted: the time to drain is over
	interrupted  chan struct{}
	ended        chan struct{}  // what that call does is done
	remains      Left           // to be read when ended is closed
	back         []*lease.Lease // written by revoke: they release what readers held
	revoked      atomic.Bool    // the leases of readers are released; the end waits for handlers no more
	finished     chan struct{}  // every goroutine has ended, but for what follows
	idle         chan struct{}  // and every handler
	cleared      chan struct{}  // a suspect has ended, or the last lease of an idle group: a claim may find something

	held atomic.Int64 // leases that are buffered or delivered and not ended
	// working counts handlers that have not returned: one whose transaction acked the lease may roll back, and its error is to be
	// settled.
	working atomic.Int64

	mu      sync.Mutex // guards what follows; held for moments, nothing is called under it
	failure error
	op      string       // what has failed
	settled settle.Tally // so far
}

// parts are the sessions of a consumer: claims, settles and extensions never wait for each other's.
type parts struct{ claim, settle, extend, note *session.Part }

// all returns the parts: what was claimed must be settled and extended.
func (p *parts) all() []*session.Part { return []*session.Part{p.settle, p.extend, p.claim, p.note} }

// claims are those of internal/claim: of a plain queue, or of an ordered one.
type claims interface {
	// Run claims until the consumer stops.
	Run()
	// Finish ends what Run leaves, until ctx ends: the slots of an ordered queue, rescans of a plain one.
	Finish(ctx context.Context)
}

// feed moves leases to the readers: a Feed.
type feed interface {
	claim.Feed
	Run(stop context.Context, claimed <-chan struct{})
	Taken() int64 // leases that readers have taken from the channel
}

// New opens sessions, and starts nothing. An error says that the *sql.DB allows too few connections, or that the group is complete.
func New(cfg Config) (*Consumer, error) {
	open, err := session.Open(cfg.DB, cfg.Table.Dialect, cfg.SessionMaxAge,
		session.Need{Kind: session.Claim, Sessions: claimSessions}, session.Need{Kind: session.Settle, Sessions: settle.Workers, Spare: 1},
		session.Need{Kind: session.Extend, Sessions: extendSessions, Spare: 2}, session.Need{Kind: session.Note, Sessions: noteSessions})
	if err != nil {
		return nil, err
	}
	c := &Consumer{
		cfg: cfg, parts: parts{claim: open[0], settle: open[1], extend: open[2], note: open[3]}, group: cfg.Group,
		witness: witness{entered: make(chan struct{}, 1)},
		drained: make(chan struct{}, 1), cleared: make(chan struct{}, 1),
		interrupted: make(chan struct{}), ended: make(chan struct{}), finished: make(chan struct{}), idle: make(chan struct{}),
	}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	c.abandoned, c.abandon = context.WithCancel(context.Background())
	if c.group != nil {
		if err := c.group.join(c); err != nil {
			for _, p := range open {
				p.Close()
			}
			c.stopNow()
			c.abandon()
			return nil, err
		}
	}
	c.home.Owner, c.home.Parent, c.home.Of = c, cfg.Values, cfg.Of
	c.neighbours, c.waiter = claim.Join(cfg.Key), cfg.Key.Wait()
	c.trial = c.neighbours.Trial()
	c.settler, c.extender = c.newSettler(), c.newExtender()
	c.newClaims()
	return c, nil
}

// Source has the leases for the feed.
func (c *Consumer) Source() claim.Source { return c.source }

// Start starts the consumer, whose leases go to f. stopped is called when its claims have ended, and ended when its other goroutines
// have.
func (c *Consumer) Start(f feed, stopped, ended func()) {
	c.feed = f
	c.pace.Serve(f)
	go c.supervise(stopped, ended)
}

// The most sessions that a consumer uses at once, besides those of its settler. Of settles and extensions the second
// is for when the first one's statement hangs, or for Lease.Extend. The spare ones are for isolated settles and extensions.
const (
	claimSessions  = 1
	extendSessions = 2
	noteSessions   = 4 // of attend, trim, vacuum and a rescan apart
)

// supervise runs the goroutines and ends them in order: the claims; the feed, which returns the buffer; then, when the last lease
// has ended, the settler and the rest.
func (c *Consumer) supervise(stopped, ended func()) {
	defer close(c.idle)
	attending, leave := context.WithCancel(context.Background())
	defer leave()
	var claiming, feeding, rest sync.WaitGroup
	rest.Go(c.settler.Run)
	rest.Go(c.extender.Run)
	rest.Go(func() { c.attend(attending) })
	rest.Go(func() { c.witnessAcks(attending) })
	rest.Go(c.trim)
	if c.cfg.Table.SQL.Bloat().Text != "" {
		rest.Go(c.vacuum)
	}
	claimed := make(chan struct{})
	claiming.Go(func() {
		c.connect()
		c.claims.Run()
	})
	feeding.Go(func() { c.feed.Run(c.stop, claimed) })
	claiming.Wait()
	c.group.leave(c)
	close(claimed)
	feeding.Wait()
	rest.Go(func() { c.claims.Finish(attending) })
	c.waiter.Close()
	stopped()
	c.settler.Drain()
	for c.awaited() > 0 && c.abandoned.Err() == nil {
		select {
		case <-c.drained:
		case <-c.abandoned.Done():
		}
	}
	c.settler.Close()
	c.extender.End()
	leave()
	rest.Wait()
	c.abandon()
	ended()
	c.extender.Close()
	c.cfg.Isolated.Close()
	c.cfg.Health.End()
	c.trial.End()
	c.neighbours.Leave()
	for _, p := range c.parts.all() {
		p.Close()
	}
	close(c.finished)
	for c.working.Load() > 0 { // those whose leases were revoked
		<-c.drained
	}
}

// Stop ends claiming and releases what no reader has taken. It returns at once.
func (c *Consumer) Stop() { c.stopNow() }

// Stopped is closed when the consumer begins to stop.
func (c *Consumer) Stopped() <-chan struct{} { return c.stop.Done() }

// Ended is closed when every goroutine has ended, handlers excepted.
func (c *Consumer) Ended() <-chan struct{} { return c.finished }

// Abandoned ends when what is not in the database yet is given up.
func (c *Consumer) Abandoned() context.Context { return c.abandoned }

// Failure returns the failure that ended the consumer, and what has failed, or nil.
func (c *Consumer) Failure() (op string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.op, c.failure
}

// Stats is what a consumer has done, and what it holds.
type Stats struct {
	claim.Counts
	settle.Tally
	Buffered                   int // leases that wait for a reader
	Unread, Slots, BlockedKeys int // of an ordered queue
	Held, Settling, Isolated   int
}

// Stats asks the database nothing.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	s := Stats{Tally: c.settled}
	c.mu.Unlock()
	s.Counts = c.pace.Counts()
	s.Buffered = c.source.Waiting() // in this order: what comes to the channel now counts twice, and not never
	s.Buffered += c.feed.Coming()
	s.Buffered += c.feed.Buffered()
	if c.order != nil {
		counts := c.order.Counts()
		s.Unread, s.Slots, s.BlockedKeys = counts.Unread, counts.Slots, counts.Blocked
	}
	settles := c.settler.Stats()
	s.Held, s.Settling, s.Isolated = int(c.held.Load()), settles.Waiting, settles.Isolated
	return s
}

// letGo counts a lease as no longer held. The last one lets a consumer end that stops.
func (c *Consumer) letGo() {
	if c.held.Add(-1) == 0 && c.stop.Err() != nil {
		base.Signal(c.drained)
	}
	c.group.ended()
}

// Begin counts a handler in, unless the lease has ended. In this order: a lease that
// ends after the look, while the consumer stops, finds the handler counted, and
// End waits for it.
func (c *Consumer) Begin(l *lease.Lease) bool {
	c.working.Add(1)
	if c.Skip(l) {
		c.Done()
		return false
	}
	return true
}

// Done is called when what a handler returned has been disposed of.
func (c *Consumer) Done() {
	if c.working.Add(-1) == 0 && c.stop.Err() != nil {
		base.Signal(c.drained)
	}
	c.group.ended()
}

// CountAsOne counts the handlers of n leases as one, which handles them together: Done is to be called once.
func (c *Consumer) CountAsOne(n int) { c.working.Add(int64(1 - n)) }

// Skip reports a lease that has ended before a reader took it. It is released:
// should the database still hold it for us, the attempt does not count. Nor does
// it count as taken: where buffered leases expire, claims must become smaller.
func (c *Consumer) Skip(l *lease.Lease) bool {
	if !l.Gone() {
		return false
	}
	c.pace.Skip()
	if l.Take(lease.Release) {
		c.pace.Take()
		c.settler.AddAll(l) // readers do not wait for room
	}
	return true
}

// Broken ends the consumer by a permanent failure.
func (c *Consumer) Broken(op string, err error) {
	c.mu.Lock()
	if c.failure == nil {
		c.op, c.failure = op, err
	}
	c.mu.Unlock()
	c.stopNow()
}
