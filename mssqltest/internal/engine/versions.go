package engine

import "sync"

// versionStore assigns commit times and snapshots, and deletes row versions that no snapshot needs: the row versioning
// of READ_COMMITTED_SNAPSHOT and SNAPSHOT isolation.
type versionStore struct {
	mu        sync.Mutex
	now       uint64         // the last commit
	snapshots map[uint64]int // readers by the commit that they see last
	pending   []oldVersions
	keep      bool // delete nothing until clean
}

// oldVersions has the former states of a record that end with the commit at.
type oldVersions struct {
	at    uint64
	table *table
	rec   *record
}

// snapshot returns a reader's view: all changes committed so far.
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

// clean deletes the versions that were kept.
func (s *versionStore) clean() {
	s.mu.Lock()
	keep := s.keep
	s.keep = false
	ready, horizon := s.take()
	s.keep = keep
	s.mu.Unlock()
	forget(ready, horizon)
}

// commit makes tx visible to later snapshots. The old states of the records that it wrote are removed when no snapshot
// can see them.
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

// take returns the versions that can be deleted.
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
