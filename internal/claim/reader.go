package claim

import (
	"sync"
	"time"

	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// OrderedTable has the statements of a Reader: see table.Ordered.
type OrderedTable interface {
	Read(p sqlbatch.ReadParams, a *table.Answer) error
	Refill(p sqlbatch.RefillParams, a *table.Answer) error
	Fetch(member [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte, a *table.Answer) error
	Look(member [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte, a *table.Answer) error
	Mark(member [16]byte, items []sqlbatch.MarkItem, alone sqlbatch.Alone) (changed []order.Row, err error)
	Release(member [16]byte, items []sqlbatch.ReleaseItem, lapsed bool) (changed []order.Row, err error)
	Held(slots []int, keys []string) (held []bool, redriven int64, err error)
	Slots() (list []order.SlotRow, consumers int, err error)
	Take(member [16]byte, salt int64, slots []int) (got []table.Taken, err error)
	Give(member [16]byte, slots []sqlbatch.OwnedSlot) error
}

// ReaderConfig configures a Reader.
type ReaderConfig struct {
	Order      order.Config
	Slots      int
	Keys       func(slot int) int // keys of a slot at work at once; 0: no bound
	Table      OrderedTable
	Inline     func(rows int) int // of a read of so many rows: larger bodies are fetched later
	Membership *Membership
	Salt       func() int64
	Now        func() time.Duration

	// RolledBack reports that the database answered with this error, and undid the statement.
	RolledBack func(error) bool
	// Ready is called when Deliver might return messages, and Woken when Step might have something to do.
	Ready, Woken func()
	// Recalled is called when slots are being returned or were lost: what was not given to a handler is to be taken back.
	Recalled func()
	// Freed is called when slots are free for other consumers.
	Freed func()
}

// Reader reads the messages of the slots that its consumer owns.
type Reader struct {
	cfg ReaderConfig

	mu       sync.Mutex // guards what follows
	seq      *order.Sequencer
	reb      *order.Rebalancer
	delivers Term // of the messages in seq

	// Of the goroutine that calls Step.
	term Term
	rest time.Duration // no statement about slots before: after one that failed
	bare bool          // reads leave out contents: one of a single message has failed
}

// SetPolicy changes the policy of the queue while slots are owned: whether dead messages hold their keys, and how many keys of each slot
// are at work at once.
func (r *Reader) SetPolicy(deadHolds bool) {
	r.change(func(now time.Duration) { r.seq.SetPolicy(deadHolds, r.cfg.Keys, now) })
}

// slotsPause is the pause after a statement about slots that failed.
const slotsPause = 50 * time.Millisecond

// NewReader returns a Reader that owns no slot.
func NewReader(cfg ReaderConfig) *Reader {
	term, _, _ := cfg.Membership.Current()
	return &Reader{cfg: cfg, seq: order.New(cfg.Order), reb: order.NewRebalancer(cfg.Slots, term.ID), term: term, delivers: term}
}

// Did is what a Step has done.
type Did struct {
	Statement bool // it ran one
	Looked    bool // at the slots
	Read      bool // it was a read of messages that follow each other
	Walked    bool // of a read: the slots were ours, and the queue was not paused
	Asked     int  // messages of which it may return the contents; 0: none
	Failed    bool // the next one is to ask for fewer
	Contents  int  // messages that it brought with contents
	Bytes     int  // of their bodies
	Took      time.Duration
}

// Step runs the next statement, if one is due, and takes its answer.
func (r *Reader) Step(b order.Budget) (Did, error) {
	if !r.lasts() {
		return Did{}, nil
	}
	if did, err := r.tend(); did.Statement || err != nil {
		if err != nil && !r.cfg.RolledBack(err) { // as after a read: the session might be lost
			r.mu.Lock()
			r.seq.Reread()
			r.mu.Unlock()
		}
		return did, err
	}
	return r.work(b)
}

// lasts reports whether the membership lasts. If it is another than before, all slots are lost.
func (r *Reader) lasts() bool {
	term, _, lasts := r.cfg.Membership.Current()
	if lasts && term == r.term {
		return true
	}
	r.mu.Lock()
	r.seq.Lost(r.cfg.Now())
	r.reb.Lost(term.ID)
	recall := len(r.reb.Changes().Gone) > 0
	r.delivers = term
	r.mu.Unlock()
	r.term = term
	if recall {
		r.cfg.Recalled()
	}
	return lasts
}

// work runs the next task of the sequencer.
func (r *Reader) work(b order.Budget) (did Did, err error) {
	r.mu.Lock()
	b.Bare = r.bare
	t := r.seq.Plan(b, r.cfg.Now())
	r.mu.Unlock()
	if t == nil {
		return Did{}, nil
	}
	did = Did{Statement: true, Read: t.Kind == order.Read && !t.Slow(), Asked: t.Rows}
	if t.Kind == order.Fetch {
		did.Asked = len(t.Messages)
	}
	began := r.cfg.Now()
	var a table.Answer
	err = r.run(t, &a)
	did.Took = r.cfg.Now() - began
	result := &a.Answer
	if term, _, lasts := r.cfg.Membership.Current(); err != nil || !lasts || term != r.term {
		result = nil
	}
	isRead := t.Kind == order.Read || t.Kind == order.Refill
	blocked := err != nil && r.cfg.RolledBack(err)
	waited := blocked && isRead && r.cfg.Order.SampleIsFirst // only there reads wait for locked rows
	unread := r.unreadable(t, err)
	did.Failed = did.Asked > 0 && err != nil
	r.change(func(now time.Duration) {
		switch {
		case waited:
			did.Failed = !r.seq.Blocked(t, now) && did.Failed
		case unread != nil:
			r.seq.Unreadable(t.Messages[0], unread, now)
		case err != nil && !blocked:
			r.seq.Reread()
		}
		if r.seq.Answer(t, result, now) {
			r.takeAgain(now)
		}
		if result != nil && !a.Walked {
			for _, s := range t.Slots {
				r.reb.Unwalked(s.Number)
			}
		}
	})
	if result != nil {
		did.Walked = a.Walked
		for i := range a.Rows {
			if a.Rows[i].Contents != nil {
				did.Contents++
			}
		}
		did.Bytes = a.Bytes
	}
	if unread != nil || blocked && (waited || !isRead) {
		return did, nil
	}
	return did, err
}

// unreadable finds out whether a message cannot be read. A read or refill of one message that fails is followed by reads and refills
// without contents, so that the message is known by its ID. If its contents cannot be fetched twice in a row, and a look at it succeeds
// each time, the message is the cause. It returns what is known of it without its contents, or nil.
func (r *Reader) unreadable(t *order.Task, err error) *table.Row {
	switch {
	case (t.Kind == order.Read || t.Kind == order.Refill) && t.Rows > 0 && err != nil:
		r.bare = t.Rows == 1
		return nil
	case t.Kind == order.Fetch && err == nil:
		r.bare = false
		for _, m := range t.Messages {
			m.Unfetched = false
		}
		return nil
	case t.Kind != order.Fetch || len(t.Messages) > 1 || r.cfg.RolledBack(err):
		return nil
	}
	m := t.Messages[0]
	var a table.Answer
	if r.cfg.Table.Look(r.term.ID, owned(t.Slots), [][16]byte{m.ID}, &a) != nil || len(a.Rows) == 0 || a.Rows[0].Fence != m.Fence {
		m.Unfetched = false
		return nil
	}
	if !m.Unfetched {
		m.Unfetched = true
		return nil
	}
	m.Unfetched, r.bare = false, false
	a.Last.Unread = err
	return &a.Last
}

// change changes the state under the mutex, and then calls Ready if messages may be delivered.
func (r *Reader) change(f func(now time.Duration)) {
	r.mu.Lock()
	f(r.cfg.Now())
	ready := r.seq.Counts().Ready > 0
	r.mu.Unlock()
	if ready {
		r.cfg.Ready()
	}
}

// takeAgain drops all slots and has them taken again: the database has forgotten numbers.
func (r *Reader) takeAgain(now time.Duration) {
	for _, s := range r.reb.Owned() {
		r.seq.Drop(s.Slot, now)
	}
	r.reb.Doubt()
}

// run runs the statements of a task.
func (r *Reader) run(t *order.Task, a *table.Answer) error {
	me, slots := r.term.ID, owned(t.Slots)
	switch t.Kind {
	case order.Read:
		return r.cfg.Table.Read(sqlbatch.ReadParams{
			Member: me, Slots: slots, From: t.From, Cursor: t.Cursor, Upto: t.Upto, Rows: t.Rows, Behind: t.Behind, Old: t.Old, Keys: t.Keys, Inline: r.cfg.Inline(t.Rows),
		}, a)
	case order.Refill:
		return r.cfg.Table.Refill(sqlbatch.RefillParams{
			Member: me, Slots: slots, From: t.From, Upto: t.Upto, Rows: t.Rows, Old: t.Old, Keys: t.Keys, Inline: r.cfg.Inline(t.Rows),
		}, a)
	case order.Fetch:
		return r.byID(r.cfg.Table.Fetch, t.Slots, t.Messages, a)
	case order.Held:
		return r.askHeld(t, a)
	case order.Mark, order.Lapse, order.Release:
		return r.write(t, a)
	default:
		return r.byID(r.cfg.Table.Look, t.Slots, t.Messages, a)
	}
}

// byID looks at messages, or fetches them. Of a locked row the database might know the ID alone: the rest is what is known here.
func (r *Reader) byID(ask func([16]byte, []sqlbatch.OwnedSlot, [][16]byte, *table.Answer) error, slots []order.Slot, messages []*order.Message, a *table.Answer) error {
	from := len(a.Rows)
	err := ask(r.term.ID, owned(slots), idsOf(messages), a)
	for i := from; i < len(a.Rows); i++ {
		row := &a.Rows[i]
		if row.Lock != order.Locked || row.Seq != 0 {
			continue
		}
		for _, m := range messages {
			if m.ID == row.ID {
				row.Seq, row.Slot, row.Fence = m.Seq, m.Slot, m.Fence
			}
		}
	}
	return err
}

// write runs a mark or a release, and a look at the messages that it did not change.
func (r *Reader) write(t *order.Task, a *table.Answer) error {
	var rows []order.Row
	var err error
	if t.Kind == order.Mark {
		items := make([]sqlbatch.MarkItem, len(t.Messages))
		for i, m := range t.Messages {
			items[i] = sqlbatch.MarkItem{Item: sqlbatch.Item{ID: m.ID, Fence: m.Fence}, SlotFence: m.SlotFence()}
		}
		alone := sqlbatch.NotAlone
		if t.Alone {
			alone = sqlbatch.OnlyMessage
		} else if t.Suspect {
			alone = sqlbatch.OnlySuspect
		}
		rows, err = r.cfg.Table.Mark(r.term.ID, items, alone)
	} else {
		items := make([]sqlbatch.ReleaseItem, len(t.Messages))
		for i, m := range t.Messages {
			items[i] = sqlbatch.ReleaseItem{Item: sqlbatch.Item{ID: m.ID, Fence: m.Fence}, Delivery: m.Delivery()}
		}
		rows, err = r.cfg.Table.Release(r.term.ID, items, t.Kind == order.Lapse)
	}
	if err != nil {
		return err
	}
	changed := make(map[[16]byte]order.Row, len(rows))
	for _, row := range rows {
		changed[row.ID] = row
	}
	var missing []*order.Message
	for _, m := range t.Messages {
		row, ok := changed[m.ID]
		if !ok {
			missing = append(missing, m)
			continue
		}
		row.Seq = m.Seq
		a.Rows = append(a.Rows, row)
	}
	if len(missing) == 0 {
		r.mu.Lock()
		a.Walked, a.Redriven = true, r.seq.Redriven()
		r.mu.Unlock()
		return nil
	}
	return r.byID(r.cfg.Table.Look, t.Slots, missing, a)
}

// askHeld asks which keys are held by dead messages.
func (r *Reader) askHeld(t *order.Task, a *table.Answer) error {
	var err error
	a.Walked = true
	a.Held, a.Redriven, err = r.cfg.Table.Held(t.KeySlots, t.Keys)
	return err
}

func owned(slots []order.Slot) []sqlbatch.OwnedSlot {
	list := make([]sqlbatch.OwnedSlot, len(slots))
	for i, s := range slots {
		list[i] = sqlbatch.OwnedSlot{Slot: s.Number, Fence: s.Fence}
	}
	return list
}

func idsOf(messages []*order.Message) [][16]byte {
	ids := make([][16]byte, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return ids
}
