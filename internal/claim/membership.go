package claim

import (
	"math"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Membership is the time for which a consumer counts as one of its queue, by the local clock. It is measured from
// before each heartbeat was sent, so it is never longer than in the database. On a plain queue nothing depends on it,
// and it does not end. It is safe for concurrent use; one goroutine sends heartbeats.
type Membership struct {
	mu   sync.Mutex // guards what follows
	term Term
	ends time.Duration // of the term, without another heartbeat; 0: it has not begun
}

// Term is one membership. A consumer whose membership ended joins again with another ID.
type Term struct {
	ID      [16]byte
	noticed time.Duration // when the end of the term before was noticed; 0: this is the first
}

// NewMembership returns a membership of an ordered queue that has not begun.
func NewMembership(id [16]byte) *Membership { return &Membership{term: Term{ID: id}} }

// Lasting returns the membership of a plain queue.
func Lasting(id [16]byte) *Membership { return &Membership{term: Term{ID: id}, ends: math.MaxInt64} }

// Next returns the ID for the next heartbeat: that of the membership, or a new one if it has ended.
func (m *Membership) Next(newID func() [16]byte) [16]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := base.Now(); m.ended(now) {
		m.term, m.ends = Term{newID(), now}, 0
	}
	return m.term.ID
}

// Joined records a heartbeat with the ID of Next that lasts until ends. It reports whether the membership begins with
// it. A membership that has ended does not last longer, because its slots and leases are lost: after such an answer,
// and after one that is itself too late, lasts is false, and the consumer should join again at once.
func (m *Membership) Joined(ends time.Duration) (begins, lasts bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := base.Now()
	if m.ended(now) {
		return false, false
	}
	begins = m.ends == 0
	m.ends = max(m.ends, ends)
	return begins, now < m.ends
}

// ended reports that the term has begun and ended. mu is held.
func (m *Membership) ended(now time.Duration) bool { return m.ends != 0 && now >= m.ends }

// Until returns the current ID of the consumer, and when the leases of this ID end at the latest.
func (m *Membership) Until() (id [16]byte, ends time.Duration) {
	t, ends, _ := m.Current()
	return t.ID, ends
}

// Current returns the term, when it ends without another heartbeat, and whether it has not ended. Call it before a
// statement is sent.
func (m *Membership) Current() (t Term, ends time.Duration, lasts bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term, m.ends, base.Now() < m.ends
}
