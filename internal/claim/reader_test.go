package claim_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// message is a row of the fake.
type message struct {
	id            byte
	seq           int64
	slot          int
	key           string
	fence, lapses int64
	holder        [16]byte // the consumer that has marked it
	expired       bool
}

// fake is an ordered queue of 4 slots in memory, with one consumer that is alive.
type fake struct {
	t      *testing.T
	rows   []message
	owners map[int]int64 // fences of the slots that are owned
	fences int64
	calls  []string
	from   []int64 // where reads began
	fail   func(op string) error
	bad    byte // the ID of a message whose contents cannot be read
	reader *claim.Ordered
	owned  *claim.Slots
	here   *claim.Membership
	queue  *queue // the consumer
	former bool   // all slots belong to another consumer, which is alive
}

var (
	errAway       = errors.New("away")
	errRolledBack = errors.New("rolled back")
)

const slots = 4

func newFake(t *testing.T, change ...func(*claim.Config)) *fake {
	f := &fake{t: t, owners: map[int]int64{}}
	f.here = claim.NewMembership([16]byte{1})
	f.join(time.Hour)
	f.queue = newQueue(t, func(c *claim.Config) {
		c.Slots = slots
		c.Traits = sqlbatch.Traits{ClaimRows: 1000, FindIDs: 100, AckItems: 100, NackItems: 100, OneWriter: true}
		for _, f := range change {
			f(c)
		}
	})
	f.owned = claim.NewSlots(f.queue.pace, f.here)
	f.reader = claim.NewOrdered(f.owned, f)
	return f
}

// join sends a heartbeat, after which the membership lasts for d.
func (f *fake) join(d time.Duration) {
	f.here.Next(func() [16]byte { return [16]byte{2} })
	f.here.Joined(base.Now() + d)
}

// run steps until nothing is due, or n steps have been made, and returns the errors.
func (f *fake) run(n int) (errs []error) {
	for range n {
		did, err := f.reader.Step(order.Budget{Room: 100, Items: 100, Fetch: 100, Poll: true})
		if err != nil {
			errs = append(errs, err)
		}
		if !did.Statement && err == nil {
			return errs
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errs
}

// deliver returns the IDs of the deliverable messages.
func (f *fake) deliver() (ids []byte, all []order.Delivery) {
	all, _ = f.owned.Deliver(100)
	for _, d := range all {
		ids = append(ids, d.ID[0])
	}
	return ids, all
}

func (f *fake) call(op string) error {
	f.calls = append(f.calls, op)
	if f.fail != nil {
		return f.fail(op)
	}
	return nil
}

func (f *fake) count(op string) (n int) {
	for _, c := range f.calls {
		if c == op {
			n++
		}
	}
	return n
}

// add adds a row to an answer.
func (f *fake) add(m message, contents bool, a *table.Answer) {
	term, _, _ := f.here.Current()
	r := order.Row{ID: [16]byte{m.id}, Seq: m.seq, Slot: m.slot, Key: m.key, Keyed: true, Fence: m.fence,
		Lapses: int(m.lapses)}
	switch m.holder {
	case [16]byte{}:
	case term.ID:
		r.Holder = order.Mine
	default:
		r.Holder, r.Lapses = order.Others, r.Lapses+1
	}
	if m.expired {
		r.Lives = -1
	}
	if contents {
		r.Contents = &table.Row{Body: []byte{m.id}}
		a.Contents++
	}
	a.Rows = append(a.Rows, r)
}

func (f *fake) owns(list []sqlbatch.OwnedSlot) bool {
	return !slices.ContainsFunc(list, func(s sqlbatch.OwnedSlot) bool { return f.owners[s.Slot] != s.Fence })
}

// scan is a read, or a refill of keys.
func (f *fake) scan(op string, p sqlbatch.ReadParams, keys []string, a *table.Answer) error {
	if err := f.call(op); err != nil {
		return err
	}
	a.Upto, a.Drawn = order.None, int64(len(f.rows))
	if a.Walked = f.owns(p.Slots); !a.Walked {
		return nil
	}
	ahead := 0
	for _, m := range f.rows {
		in := slices.ContainsFunc(p.Slots, func(s sqlbatch.OwnedSlot) bool { return s.Slot == m.slot })
		if !in || m.seq <= p.From || m.seq > p.Upto || keys != nil && !slices.Contains(keys, m.key) {
			continue
		}
		contents := m.seq > p.Cursor && m.seq > p.Old && !slices.Contains(p.Keys, m.key) && p.Inline >= 0
		if m.seq > p.Cursor {
			if ahead++; ahead > p.Rows {
				break
			}
		}
		if contents && m.id == f.bad {
			return errAway
		}
		f.add(m, contents, a)
		if keys != nil && ahead == p.Rows {
			a.Upto = m.seq
		}
	}
	return nil
}

func (f *fake) Do(t *order.Task, a *table.Answer) error {
	p := t.ReadParams
	switch t.Kind {
	case order.Read:
		f.from = append(f.from, t.From)
		return f.scan("read", p, nil, a)
	case order.Refill:
		p.Cursor, p.Keys = t.From, nil
		return f.scan("refill", p, t.Keys, a)
	case order.Held:
		a.Walked, a.Held = true, make([]bool, len(t.Keys))
		return f.call("held")
	case order.Fetch:
		return f.byID("fetch", t.Messages, a, true)
	case order.Mark:
		missing, err := f.mark(t.Consumer, t.Messages, a)
		if err != nil || len(missing) == 0 {
			return err
		}
		return f.byID("look", missing, a, false)
	case order.Release, order.Lapse:
		if err := f.call("release"); err != nil {
			return err
		}
	}
	return f.byID("look", t.Messages, a, false)
}

func (f *fake) byID(op string, messages []*order.Message, a *table.Answer, contents bool) error {
	if err := f.call(op); err != nil {
		return err
	}
	a.Walked = true
	for _, m := range f.rows {
		if slices.ContainsFunc(messages, func(of *order.Message) bool { return of.ID[0] == m.id }) {
			if contents && m.id == f.bad {
				return errAway
			}
			f.add(m, contents, a)
		}
	}
	return nil
}

func (f *fake) mark(consumer [16]byte, messages []*order.Message, a *table.Answer) (missing []*order.Message,
	err error) {
	if err := f.call("mark"); err != nil {
		return nil, err
	}
	a.Walked = true
	for _, of := range messages {
		i := slices.IndexFunc(f.rows, func(m message) bool { return of.ID[0] == m.id && of.Fence == m.fence })
		if i < 0 {
			missing = append(missing, of)
			continue
		}
		m := &f.rows[i]
		m.fence, m.holder = max(m.fence+1, of.SlotFence()), consumer
		a.Rows = append(a.Rows, order.Row{ID: of.ID, Seq: of.Seq, Fence: m.fence, Lapses: int(m.lapses), Written: true})
	}
	return missing, nil
}

func (f *fake) Slots() (list []order.SlotRow, consumers int, err error) {
	if err := f.call("slots"); err != nil {
		return nil, 0, err
	}
	term, _, _ := f.here.Current()
	for slot := range slots {
		row := order.SlotRow{Slot: slot}
		if fence, owned := f.owners[slot]; owned {
			row = order.SlotRow{Slot: slot, Owner: term.ID, Fence: fence}
		}
		if f.former {
			row = order.SlotRow{Slot: slot, Owner: [16]byte{1}}
		}
		list = append(list, row)
	}
	return list, 1, nil
}

func (f *fake) Take(_ [16]byte, _ int64, list []int) (got []order.Slot, err error) {
	if err := f.call("take"); err != nil {
		return nil, err
	}
	for _, slot := range list {
		f.fences++
		f.owners[slot] = f.fences
		got = append(got, order.Slot{Number: slot, Fence: f.fences, Old: int64(len(f.rows))})
	}
	return got, nil
}

func (f *fake) Paused() bool { return false }

func (f *fake) Give(_ [16]byte, list []sqlbatch.OwnedSlot) error {
	if err := f.call("give"); err != nil {
		return err
	}
	for _, s := range list {
		delete(f.owners, s.Slot)
	}
	return nil
}

// send appends messages: the letter of each is its key, and determines its slot.
func (f *fake) send(keys string) {
	for _, key := range keys {
		n := len(f.rows) + 1
		f.rows = append(f.rows, message{id: byte(n), seq: int64(n), slot: int(key) % slots, key: string(key), fence: 1})
	}
}

// ack removes a message, as its settle does.
func (f *fake) ack(d order.Delivery) {
	f.rows = slices.Clone(f.rows)
	for i := range f.rows {
		if f.rows[i].id == d.ID[0] {
			f.rows[i].seq = -1 // no read finds it
		}
	}
	l := &lease.Lease{Home: &lease.Home{Owner: owner{}}, Message: d.Message, Delivery: d.Fence}
	l.Take(lease.Ack)
	lease.Finish([]*lease.Lease{l}, []error{nil})
	f.owned.Changed([]*lease.Lease{l})
}

// TestMessagesOfAKeyComeOneAfterTheOther also checks that messages of other keys are delivered at the same time.
func TestMessagesOfAKeyComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5) // it takes all slots
		f.send("aab")
		require.Empty(t, f.run(20))
		ids, first := f.deliver()
		require.Equal(t, []byte{1, 3}, ids)
		f.run(20)
		ids, _ = f.deliver()
		require.Empty(t, ids, "the first message of a is being handled")
		f.ack(first[0])
		require.NotEmpty(t, f.owned.Ready())
		f.run(20)
		ids, _ = f.deliver()
		require.Equal(t, []byte{2}, ids)
		require.Zero(t, f.count("mark"), "an owner only reads")
	})
}

func TestAFailedStatementAboutSlotsDelaysNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5) // it takes all slots
		f.send("ab")
		f.fail = func(op string) error {
			if op == "slots" {
				return errRolledBack // another transaction has locked their rows
			}
			return nil
		}
		f.owned.Hurry()
		time.Sleep(time.Second) // checks have a minimum distance
		b := order.Budget{Room: 100, Items: 100, Fetch: 100, Poll: true}
		_, err := f.reader.Step(b)
		require.ErrorIs(t, err, errRolledBack)
		did, err := f.reader.Step(b)
		require.NoError(t, err)
		require.True(t, did.Read)
		ids, _ := f.deliver()
		require.Equal(t, []byte{1, 2}, ids)
		time.Sleep(batch.ShortPause)
		_, err = f.reader.Step(b)
		require.ErrorIs(t, err, errRolledBack, "the slots are checked again")
	})
}

// TestMessagesFromBeforeATakeOverAreMarkedFirst: the former owner might have died while it handled one.
func TestMessagesFromBeforeATakeOverAreMarkedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.send("ab")
		require.Empty(t, f.run(20))
		f.send("c")
		require.Empty(t, f.run(20))
		ids, all := f.deliver()
		require.ElementsMatch(t, []byte{1, 2, 3}, ids)
		for _, d := range all {
			require.Equal(t, d.ID[0] != 3, d.Message.Fence > 1, "message %d", d.ID[0])
		}
		require.Less(t, slices.Index(f.calls, "mark"), slices.Index(f.calls, "fetch"), "and fetched after that")
	})
}

// TestNothingIsDeliveredBehindALostMembership: another consumer might have the slots.
func TestNothingIsDeliveredBehindALostMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5)
		f.send("ab")
		f.run(20)
		time.Sleep(2 * time.Hour)
		ids, _ := f.deliver()
		require.Empty(t, ids)
		before := len(f.calls)
		f.run(5)
		require.Len(t, f.calls, before, "no statement is sent")
		require.NotEmpty(t, f.owned.Recalled(), "undelivered messages are recalled")
		f.owners = map[int]int64{}
		f.join(time.Hour)
		require.Empty(t, f.run(20))
		ids, _ = f.deliver()
		require.ElementsMatch(t, []byte{1, 2}, ids, "from the slots that it took again")
	})
}

// TestASlotWithAnotherFenceIsTakenAgainWithinASecond also checks that nothing is delivered before.
func TestASlotWithAnotherFenceIsTakenAgainWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5)
		f.owners['a'%slots] = 99 // by a take that was applied late
		f.send("a")
		b, began, looked := order.Budget{Room: 100, Items: 100, Fetch: 100, Poll: true}, time.Now(), false
		for !looked {
			require.LessOrEqual(t, time.Since(began), time.Second)
			time.Sleep(5 * time.Millisecond)
			did, _ := f.reader.Step(b)
			looked = did.Looked
			ids, _ := f.deliver()
			require.Empty(t, ids)
		}
		require.Len(t, f.owned.Owned(), slots-1)
		f.run(1)
		time.Sleep(2 * time.Second) // the pause after reads without an answer
		f.run(20)
		ids, _ := f.deliver()
		require.Len(t, ids, 1)
	})
}

// TestAfterAFailureMessagesAreReadAgain: the session might be lost, and its position with it. A statement that was
// undone is repeated.
func TestAfterAFailureMessagesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range []error{errAway, errRolledBack} {
			f := newFake(t)
			f.run(5)
			f.send("abc")
			failures := 0
			f.fail = func(op string) error {
				if op == "read" && failures < 3 {
					failures++
					return failure
				}
				return nil
			}
			f.run(30)
			require.Equal(t, 3, failures)
			ids, _ := f.deliver()
			require.ElementsMatch(t, []byte{1, 2, 3}, ids)
			f.run(10)
			ids, _ = f.deliver()
			require.Empty(t, ids, "each once")
		}
	})
}

// TestAReadThatDidNotRunCausesNoCatchUp: it did not get a session. No session was lost.
func TestAReadThatDidNotRunCausesNoCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range []error{errAway, table.NotRun(errAway)} {
			f := newFake(t)
			f.run(5)
			f.send("abc")
			f.run(20)
			f.fail = func(op string) error {
				if op == "read" {
					return failure
				}
				return nil
			}
			f.run(3)
			f.fail, f.from = nil, nil
			require.Empty(t, f.run(20))
			require.Equal(t, failure == errAway, slices.Contains(f.from, 0),
				"whether a read starts at the beginning, after: %v", failure)
		}
	})
}

// TestOnlyTheMessageThatCannotBeReadFails: statements shrink until the message is alone, and it is known by its ID.
func TestOnlyTheMessageThatCannotBeReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5)
		f.send("abcd")
		f.bad = 2
		most, unread := 100, map[byte]bool{}
		for range 100 {
			did, _ := f.reader.Step(order.Budget{Room: most, Items: most, Fetch: most, Rows: most, Poll: true})
			if did.Failed > 0 {
				most = max(1, did.Failed/2)
			}
			time.Sleep(100 * time.Millisecond)
			_, all := f.deliver()
			for _, d := range all {
				unread[d.ID[0]] = d.Contents.(*table.Row).Unread != nil
			}
		}
		require.Equal(t, map[byte]bool{1: false, 2: true, 3: false, 4: false}, unread)
	})
}

func TestAMessageThatIsReadAtTheSecondTryIsNotUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5)
		f.send("a")
		f.bad = 1
		f.fail = func(op string) error {
			if op == "look" {
				f.bad = 0
			}
			return nil
		}
		for range 30 {
			_, _ = f.reader.Step(order.Budget{Room: 1, Items: 1, Fetch: 1, Rows: 1, Poll: true})
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 1, f.count("look"), "it could not be fetched")
		_, all := f.deliver()
		require.Len(t, all, 1)
		require.NoError(t, all[0].Contents.(*table.Row).Unread)
	})
}

// TestAnOutageMakesNoMessageUnreadable, because reading the row fails as well.
func TestAnOutageMakesNoMessageUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5)
		f.send("ab")
		f.fail = func(string) error { return errAway }
		for range 30 {
			_, err := f.reader.Step(order.Budget{Room: 1, Items: 1, Fetch: 1, Rows: 1, Poll: true})
			require.True(t, err == nil || err == errAway)
			time.Sleep(100 * time.Millisecond)
		}
		f.fail = nil
		f.run(30)
		_, all := f.deliver()
		require.Len(t, all, 2)
		for _, d := range all {
			require.NoError(t, d.Contents.(*table.Row).Unread)
		}
	})
}

func TestEndReturnsTheSlotsWhenTheirHandlersAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.run(5)
		f.send("a")
		f.run(20)
		_, all := f.deliver()
		require.Len(t, all, 1)
		f.owned.End()
		f.run(20)
		require.Len(t, f.owners, 1, "the slot of the message that is being handled")
		require.False(t, f.owned.Empty())
		f.ack(all[0])
		f.run(20)
		require.Empty(t, f.owners)
		require.True(t, f.owned.Empty())
		require.Positive(t, f.queue.freed, "other consumers may take them")
	})
}
