package claim

import (
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// OrderedTable has the statements of an Ordered: see table.Ordered.
type OrderedTable interface {
	Do(t *order.Task, a *table.Answer) error
	Slots() (list []order.SlotRow, consumers int, err error)
	Take(consumer [16]byte, salt int64, slots []int) (got []order.Slot, err error)
	Give(consumer [16]byte, slots []sqlbatch.OwnedSlot) error
	Paused() bool
}

// Did is the result of a Step.
type Did struct {
	Statement bool // a statement ran
	Looked    bool // the slots were checked
	Read      bool // the statement was a read of new messages, and not a part of a slow one
	Walked    bool // the consumer was alive and owned the slots, and the queue was not paused: see order.Answer
	Failed    int  // it failed to read the contents of so many messages, and the next one is to ask for fewer; 0: no
	Contents  int  // messages returned with contents
}

// Step runs the next statement, if one is due, and processes its answer. Statements take and return slots, and read
// their messages.
func (r *Ordered) Step(b order.Budget) (Did, error) {
	s := r.slots
	if term, _, lasts := s.membership.Current(); !lasts || term != s.term {
		s.reassign(func(now time.Duration) { // all slots are lost
			s.reb.Lost(term.ID, now)
			s.term = term
		})
		if !lasts {
			return Did{}, nil
		}
	}
	if did, err := r.tend(); did.Statement || err != nil {
		if err != nil && !r.rolledBack(err) { // as after a read: the session might be lost
			s.change(func(time.Duration) { s.seq.Reread() })
		}
		return did, err
	}
	return r.work(b)
}

// rolledBack reports that the database answered with this error, and undid the statement.
func (r *Ordered) rolledBack(err error) bool {
	return r.slots.cfg.Queue.Classify(err) == sqlbatch.RolledBack
}

// work runs the next task of the sequencer.
func (r *Ordered) work(b order.Budget) (did Did, err error) {
	s := r.slots
	s.mu.Lock()
	t := s.seq.Plan(b, base.Now())
	s.mu.Unlock()
	if t == nil {
		return Did{}, nil
	}
	isRead := t.Kind == order.Read || t.Kind == order.Refill
	did = Did{Statement: true, Read: t.Kind == order.Read && !t.Slow}
	asked := asks(t)
	began := base.Now()
	a := table.Answer{Answer: order.Answer{Redriven: -1}}
	t.Consumer, t.Inline = s.term.ID, s.cfg.inline(t.Rows)
	err = r.table.Do(t, &a)
	took := base.Now() - began
	s.took.Add(int64(took))
	var result *order.Answer
	if err == nil && s.lasts() {
		result = &a.Answer
		if did.Walked, did.Contents = a.Walked, a.Contents; a.Contents > 0 {
			r.brought(t, &a, asked, took)
		}
	}
	blocked := err != nil && r.rolledBack(err)
	waited := blocked && isRead && s.cfg.Traits.WatermarkFirst // only there reads wait for locked rows
	unread := r.unreadable(t, err)
	if err != nil {
		did.Failed = asked
	}
	s.change(func(now time.Duration) {
		switch {
		case waited && s.seq.Blocked(t):
			did.Failed = 0
		case unread != nil:
			s.seq.Unreadable(t.Messages[0], unread, now)
		case err != nil && !blocked && !table.DidNotRun(err):
			s.seq.Reread()
		}
		if s.seq.Answer(t, result, now) {
			s.reb.Doubt(now)
		}
	})
	if unread != nil || blocked && (waited || !isRead) {
		return did, nil
	}
	return did, err
}

// asks returns how many messages a task may return the contents of.
func asks(t *order.Task) int {
	if t.Kind == order.Fetch {
		return len(t.Messages)
	}
	return t.Rows
}

// brought notes that a statement which asked for the contents of so many messages has brought some.
func (r *Ordered) brought(t *order.Task, a *table.Answer, asked int, took time.Duration) {
	r.pace.size.Worked(asked, took, r.cfg.UsefulTimeout())
	r.pace.brought(a.Contents, a.Bytes)
	lapsed := func(row order.Row) bool { return row.Lapses > 0 && row.Contents != nil }
	r.pace.held(t.Kind == order.Fetch && slices.ContainsFunc(a.Rows, lapsed)) // they are fetched after their mark
}

// unreadable detects a message that cannot be read. After failed reads, those of one message leave out its contents, so
// that it is known by its ID. If its contents cannot be fetched twice in a row, although its row can be read each time,
// the message is the cause. The function returns what is known of the message without its contents, or nil.
func (r *Ordered) unreadable(t *order.Task, err error) *table.Row {
	switch {
	case t.Kind == order.Fetch && err == nil:
		for _, m := range t.Messages {
			m.Unfetched = false
		}
		return nil
	case t.Kind != order.Fetch || len(t.Messages) > 1 || r.rolledBack(err):
		return nil
	}
	m := t.Messages[0]
	var a table.Answer
	look := *t
	look.Kind = order.Look
	if r.table.Do(&look, &a) != nil || len(a.Rows) == 0 || a.Rows[0].Fence != m.Fence {
		m.Unfetched = false
		return nil
	}
	if !m.Unfetched {
		m.Unfetched = true
		return nil
	}
	m.Unfetched = false
	a.Last.Unread = err
	return &a.Last
}
