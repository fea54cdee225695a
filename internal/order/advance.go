package order

import "time"

// Which message of a key may be delivered: advance is the one function that decides it.

// advance moves the first message of a key on, if the key is open.
func (s *Sequencer) advance(k *keyQueue, now time.Duration) {
	if len(k.all) == 0 {
		if !k.held && k.spill == None {
			s.forget(k)
		}
		return
	}
	m := k.all[0]
	switch {
	case m.state != idle:
	case k.busy > 0, k.held, k.slot.leaving, k.spill <= m.Seq, !m.gate.done():
		s.recall(m, now)
	case m.dueAt > now:
		s.uncount(m, now)
		if s.standBack(m); m.state == idle {
			s.wait(m, waiting, min(m.dueAt, now+peekEvery<<m.peeks))
			m.peeks = min(m.peeks+1, mostPeeks)
		}
	case m.locked:
		m.locked = false
		s.pause(m, waiting, now)
	case !s.count(m) || !s.admit(m, now):
	case s.crashed(m):
		s.list(m, ready)
	case m.mustMark:
		s.setContents(m, nil, 0)
		s.list(m, toMark)
	case m.contents == nil:
		s.list(m, toFetch)
	default:
		m.pauses, m.peeks = 0, 0
		s.list(m, ready)
	}
}

// count reports whether a message may be at work with the other keys of its slot. If not, it is queued.
func (s *Sequencer) count(m *Message) bool {
	if sl := m.key.slot; !m.counted {
		if sl.Keys > 0 && sl.atWork >= sl.Keys && (!s.trial.alone || s.stopped(m)) {
			s.set(m, queued)
			sl.line = append(sl.line, m)
			return false
		}
		m.counted = true
		sl.atWork++
	}
	return true
}

// uncount takes a message from those at work, and moves on the next ones that are queued.
func (s *Sequencer) uncount(m *Message, now time.Duration) {
	if !m.counted {
		return
	}
	m.counted = false
	sl := m.key.slot
	sl.atWork--
	s.unqueue(sl, now)
}

// unqueue moves on messages that are queued, as many as may be at work.
func (s *Sequencer) unqueue(sl *slot, now time.Duration) {
	for len(sl.line) > 0 && (sl.Keys == 0 || sl.atWork < sl.Keys) {
		next := sl.line[0]
		sl.line = sl.line[1:]
		if next.state == queued {
			s.set(next, idle)
			s.advance(next.key, now)
		}
	}
}
