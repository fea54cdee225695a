package session

import (
	"context"
	"sync"
	"time"
)

// Connections are scarce if SetMaxOpenConns was lowered below what Join accepts, or if the driver's pool, the role or
// the server has a lower limit. That one shows only in attempts to connect that fail, or take longer than a moment.
// Sessions are then returned after each statement, and statements run one at a time: two connections are enough for
// chanq and the application.

// scarcity is how long connections count as scarce after the last sign of it. The signs of
// the next time might delay the application for up to watch and a moment.
const scarcity = 30 * time.Second

func (p *Pool) scarce() bool { return time.Now().UnixNano() < p.starved.Load() }

func (p *Pool) starve() { p.starved.Store(time.Now().Add(scarcity).UnixNano()) }

// arrived records an attempt to connect that took so long and has ended. far is that of connectFar: connections are not
// scarce, and the sessions that extend leases have stayed.
func (p *Pool) arrived(took time.Duration, far bool) {
	switch {
	case far:
		p.starved.Store(0)
	case took >= moment:
		p.sure.Store(time.Now().Add(scarcity).UnixNano())
	}
}

// doubtful reports that an attempt to connect takes long, and none has shown yet whether connections are scarce or the
// network is slow.
func (p *Pool) doubtful() bool { return time.Now().UnixNano() >= p.sure.Load() }

// late records that an attempt to connect failed, or takes longer than a moment. It might just wait for a connection
// that the *sql.DB has given to the application.
func (p *Pool) late() {
	if !p.traits.OneWriter && p.spare(0) {
		p.starve()
	}
}

// probe looks whether connections are scarce. If the *sql.DB has no idle connection, the application might wait for
// one, which its driver does not show: a note's session is connected.
func (p *Pool) probe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.life.Err() != nil, p.scarce():
	case p.enough(p.need) != nil:
		p.starve()
	case p.db.Stats().Idle == 0 && p.spare(1):
		l := p.lane(Note)
		l.mu.Lock()
		if l.open == 0 {
			l.start()
		}
		l.mu.Unlock()
	}
}

// turns lets one caller of next run at a time.
type turns struct {
	mu      sync.Mutex
	current chan struct{} // of capacity 1: has a value during a turn
}

// next waits until no other turn lasts, or until the others have taken longer than a moment, or
// until ctx ends. A caller that waited that long replaces the channel for all later ones, and
// leaves the old one to the one that hangs. done ends the turn.
func (t *turns) next(ctx context.Context) (done func()) {
	timer := time.NewTimer(moment)
	defer timer.Stop()
	var hung chan struct{}
	for {
		t.mu.Lock()
		if t.current == hung {
			t.current = make(chan struct{}, 1)
		}
		turn := t.current
		t.mu.Unlock()
		select {
		case turn <- struct{}{}:
			return func() { <-turn }
		case <-timer.C:
			hung = turn
			timer.Reset(moment)
		case <-ctx.Done():
			return func() {}
		}
	}
}
