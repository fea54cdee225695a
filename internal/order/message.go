package order

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// state is the state of a message: see the package comment.
type state uint8

const (
	idle state = iota
	waiting
	queued
	toLook
	toFetch
	toMark // busy while its Mark is running
	ready
	out // from here on busy
	inTx
	toUndo // by a Lapse if it was delivered, else by a Release
	over
	states
)

// Message is a message in memory. Its exported fields must only be read.
type Message struct {
	ID    [16]byte
	Seq   int64
	Slot  int
	Fence int64 // stored

	Attempts int // including the next delivery
	Lapses   int // expired leases in a row

	// Unfetched is for the caller: the last Fetch of this message alone has failed, but a Look at its row has not.
	Unfetched bool

	key      *keyQueue
	state    state
	task     *Task // the running task for this state; nil: none
	gate     int   // the last event before it was read: see walk.done
	contents Contents
	mustMark bool          // another consumer might have delivered it, or its last lease has expired
	mine     bool          // this consumer has marked it, or might have
	counted  bool          // among the keys at work of its slot
	given    bool          // delivered since it was last released
	returned bool          // its handler has returned, after an ack in a transaction
	after    time.Duration // not due before: see scatter
	delivery int64         // fence of the last delivery; 0: none
	redriven int64         // the queue's counter of redrives before that delivery
	dueAt    time.Duration
	diesAt   time.Duration // end of the TTL; 0: none
	until    time.Duration // inTx: end of the lease
	wakeAt   time.Duration // of its timer; 0: it does not wait
	pauses   uint8         // in a row
}

// Key returns the key of the message, or "" if it has none.
func (m *Message) Key() string {
	if !m.key.name.keyed {
		return ""
	}
	return m.key.name.key
}

// SlotFence returns the fence of the message's slot.
func (m *Message) SlotFence() int64 { return m.key.slot.Fence }

// Delivery returns the fence of the last delivery, or the fence that a delivery would have.
func (m *Message) Delivery() int64 { return max(m.delivery, DeliveryFence(m.Fence, m.key.slot.Fence)) }

func (m *Message) busy() bool {
	return m.state >= out && m.state < over || m.state == toMark && m.task != nil
}

// adopt sets the fields of a message from its row. A message whose last lease has expired is marked before its
// delivery, so that another crash counts.
func (q *queues) adopt(m *Message, row *Row, now time.Duration) {
	m.Fence, m.Attempts, m.dueAt, m.diesAt = row.Fence, row.Attempts, now+row.Wait, 0
	q.scatter(m, row.Lapses, now)
	m.mine = row.Holder == Mine && row.Fence >= m.key.slot.Fence
	raised := m.mine || m.delivery > 0 && row.Fence > m.delivery
	m.mustMark = !raised && (m.Seq <= m.key.slot.Old || row.Holder == Others) || m.Lapses > 0 && !m.mine
	if row.Lives != 0 {
		m.diesAt = max(1, now+row.Lives)
	}
}

// scatter makes a message wait that has lost leases in a row: see sqlbatch.Scatter. The delay is not stored: a new
// owner draws another one, by the random part of the slot's fence.
func (q *queues) scatter(m *Message, lapses int, now time.Duration) {
	if m.Lapses != lapses {
		m.Lapses, m.after = lapses, now
		if most := sqlbatch.Scatter(m.Lapses); most > 0 && !q.crashed(m) {
			m.after += time.Duration(random(m.ID, m.key.slot.Fence+int64(lapses)).Int64N(int64(most)))
		}
	}
	m.dueAt = max(m.dueAt, m.after)
}

// random returns random numbers that depend on an ID and a number.
func random(id [16]byte, n int64) *rand.Rand {
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(id[8:]), uint64(n)))
}
