package chanq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Order is how a consumer's claims choose within a priority.
type Order uint8

// The orders.
const (
	OrderFIFO Order = iota // by due time, then ID
	OrderAny               // whatever the database finds first; cheaper on SQL Server
)

// Consumer claims messages ahead of its readers and delivers them on a channel.
// It is safe for concurrent use: any number of goroutines may read it, by its
// channel, All, Batches and Handle at once, and each lease goes to one of them.
// End it by Stop, or the end of Consume's context, and Shutdown.
//
// Its goroutines, all joined by Shutdown: the claimer (claim.go), the storers of the
// settler, the keeper and its extender, the trimmer where Config.Retain is set, on
// PostgreSQL one that vacuums (vacuum.go), one that notes this consumer among the members
// (member.go), one for a survey that is slow (survey.go), one for a large claim that is
// delivered beside the next one (claim_deliver.go), of an ordered queue two that hand leases
// out (dispatch.go) and at the end one that gives its slots back, with the last of those with
// ConsumerConfig.WatchEvery on the *sql.DB theirs (watch.go), and the supervisor, which
// ends the others in order; those of statements that were left behind (internal/session);
// and, where hooks are told apart from what calls them (Hooks), one for each of
// LeaseLost and Availability, while there is something to tell.
//
// At work it uses up to five sessions at once, of those that all queues on its *sql.DB
// share: one claims, two settle and two extend leases; in health three. Each Pipe that
// reads it uses one more, and so do all with ConsumerConfig.WatchEvery together, while one of them
// is idle. Otherwise it holds none while idle: see internal/session.
type Consumer[T any] struct {
	queue    *queue
	cfg      ConsumerConfig
	sessions *sessions       // of claims
	notes    *sessions       // of what may wait: members, trims, vacuums
	member   sqlbatch.Member // as whom the database knows it
	here     membership      // until when, as far as it is known here
	settler  *settler
	keeper   *keeper
	health   health
	values   context.Context // parent of the leases' contexts: values of Consume's, without its end

	out      chan *Lease[T] // only the claimer sends and closes
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
	fallen    chan struct{} // of capacity 1: a goroutine has panicked
	finished  chan struct{} // every goroutine has ended, but for what follows
	idle      chan struct{} // and every handler of Handle and Pipe has returned
	// Of the claimer.
	flow      flow
	allowance allowance
	caution   caution
	seat      seat
	surveys   surveyor
	surveyed  chan survey    // what a survey apart found, of capacity 1
	joined    conc.WaitGroup // surveys apart
	cleared   chan struct{}  // a suspect has ended: the next may be claimed
	order     *dispatch[T]   // of an ordered queue, else nil

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

// ConsumerStats are counts since Consume, and what is held now. Another process's
// consumers are not in it: see Queue.Stats.
type ConsumerStats struct {
	// Claims.
	Claimed     int64 // messages
	Claims      int64 // statements that found some
	EmptyClaims int64 // statements that found none
	Looks       int64 // reads while idle, of when there may be something to claim

	// Settles that are in the database. Those of AckTx are not counted: only the
	// caller learns whether his transaction was committed.
	Acked, Nacked, Released, Dead int64
	Lost                          int64 // settles that came after the lease had ended

	// Now.
	Buffered int // leases that wait for a reader
	// Of an ordered queue: leases that wait for the one before them of their key, which a
	// reader has; the slots that this consumer has; and those of them of which no more is
	// claimed before something of what waits is settled.
	Waiting, Slots, StalledSlots int
	Held                         int // leases buffered or delivered, not ended
	Settling                     int // settles that wait for their statement
}

// Consume starts a consumer. The end of ctx does what Stop does, and nothing
// else; call Shutdown to wait for the last settles. The values of ctx are in the
// contexts of the leases. It asks the database nothing: one that does not answer is
// an outage (see Hooks.Availability). Where the *sql.DB has a limit (SetMaxOpenConns), a
// consumer keeps five of its connections, all consumers on it together six (SQLite: one,
// shared by all queues), and Consume is an error that says which limit would do if that
// leaves none for the application.
func (q *Queue[T]) Consume(ctx context.Context, cfg ConsumerConfig) (*Consumer[T], error) {
	cfg, err := cfg.withDefaults()
	var pools []*sessions
	var watch *watchEar
	if err == nil && q.core.ringer.bell == nil && !q.core.ordered() {
		watch, err = openWatch(q.core, cfg.WatchEvery)
	}
	if err == nil {
		pools, err = openSessions(q.core.db, q.core.dialect, q.core.cfg.SessionMaxAge,
			session.Need{Kind: session.Claim, Sessions: claimSessions}, session.Need{Kind: session.Settle, Sessions: storers},
			session.Need{Kind: session.Extend, Sessions: extendSessions}, session.Need{Kind: session.Note, Sessions: noteSessions})
	}
	if err != nil {
		if watch != nil {
			watch.leave()()
		}
		return nil, fmt.Errorf("chanq: consume %s: %w", q.core.name, err)
	}
	c := &Consumer[T]{
		queue: q.core, cfg: cfg,
		sessions: pools[0],
		notes:    pools[3],
		member:   newMember(cfg.Name, cfg.LeaseFor),
		here:     membership{now: monotonic},
		health:   health{queue: q.core, part: "consumer"},
		values:   context.WithoutCancel(ctx),
		out:      make(chan *Lease[T], cfg.Prefetch),
		progress: make(chan struct{}, 1),
		returned: make(chan struct{}),
		drained:  make(chan struct{}, 1),
		fallen:   make(chan struct{}, 1),
		cleared:  make(chan struct{}, 1),
		seat:     newSeat(q.core, watch),
		surveys:  surveyor{floor: newFloor(cfg.PollMax), patience: cfg.StatementTimeout},
		surveyed: make(chan survey, 1),
		finished: make(chan struct{}),
		idle:     make(chan struct{}),
	}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	c.abandoned, c.abandon = context.WithCancel(context.Background())
	c.settler = newSettler(c, pools[1], &c.health, c.abandoned, cfg.tryTimeout(), cfg.linger(), max(settleFactor*cfg.Prefetch, minBacklog))
	c.keeper = newKeeper(c, pools[2], &c.health, cfg.LeaseFor, cfg.StatementTimeout)
	if c.queue.ordered() {
		c.order = newDispatch(c)
		c.keeper.bound = c.here.until
	}
	var unlisten func()
	c.ears, unlisten = q.core.key.listen()
	forget := context.AfterFunc(ctx, c.Stop)
	go c.supervise(func() { unlisten(); forget() })
	return c, nil
}

// The most sessions that a consumer uses at once, besides those of its settler: claims,
// settles and extensions never wait for each other's. Of settles and extensions the second
// is for when the first one's statement hangs.
const (
	claimSessions  = 1
	extendSessions = 2
	noteSessions   = 4 // of attend, trim, vacuum and a survey apart
)

// supervise runs the goroutines and ends them in order: the claimer, which
// returns the buffer; then, when the last lease ended, the settler and the rest.
func (c *Consumer[T]) supervise(forget func()) {
	defer close(c.idle)
	attending, leave := context.WithCancel(context.Background())
	defer leave()
	var claimer, rest conc.WaitGroup
	for range c.settler.storers() {
		rest.Go(c.settler.run)
	}
	run := func(f func()) {
		rest.Go(func() {
			defer c.caught()
			f()
		})
	}
	run(c.keeper.run)
	run(func() { c.attend(attending) })
	if c.queue.cfg.Retain > 0 {
		run(c.trim)
	}
	if c.queue.sql.Wear().Text != "" {
		run(c.vacuum)
	}
	if c.order != nil {
		claimer.Go(c.order.claimAll)
		run(func() { c.order.watch(attending) })
	} else {
		claimer.Go(c.claimAll)
	}
	claimer.Wait()
	close(c.returned)
	if c.order != nil {
		run(func() { c.order.vacate(attending) })
	}
	forget()
	endWatch := c.seat.leave()
	c.settler.backlog.Drain()
	var enough <-chan time.Time
	for c.held.Load()+c.working.Load() > 0 && c.abandoned.Err() == nil {
		select {
		case <-c.drained:
		case <-c.abandoned.Done():
		case <-c.fallen: // there may be leases that nobody knows of any more
			enough = time.After(c.cfg.LeaseFor)
		case <-enough:
			c.abandon()
		}
	}
	c.settler.backlog.Close()
	c.keeper.end()
	leave()
	rest.Wait()
	c.joined.Wait()
	c.abandon()
	endWatch()
	c.keeper.losses.close()
	c.health.changes.close()
	for _, s := range c.pools() {
		s.close()
	}
	close(c.finished)
	for c.working.Load() > 0 { // after a Shutdown that gave up
		<-c.drained
	}
}

// pools are the sessions of the consumer.
func (c *Consumer[T]) pools() []*sessions {
	return []*sessions{c.settler.sessions, c.keeper.sessions, c.sessions, c.notes}
}

// C is the channel of leases. The consumer closes it once, after Stop, the end
// of Consume's context or a permanent error (see Err); what was in it is
// released uncounted.
func (c *Consumer[T]) C() <-chan *Lease[T] { return c.out }

// Stop ends claiming and gives back what no reader has taken, uncounted. It
// returns at once; delivered leases go on and may be settled. It may be called
// again, by anyone.
func (c *Consumer[T]) Stop() { c.stopNow() }

// Shutdown stops, waits until every delivered lease is settled or lost, every
// handler of Handle and Pipe has returned and every settle is in the database,
// and joins all goroutines. If ctx ends before, it gives up what is not settled
// yet (those messages are delivered again when their leases end, at most
// ConsumerConfig.LeaseFor later) and returns an error that says how much; the
// goroutines end as soon as the driver returns. A lease in the hands of a reader
// who neither settles nor loses it keeps Shutdown waiting. It may be called again: after
// one that gave up it waits for the goroutines and handlers that have not ended yet; the
// *sql.DB is in use until then. On SQLite a goroutine that holds a transaction must not
// call it: see Queue.
func (c *Consumer[T]) Shutdown(ctx context.Context) error {
	c.Stop()
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-c.idle: // both at once: nothing is given up
		return nil
	default:
	}
	settling := c.settler.backlog.Open()
	held := max(0, int(c.held.Load())-settling) // which are held until they have an outcome
	c.gaveUp.Store(true)
	c.abandon()
	c.settler.backlog.Close()
	return fmt.Errorf("chanq: shutdown %s: %d leases not settled, %d settles not confirmed, %d handlers not returned: %w", c.queue.name, held, settling, c.working.Load(), context.Cause(ctx))
}

// Done is closed when the consumer begins to stop: by Stop, Shutdown, the end of
// Consume's context or a permanent error, which Err tells by then. What was delivered
// may still be settled.
func (c *Consumer[T]) Done() <-chan struct{} { return c.stop.Done() }

// Err is the permanent error that ended the consumer (the table is missing, a
// right is missing, the driver has panicked), or nil. Outages do not end a consumer.
func (c *Consumer[T]) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Flush waits until every settle that was handed in before is in the database,
// or refused, or ctx ends, whose error it returns: what became of a settle is told
// by Lease.Wait. It waits for settles whose rows somebody has locked, too, which no other
// settle does. On SQLite a
// goroutine that holds a transaction must not call it: see Queue.
func (c *Consumer[T]) Flush(ctx context.Context) error {
	if err := c.settler.backlog.Flush(ctx); err != nil {
		return fmt.Errorf("chanq: flush %s: %w", c.queue.name, err)
	}
	return nil
}

// Stats returns counts, and asks the database nothing.
func (c *Consumer[T]) Stats() ConsumerStats {
	c.mu.Lock()
	s := c.stats
	c.mu.Unlock()
	s.Buffered, s.Held, s.Settling = len(c.out), int(c.held.Load()), c.settler.backlog.Waiting()
	if c.order != nil {
		c.order.stats(&s)
	}
	return s
}

// The consumer as the owner of its leases.

func (c *Consumer[T]) home() *queue            { return c.queue }
func (c *Consumer[T]) parent() context.Context { return c.values }
func (c *Consumer[T]) hurry()                  { c.settler.backlog.Hurry() }

func (c *Consumer[T]) settle(l *lease) error {
	c.noteTaken()
	err := c.settler.add(l)
	if err != nil && !c.gaveUp.Load() {
		// The consumer has ended in order, and did not wait for this lease: it was in a
		// transaction, which was rolled back, or had run out. It is settled as TryLease's are.
		return c.alone().settle(l)
	}
	return err
}

func (c *Consumer[T]) extend(ctx context.Context, l *lease, d time.Duration) (bool, error) {
	select {
	case <-c.finished: // a lease that had run out is not waited for
		return c.alone().extend(ctx, l, d)
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StatementTimeout)
	defer cancel()
	return c.keeper.setEnd(ctx, l, d, c.cfg.tryTimeout())
}

// expire does what the keeper does when it looks, which it need not have done yet,
// or never will: after a Shutdown that gave up.
func (c *Consumer[T]) expire(l *lease) { c.keeper.loseLease(l, leaseExpired) }

func (c *Consumer[T]) awaits(l *lease) bool { return c.order != nil && c.order.awaits(l) }

func (c *Consumer[T]) moved(l *lease) {
	if c.order != nil {
		c.order.moved(l)
	}
}

func (c *Consumer[T]) ended(l *lease) {
	if l.state.Load() != leaseSettled {
		c.noteTaken()
	}
	if l.suspect {
		notify(c.cleared)
	}
	c.letGo()
}

// letGo counts a lease as held no more. Whoever is the last to do so while the consumer
// stops lets it end.
func (c *Consumer[T]) letGo() {
	if c.held.Add(-1) == 0 && c.stop.Err() != nil {
		notify(c.drained)
	}
}

// noteTaken notes that a lease was settled or has ended: a reader has taken it.
func (c *Consumer[T]) noteTaken() {
	n := c.taken.Add(1)
	if at := c.wakeAt.Load(); at != 0 && n >= at {
		notify(c.progress)
	}
}

// handlerDone is called when what a handler returned has been disposed of.
func (c *Consumer[T]) handlerDone() {
	if c.working.Add(-1) == 0 && c.stop.Err() != nil {
		notify(c.drained)
	}
}

// broken ends the consumer by a permanent error.
func (c *Consumer[T]) broken(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.Stop()
}

func (c *Consumer[T]) settled(e SettledEvent) {
	c.mu.Lock()
	c.stats.Acked += int64(e.Acked)
	c.stats.Nacked += int64(e.Nacked)
	c.stats.Released += int64(e.Released)
	c.stats.Dead += int64(e.Dead)
	c.stats.Lost += int64(e.Lost)
	c.mu.Unlock()
	notify(c.progress)
	// What was given back is another consumer's chance, whose pause ends here. Not
	// after a Release by a reader who goes on reading: one that releases whatever it
	// gets would claim it again without a pause, for ever.
	if e.Nacked > 0 || e.Released > 0 && c.stop.Err() != nil {
		c.queue.ring(e.Nacked+e.Released, false)
	}
}

// alone owns leases that have outlived the consumer.
func (c *Consumer[T]) alone() *loneOwner {
	return &loneOwner{queue: c.queue, timeout: c.cfg.StatementTimeout, values: c.values}
}
