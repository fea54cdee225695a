package order

import "time"

// trial is the handling of a suspect. At most one is under way.
type trial struct {
	m     *Message
	alone bool // nothing else is held: a death dead-letters the message
	begun bool
}

// crashed reports whether a message has ended too many processes.
func (s *Sequencer) crashed(m *Message) bool {
	return s.cfg.MaxCrashes > 0 && m.crashes >= s.cfg.MaxCrashes
}

// admit reports whether a message may be handled now. A suspect that must wait is queued.
func (s *Sequencer) admit(m *Message, now time.Duration) bool {
	if !m.suspect || s.crashed(m) {
		return true
	}
	t, last := &s.trial, s.cfg.MaxCrashes > 0 && m.crashes == s.cfg.MaxCrashes-1
	if t.m == m && t.alone != last && !m.mine {
		s.leaveTrial(m)
	}
	if t.m == nil {
		*t = trial{m: m, alone: last}
		if last {
			s.clearMarks(now)
		}
	}
	if t.m == m && !t.begun && (!t.alone || s.busy == 0) {
		t.begun = s.cfg.Process == nil || s.cfg.Process.Begin()
	}
	if t.m == m && t.begun {
		return true
	}
	s.set(m, queued)
	s.suspects = append(s.suspects, m)
	s.uncount(m, now)
	return false
}

// stopped reports whether a message must wait for the end of a trial that is made alone.
func (s *Sequencer) stopped(m *Message) bool { return s.trial.alone && s.trial.m != m }

// leaveTrial ends the trial of a message.
func (s *Sequencer) leaveTrial(m *Message) {
	if s.trial.m != m {
		return
	}
	if s.trial.begun && s.cfg.Process != nil {
		s.cfg.Process.End()
	}
	s.trial = trial{}
}

// standBack ends the trial of a message that is not handled after all. Its mark is released before.
func (s *Sequencer) standBack(m *Message) {
	if s.trial.m != m {
		return
	}
	if m.mine {
		s.list(m, toUndo)
	} else {
		s.leaveTrial(m)
	}
}

// clearMarks has the marks of other messages released before a trial alone.
func (s *Sequencer) clearMarks(now time.Duration) {
	for _, sl := range s.slots {
		for _, k := range sl.keys {
			for _, m := range k.all {
				if m != s.trial.m {
					s.rest(m, now)
				}
			}
		}
	}
}

// tryAgain moves the suspects on that are queued, if a trial may begin.
func (s *Sequencer) tryAgain(now time.Duration) {
	if len(s.suspects) == 0 || s.trial.begun {
		return
	}
	list := s.suspects
	s.suspects = nil
	if t := s.trial.m; t != nil && t.state == queued { // it keeps its turn
		s.set(t, idle)
		s.advance(t.key, now)
	}
	for _, m := range list {
		if m.state == queued && !m.counted && m != s.trial.m {
			s.set(m, idle)
			s.advance(m.key, now)
		}
	}
}
