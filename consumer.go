package chanq

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

// consumer claims, and owns the leases. A Consumer is its face.
//
// The supervisor starts and ends its goroutines, and Shutdown joins them:
//   - that of its claims (internal/claim), one for a slow rescan, and at the end of an ordered queue one that returns its slots;
//   - the feed (internal/consume), which decodes bodies and sends leases on the channel;
//   - those of the settler and the extender (internal/settle);
//   - the heartbeat (member.go), the trimmer if Config.Retain is set (trim.go), on PostgreSQL one that vacuums
//     (vacuum.go), and the history of the Queue, which its last producer or consumer joins (record.go);
//   - one for each of the hooks LeaseLost and Availability while there are events to report.
//
// A statement that does not return is left to a goroutine of internal/session.
type consumer struct {
	queue    *queue
	cfg      ConsumerConfig
	notes    *sessions         // of what may wait: members, trims, vacuums
	parts    []*sessions       // all
	member   sqlbatch.Member   // as whom the database knows it
	here     *claim.Membership // of an ordered queue: until when, as far as it is known here; else nil
	settler  *settle.Settler
	extender *settle.Extender
	isolated *base.Isolated // settles
	leases   lease.Home
	health   *base.Availability

	claims   claims
	order    *claim.Ordered // the claims of an ordered queue, else nil
	pace     *claim.Pace
	feed     feed
	idleness *IdleGroup // nil without StopWhenIdle
	trial    trial
	unlisten func()
	stop     context.Context
	stopNow  context.CancelFunc
	// abandoned ends when what is not in the database yet is given up: by a Shutdown whose
	// context ended, or when there is nothing left.
	abandoned context.Context
	abandon   context.CancelFunc
	returned  chan struct{} // the claimer has ended, and given back the buffer
	drained   chan struct{} // stopping, and the last lease ended
	finished  chan struct{} // every goroutine has ended, but for what follows
	idle      chan struct{} // and every handler of Handle and Pipe has returned
	cleared   chan struct{} // a suspect has ended, or the last lease with StopWhenIdle: a claim may find something

	held atomic.Int64 // leases that are buffered or delivered and not ended
	// working counts handlers of Handle and Pipe that have not returned: one whose
	// AckTx ended the lease may roll back, and its error is to be settled.
	working atomic.Int64
	gaveUp  atomic.Bool // by Shutdown

	mu    sync.Mutex // guards what follows; held for moments, nothing is called under it
	err   error
	stats ConsumerStats
}

// claims are those of internal/claim: of a plain queue, or of an ordered one.
type claims interface {
	claim.Source
	Run()
	Close()
}

// feed moves leases to the readers: a consume.Feed.
type feed interface {
	claim.Feed
	Run(stop context.Context, claimed <-chan struct{})
}

// newConsumer opens sessions, and starts nothing: set its feed and call supervise, or call discard. values are those of the
// leases' contexts.
func newConsumer(q *queue, cfg ConsumerConfig, values context.Context) (*consumer, error) {
	pools, err := openSessions(q.db, q.dialect, q.cfg.SessionMaxAge,
		session.Need{Kind: session.Claim, Sessions: claimSessions}, session.Need{Kind: session.Settle, Sessions: settle.Workers, Spare: 1},
		session.Need{Kind: session.Extend, Sessions: extendSessions, Spare: 2}, session.Need{Kind: session.Note, Sessions: noteSessions})
	if err != nil {
		return nil, err
	}
	c := &consumer{
		queue: q, cfg: cfg,
		notes:    pools[3],
		member:   newMember(cfg.Name, cfg.LeaseFor),
		health:   q.availability("consumer"),
		isolated: q.isolated("consumer"),
		returned: make(chan struct{}),
		drained:  make(chan struct{}, 1),
		cleared:  make(chan struct{}, 1),
		finished: make(chan struct{}),
		idle:     make(chan struct{}),
	}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	c.abandoned, c.abandon = context.WithCancel(context.Background())
	c.leases = lease.Home{Owner: c, Parent: values}
	c.parts = []*sessions{pools[1], pools[2], pools[0], pools[3]} // what was claimed must be settled and extended
	if cfg.StopWhenIdle {
		if c.idleness = cfg.IdleGroup; c.idleness == nil {
			c.idleness = NewIdleGroup(1)
		}
		if err := c.idleness.join(c); err != nil {
			c.discard()
			return nil, err
		}
	}
	c.settler, c.extender = c.newSettler(pools[1]), c.newExtender(pools[2])
	c.newClaims(pools[0])
	return c, nil
}

// discard gives back what newConsumer took, in place of supervise.
func (c *consumer) discard() {
	c.stopNow()
	c.abandon()
	for _, s := range c.parts {
		s.close()
	}
}

// The most sessions that a consumer uses at once, besides those of its settler: claims,
// settles and extensions never wait for each other's. Of settles and extensions the second
// is for when the first one's statement hangs, or for Lease.Extend. The spare ones are for isolated settles and extensions.
const (
	claimSessions  = 1
	extendSessions = 2
	noteSessions   = 4 // of attend, trim, vacuum and a survey apart
)

// supervise runs the goroutines and ends them in order: the claimer, which
// returns the buffer; then, when the last lease ended, the settler and the rest.
func (c *consumer) supervise(forget func() bool) {
	defer close(c.idle)
	unrecord := c.queue.record()
	attending, leave := context.WithCancel(context.Background())
	defer leave()
	var claimer, feeding, rest sync.WaitGroup
	rest.Go(c.settler.Run)
	rest.Go(c.extender.Run)
	rest.Go(func() { c.attend(attending) })
	if c.queue.cfg.Retain > 0 {
		rest.Go(c.trim)
	}
	if c.queue.sql.Wear().Text != "" {
		rest.Go(c.vacuum)
	}
	claimed := make(chan struct{})
	claimer.Go(c.claims.Run)
	feeding.Go(func() { c.feed.Run(c.stop, claimed) })
	claimer.Wait()
	c.idleness.leave(c)
	close(claimed)
	feeding.Wait()
	close(c.returned)
	if c.order != nil {
		rest.Go(func() { c.order.Vacate(attending) })
	}
	c.unlisten()
	forget()
	c.settler.Drain()
	for c.held.Load()+c.working.Load() > 0 && c.abandoned.Err() == nil {
		select {
		case <-c.drained:
		case <-c.abandoned.Done():
		}
	}
	c.settler.Close()
	c.extender.End()
	leave()
	rest.Wait()
	c.claims.Close()
	c.abandon()
	unrecord()
	c.extender.Close()
	c.isolated.Close()
	c.health.End()
	c.trial.End()
	for _, s := range c.parts {
		s.close()
	}
	close(c.finished)
	for c.working.Load() > 0 { // after a Shutdown that gave up
		<-c.drained
	}
}

// over waits until every goroutine and handler has ended. It reports false if ctx ends
// before.
func (c *consumer) over(ctx context.Context) bool {
	select {
	case <-c.idle:
		return true
	case <-ctx.Done():
	}
	select {
	case <-c.idle: // both at once: nothing is given up
		return true
	default:
		return false
	}
}

// giveUp gives up what is not settled yet, and says how much that is.
func (c *consumer) giveUp() (held, settling, working int) {
	settling = c.settler.Stats().Open
	held = max(0, int(c.held.Load())-settling) // which are held until they have an outcome
	c.gaveUp.Store(true)
	c.abandon()
	c.settler.Close()
	return held, settling, int(c.working.Load())
}

// failure is the permanent error that ended the consumer, or nil.
func (c *consumer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// counts are the stats.
func (c *consumer) counts() ConsumerStats {
	c.mu.Lock()
	s := c.stats
	c.mu.Unlock()
	claims := c.pace.Counts()
	s.Claims, s.Claimed, s.EmptyClaims, s.Looks = claims.Claims, claims.Claimed, claims.Empty, claims.Looks
	s.Buffered = c.claims.Waiting() // in this order: what comes to the channel now counts twice, and not never
	s.Buffered += c.feed.Coming()
	s.Buffered += c.feed.Buffered()
	if c.order != nil {
		counts := c.order.Read()
		s.Waiting, s.Slots, s.BlockedKeys = counts.Unread, counts.Slots, counts.Blocked
	}
	settles := c.settler.Stats()
	s.Held, s.Settling, s.Isolated = int(c.held.Load()), settles.Waiting, settles.Isolated
	return s
}

// letGo counts a lease as held no more. Whoever is the last to do so while the consumer
// stops lets it end.
func (c *consumer) letGo() {
	if c.held.Add(-1) == 0 && c.stop.Err() != nil {
		base.Signal(c.drained)
	}
	c.idleness.ended()
}

// handlerDone is called when what a handler returned has been disposed of.
func (c *consumer) handlerDone() {
	if c.working.Add(-1) == 0 && c.stop.Err() != nil {
		base.Signal(c.drained)
	}
	c.idleness.ended()
}

// broken ends the consumer by a permanent error.
func (c *consumer) broken(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.stopNow()
}
