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
	"github.com/chanq/chanq/internal/table"
)

// Consumer claims messages, and owns their leases.
//
// The supervisor starts and ends its goroutines, and End waits for all of them:
//   - the goroutine of its claims (internal/claim), one for a rescan, and for an ordered queue one that returns
//     the slots at the end;
//   - the feed, which decodes bodies and sends leases on the channel;
//   - the goroutines of the settler, the extender and the pipes (internal/settle);
//   - heartbeats, trims, the look-ups of acks in transactions and of cancelled messages, and on PostgreSQL
//     vacuums;
//   - one for events about lost leases, outages and isolated settles while there are events to report.
//
// A statement that does not return is left to a goroutine of internal/session.
type Consumer struct {
	cfg        Config
	parts      parts
	load       *load
	ending     *ending
	membership *claim.Membership
	owner      *owner
	claims     claims
	feed       feed

	waiter  *notify.Waiter
	failure atomic.Pointer[error] // nil: it has not failed

	mu    sync.Mutex // guards that no pipe starts after abandoned has ended
	pipes base.Group
}

// parts are the sessions of a consumer: claims, settles and extensions never wait for each other's sessions. Those of
// note are for what no delivery waits for.
type parts struct{ claim, settle, extend, note *session.Part }

// claims are the claims of internal/claim, of a plain or an ordered queue.
type claims interface {
	Source() claim.Source // of the claimed leases
	// Run claims until the consumer stops.
	Run()
	// Finish ends what Run left open, until ctx ends: the slots of an ordered queue, the rescan of a plain one.
	Finish(ctx context.Context)
}

// feed moves leases to the readers: a Feed.
type feed interface {
	claim.Feed
	Run(stop context.Context, claimed <-chan struct{})
	Taken() int64 // leases that readers have taken from the channel
	ReleaseAll()  // releases what no reader has taken
}

// New opens sessions, and starts nothing. It fails if the *sql.DB allows too few connections.
func New(cfg Config) (*Consumer, error) {
	// The spare sessions are for rescans, and for isolated settles and extensions
	open, err := session.Open(cfg.DB, cfg.Table.Dialect, cfg.SessionMaxAge,
		session.Need{Kind: session.Claim, Sessions: 1, Spare: 1},
		session.Need{Kind: session.Settle, Sessions: settle.Workers, Spare: 1},
		session.Need{Kind: session.Extend, Sessions: extendSessions, Spare: 2},
		session.Need{Kind: session.Note, Sessions: noteSessions})
	if err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, parts: parts{claim: open[0], settle: open[1], extend: open[2], note: open[3]},
		load: newLoad()}
	c.ending = newEnding(c)
	c.waiter, c.membership = cfg.Signals.Key.Wait(), claim.Lasting(cfg.Row.ID)
	if cfg.Table.Ordered {
		c.membership = claim.NewMembership(cfg.Row.ID)
	}
	o := &owner{Observer: cfg.Observer, of: c, neighbours: claim.Join(cfg.Signals.Key)}
	c.owner = o
	o.home.Owner, o.home.Parent, o.home.Of = o, cfg.Values, cfg.Observer
	o.openAcks = &openAcks{tasks: tasks{c, &c.cfg}, leases: map[*lease.Lease]bool{}}
	o.makeSettles()
	c.newClaims()
	return c, nil
}

// Source returns the source of leases for the feed.
func (c *Consumer) Source() claim.Source { return c.claims.Source() }

// Start starts the consumer, whose leases go to f. stopped is called when its claims have ended, and ended when its
// other goroutines have ended.
func (c *Consumer) Start(f feed, stopped, ended func()) {
	c.feed = f
	c.owner.pace.Serve(f)
	go c.supervise(stopped, ended)
}

// The maximum numbers of sessions that a consumer uses at the same time, without those of its claims and its settler.
const (
	extendSessions = 2 // the second one if a statement hangs, or for Lease.Extend
	// A vacuum, a slow rescan, a look-up of leases, and one patient statement of all others, which take turns.
	// Look-ups of acks and of cancelled messages rarely coincide with both of the first.
	noteSessions = 4
)

// supervise runs the goroutines and ends them in order: the claims; the feed, which returns the buffer; and, after the
// last lease has ended, the settler and the rest.
func (c *Consumer) supervise(stopped, ended func()) {
	e, o := c.ending, c.owner
	defer close(e.allGone)
	attending, leave := context.WithCancel(context.Background())
	defer leave()
	var claiming, feeding, finishing, rest base.Group
	rest.Go(o.settler.Run)
	rest.Go(o.extender.Run)
	t := tasks{c, &c.cfg}
	rest.Go(func() { t.heartbeats(attending) })
	rest.Go(func() { o.openAcks.run(attending) })
	rest.Go(func() { t.watch(attending) })
	rest.Go(t.trims)
	if c.cfg.Table.SQL.Bloat().Text != "" {
		rest.Go(t.vacuums)
	}
	claimed := make(chan struct{})
	claiming.Go(func() {
		c.connect()
		c.claims.Run()
	})
	feeding.Go(func() { c.feed.Run(c.load.stop, claimed) })
	claiming.Wait()
	close(claimed)
	feeding.Wait()
	finishing.Go(func() { c.claims.Finish(e.abandoned) })
	c.waiter.Close()
	stopped()
	o.settler.Drain()
	e.drain()
	// Before the heartbeat ends: a slot that a consumer leaves without returning it counts as a slot of a dead owner
	finishing.Wait()
	o.settler.Close()
	o.extender.End()
	leave()
	rest.Wait()
	c.mu.Lock()
	e.abandon()
	c.mu.Unlock()
	c.pipes.Wait()
	ended()
	o.extender.Close()
	c.cfg.Isolated.Close()
	c.cfg.Health.End()
	for _, p := range []*session.Part{c.parts.settle, c.parts.extend, c.parts.claim, c.parts.note} {
		p.Close()
	}
	close(e.finished)
	for c.load.handlers.Load() > 0 { // handlers whose leases were revoked
		<-c.load.drained
	}
	o.neighbours.Leave()
}

// Stop ends claiming and releases everything that no reader has taken. It returns immediately.
func (c *Consumer) Stop() { c.load.halt() }

// Stopped is closed when the consumer begins to stop.
func (c *Consumer) Stopped() <-chan struct{} { return c.load.stop.Done() }

// Failure returns the failure that ended the consumer, or nil.
func (c *Consumer) Failure() error {
	if failure := c.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// Stats are what a consumer has done, and what it holds.
type Stats struct {
	claim.Counts
	settle.Tally
	Buffered                    int // leases that wait for a reader
	Waiting, Slots, BlockedKeys int // of an ordered queue; Waiting: messages in memory that wait
	Held, Settling, Isolated    int
}

// Stats makes no database call.
func (c *Consumer) Stats() Stats {
	o := c.owner
	s := Stats{Tally: o.tally(), Counts: o.pace.Counts()}
	// In this order: a lease that reaches the channel meanwhile is counted twice instead of not at all
	s.Buffered = c.Source().Waiting()
	s.Buffered += c.feed.Coming()
	s.Buffered += c.feed.Buffered()
	if o.slots != nil {
		counts := o.slots.Counts()
		s.Waiting, s.Slots, s.BlockedKeys = counts.Unread, counts.Slots, counts.Blocked
	}
	settles := o.settler.Stats()
	s.Held, s.Settling, s.Isolated = int(c.load.leases.Load()), settles.Waiting, settles.Isolated
	return s
}

// Begin counts a handler, unless the lease has ended. It waits while another handler of the process has the message:
// see claim.Neighbours. The order matters: if a lease ends after the check, while the consumer stops, the handler is
// already counted, and End waits for it.
func (c *Consumer) Begin(l *lease.Lease) bool {
	c.load.handlers.Add(1)
	c.owner.neighbours.Handle(l, min(Grace, c.cfg.LeaseFor/2))
	if c.Skip(l) {
		c.Done(l)
		return false
	}
	return true
}

// Done is called when the result of a handler, of these leases together, has been processed.
func (c *Consumer) Done(leases ...*lease.Lease) {
	for _, l := range leases {
		c.owner.neighbours.Handled(l)
	}
	c.load.ended(&c.load.handlers)
}

// CountAsOne counts the handlers of n leases that are handled together as one: Done is to be called once.
func (c *Consumer) CountAsOne(n int) { c.load.handlers.Add(int64(1 - n)) }

// Skip reports a lease that ended before a reader took it, and releases it: if the database still holds the lease, the
// attempt does not count. It also does not count as taken, because claims must become smaller if buffered leases
// expire.
func (c *Consumer) Skip(l *lease.Lease) bool {
	if !l.Gone() {
		return false
	}
	c.owner.pace.Skip()
	if l.Take(lease.Release) {
		c.owner.pace.LeaseEnded()
		c.SettleAll(l)
	}
	return true
}

// SettleAll takes leases in state Settling. It does not wait.
func (c *Consumer) SettleAll(leases ...*lease.Lease) { c.owner.settler.AddAll(leases...) }

// Take records that a reader has taken a lease and is settling it.
func (c *Consumer) Take() { c.owner.pace.LeaseEnded() }

// Pipe starts a pipe, which ends with the consumer, and then calls ended. It returns nil if the consumer has ended, and
// an error if the *sql.DB allows too few connections.
func (c *Consumer) Pipe(to settle.Target, isolated *base.Isolated, ended func()) (*settle.Pipe, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.abandoned.Err() != nil {
		return nil, nil
	}
	cfg := &c.cfg
	parts, err := session.Open(cfg.DB, cfg.Table.Dialect, cfg.SessionMaxAge,
		session.Need{Kind: session.Pipe, Sessions: 1, Spare: 1})
	if err != nil {
		return nil, err
	}
	t := table.Table{Queue: cfg.Table, Part: parts[0]}
	p := c.owner.settler.Pipe(t, to, isolated.Set)
	c.pipes.Go(func() {
		_ = t.Part.Connect(c.ending.abandoned, cfg.StatementTimeout) // otherwise the first statement reports it
		p.Run()
		isolated.Close()
		t.Part.Close()
		ended()
	})
	return p, nil
}

// Committed records that a committed transaction has acked the messages of leases. It takes ownership of the slice.
func (c *Consumer) Committed(leases []*lease.Lease) {
	c.owner.count(settle.Tally{Acked: len(lease.Committed(leases))}, 0)
}

// Returned records that the handler of a lease that is in a transaction has returned.
func (c *Consumer) Returned(l *lease.Lease) {
	c.owner.openAcks.returned(l)
	if c.owner.slots != nil {
		c.owner.slots.Returned(l)
	}
}

// Flush waits until every settle that was added before has its outcome.
func (c *Consumer) Flush(ctx context.Context) error { return c.owner.settler.Flush(ctx) }

// Broken ends the consumer with a permanent failure.
func (c *Consumer) Broken(op string, err error) {
	err = c.cfg.Observer.Failed(op, err)
	c.failure.CompareAndSwap(nil, &err)
	c.Stop()
}
