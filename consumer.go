package chanq

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

// consumer claims, and owns the leases. A Consumer is its face.
//
// The supervisor starts and ends its goroutines, and Shutdown joins them:
//   - the claimer (claim.go, or reader.go of an ordered queue), one for a slow survey (survey.go), and one for a large claim
//     that is delivered while the next one runs (claim_deliver.go);
//   - of an ordered queue one that delivers leases, and at the end one that returns its slots (reader.go);
//   - those of the settler and the extender (internal/settle);
//   - the heartbeat (member.go), the trimmer if Config.Retain is set (trim.go), on PostgreSQL one that vacuums
//     (vacuum.go), and the history of the Queue, which its last producer or consumer joins (record.go);
//   - one for each of the hooks LeaseLost and Availability while there are events to report.
//
// A statement that does not return is left to a goroutine of internal/session.
type consumer[T any] struct {
	queue    *queue
	cfg      ConsumerConfig
	sessions *sessions         // of claims
	notes    *sessions         // of what may wait: members, trims, vacuums
	parts    []*sessions       // all
	member   sqlbatch.Member   // as whom the database knows it
	here     *claim.Membership // of an ordered queue: until when, as far as it is known here; else nil
	settler  *settle.Settler
	extender *settle.Extender
	isolated *base.Isolated // settles
	leases   lease.Home
	health   *base.Availability

	out      chan *Lease[T] // the claimer and its deliveries send; the supervisor closes it
	unlisten func()
	ears     *listener
	progress chan struct{} // readers or the settler got on: look at the room again
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
	// Of the claimer.
	flow         flow
	size         batch.Size // of claims
	careful      careful    // of a plain queue
	subscription notify.Subscription
	surveys      surveyor
	surveyed     chan survey    // what a survey apart found, of capacity 1
	joined       sync.WaitGroup // surveys apart
	cleared      chan struct{}  // a suspect has ended, or the last lease with StopWhenIdle: a claim may find something
	order        *reader[T]     // of an ordered queue, else nil
	idleness     *IdleGroup     // nil without StopWhenIdle

	trying atomic.Bool // it tries a suspect, and no other consumer of the process does

	held atomic.Int64 // leases that are buffered or delivered and not ended
	// working counts handlers of Handle and Pipe that have not returned: one whose
	// AckTx ended the lease may roll back, and its error is to be settled.
	working atomic.Int64
	taken   atomic.Int64 // about how many leases were settled or ended: what readers took
	wakeAt  atomic.Int64 // count of taken at which the claimer wants to know; 0 never

	gaveUp atomic.Bool // by Shutdown

	mu    sync.Mutex // guards what follows; held for moments, nothing is called under it
	err   error
	stats ConsumerStats
}

// newConsumer opens sessions, and starts nothing: call supervise or discard. values are those of the
// leases' contexts.
func newConsumer[T any](q *queue, cfg ConsumerConfig, values context.Context) (*consumer[T], error) {
	pools, err := openSessions(q.db, q.dialect, q.cfg.SessionMaxAge,
		session.Need{Kind: session.Claim, Sessions: claimSessions}, session.Need{Kind: session.Settle, Sessions: settle.Workers, Spare: 1},
		session.Need{Kind: session.Extend, Sessions: extendSessions, Spare: 2}, session.Need{Kind: session.Note, Sessions: noteSessions})
	if err != nil {
		return nil, err
	}
	c := &consumer[T]{
		queue: q, cfg: cfg,
		sessions: pools[0],
		notes:    pools[3],
		member:   newMember(cfg.Name, cfg.LeaseFor),
		health:   q.availability("consumer"),
		isolated: q.isolated("consumer"),
		out:      make(chan *Lease[T], cfg.Prefetch),
		progress: make(chan struct{}, 1),
		returned: make(chan struct{}),
		drained:  make(chan struct{}, 1),
		cleared:  make(chan struct{}, 1),
		surveys:  surveyor{floor: newFloor(cfg.PollMax), patience: cfg.StatementTimeout},
		surveyed: make(chan survey, 1),
		finished: make(chan struct{}),
		idle:     make(chan struct{}),
	}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	c.abandoned, c.abandon = context.WithCancel(context.Background())
	var here *claim.Membership
	if q.ordered() {
		here = claim.NewMembership(c.member.ID, base.Now)
	}
	c.here = here
	c.leases = lease.Home{Owner: c, Parent: values}
	c.settler, c.extender = c.newSettler(pools[1]), c.newExtender(pools[2])
	c.parts = []*sessions{pools[1], pools[2], pools[0], pools[3]} // what was claimed must be settled and extended
	var owned func() []int
	if c.queue.ordered() {
		c.order = newReader(c)
		owned = c.order.reader.Owned
	}
	c.subscription = notify.NewSubscription(q.debouncer.Notifier, q.debouncer.Queue, owned)
	c.ears, c.unlisten = q.key.listen()
	return c, nil
}

// discard gives back what newConsumer took, in place of start.
func (c *consumer[T]) discard() {
	c.unlisten()
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
func (c *consumer[T]) supervise(forget func() bool) {
	defer close(c.idle)
	unrecord := c.queue.record()
	attending, leave := context.WithCancel(context.Background())
	defer leave()
	var claimer, rest sync.WaitGroup
	rest.Go(c.settler.Run)
	rest.Go(c.extender.Run)
	rest.Go(func() { c.attend(attending) })
	if c.queue.cfg.Retain > 0 {
		rest.Go(c.trim)
	}
	if c.queue.sql.Wear().Text != "" {
		rest.Go(c.vacuum)
	}
	if c.order != nil {
		claimer.Go(c.order.claimAll)
		claimer.Go(c.order.run)
	} else {
		claimer.Go(c.claimAll)
	}
	claimer.Wait()
	c.idleness.leave(c)
	// The claimer does not defer these calls: after a panic in it they would wait for readers, and the
	// program would hang.
	c.unsubscribe()
	c.awaitDelivered()
	c.releaseBuffer()
	close(c.out)
	close(c.returned)
	if c.order != nil {
		rest.Go(func() { c.order.vacate(attending) })
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
	c.joined.Wait()
	c.abandon()
	unrecord()
	c.extender.Close()
	c.isolated.Close()
	c.health.End()
	c.endTrial()
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
func (c *consumer[T]) over(ctx context.Context) bool {
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
func (c *consumer[T]) giveUp() (held, settling, working int) {
	settling = c.settler.Stats().Open
	held = max(0, int(c.held.Load())-settling) // which are held until they have an outcome
	c.gaveUp.Store(true)
	c.abandon()
	c.settler.Close()
	return held, settling, int(c.working.Load())
}

// failure is the permanent error that ended the consumer, or nil.
func (c *consumer[T]) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// counts are the stats.
func (c *consumer[T]) counts() ConsumerStats {
	c.mu.Lock()
	s := c.stats
	c.mu.Unlock()
	if c.order != nil {
		c.order.stats(&s) // first: what comes to the channel now counts twice, not never
	}
	s.Buffered += len(c.out)
	settles := c.settler.Stats()
	s.Held, s.Settling, s.Isolated = int(c.held.Load()), settles.Waiting, settles.Isolated
	return s
}

// letGo counts a lease as held no more. Whoever is the last to do so while the consumer
// stops lets it end.
func (c *consumer[T]) letGo() {
	if c.held.Add(-1) == 0 && c.stop.Err() != nil {
		base.Signal(c.drained)
	}
	c.idleness.ended()
}

// noteTaken notes that a lease was settled or has ended: a reader has taken it.
func (c *consumer[T]) noteTaken() {
	n := c.taken.Add(1)
	if at := c.wakeAt.Load(); at != 0 && n >= at {
		base.Signal(c.progress)
	}
}

// handlerDone is called when what a handler returned has been disposed of.
func (c *consumer[T]) handlerDone() {
	if c.working.Add(-1) == 0 && c.stop.Err() != nil {
		base.Signal(c.drained)
	}
	c.idleness.ended()
}

// broken ends the consumer by a permanent error.
func (c *consumer[T]) broken(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.stopNow()
}
