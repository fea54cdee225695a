package engine

import "sync"

// versionStore hands out commit times and snapshots, and forgets row versions
// that no snapshot needs: the row versioning of READ_COMMITTED_SNAPSHOT and
// SNAPSHOT isolation.
type versionStore struct {
	mu        sync.Mutex
	now       uint64         // the last commit
	snapshots map[uint64]int // readers by the commit that they see last
	pending   []oldVersions
	keep      bool // forget nothing until clean
}

// oldVersions are former states of a record that end with the commit at.
type oldVersions struct {
	at    uint64
	table *table
	rec   *record
}

// snapshot is a reader's view: what was committed by then.
func (s *versionStore) snapshot() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshots == nil {
		s.snapshots = map[uint64]int{}
	}
	s.snapshots[s.now]++
	return s.now
}

func (s *versionStore) release(at uint64) {
	s.mu.Lock()
	if s.snapshots[at]--; s.snapshots[at] == 0 {
		delete(s.snapshots, at)
	}
	ready, horizon := s.take()
	s.mu.Unlock()
	forget(ready, horizon)
}

// clean forgets what was kept.
func (s *versionStore) clean() {
	s.mu.Lock()
	keep := s.keep
	s.keep = false
	ready, horizon := s.take()
	s.keep = keep
	s.mu.Unlock()
	forget(ready, horizon)
}

// commit makes tx visible to the snapshots to come. The old states of the
// records that it wrote are removed as soon as no snapshot can see them.
func (s *versionStore) commit(tx *txState, wrote []oldVersions) {
	s.mu.Lock()
	s.now++
	tx.commit.Store(s.now)
	for i := range wrote {
		wrote[i].at = s.now
	}
	s.pending = append(s.pending, wrote...)
	ready, horizon := s.take()
	s.mu.Unlock()
	forget(ready, horizon)
}

// take returns what may be forgotten.
func (s *versionStore) take() (ready []oldVersions, horizon uint64) {
	horizon = s.now
	if s.keep {
		return nil, horizon
	}
	for at := range s.snapshots {
		horizon = min(horizon, at)
	}
	n := 0
	for n < len(s.pending) && s.pending[n].at <= horizon {
		n++
	}
	if n == 0 {
		return nil, horizon
	}
	ready = s.pending[:n:n]
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
	return ready, horizon
}

func forget(old []oldVersions, horizon uint64) {
	for _, o := range old {
		o.table.collect(o.rec, horizon)
	}
}
