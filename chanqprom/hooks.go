package chanqprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chanq/chanq"
)

// task is one that a consumer does beside its work.
type task struct{ queue, name string }

// outcomes of a settle, as a label.
var outcomes = []string{"acked", "nacked", "released", "dead"}

// Hooks count what producers and consumers do. Join them with others by chanq.JoinHooks. A counter
// begins at 0, not with what it counts first, which Prometheus would not see as an increase: those of
// producers with the first Sent, those of consumers with the first claim; and those of a queue that is
// watched here, too (Watch), when it is first looked at.
func (m *Metrics) Hooks() chanq.Hooks {
	m.hooked.Store(true)
	took := func(queue, operation string, d time.Duration) {
		if d == 0 { // the statement was the caller's
			return
		}
		m.took.WithLabelValues(queue, operation).Observe(d.Seconds())
	}
	return chanq.Hooks{
		Sent: func(e chanq.SentEvent) {
			m.beginSending(e.Queue)
			m.sent.WithLabelValues(e.Queue).Add(float64(e.Messages))
			m.attempted.WithLabelValues(e.Queue).Add(float64(e.Attempted))
			m.duplicates.WithLabelValues(e.Queue).Add(float64(e.Duplicates))
			took(e.Queue, "send", e.Took)
		},
		Claimed: func(e chanq.ClaimedEvent) {
			m.beginConsuming(e.Queue)
			m.delivered.WithLabelValues(e.Queue).Add(float64(e.Messages))
			took(e.Queue, "claim", e.Took)
		},
		Settled: func(e chanq.SettledEvent) {
			for i, n := range []int{e.Acked, e.Nacked, e.Released, e.Dead} {
				m.settled.WithLabelValues(e.Queue, outcomes[i]).Add(float64(n))
			}
			took(e.Queue, "settle", e.Took)
		},
		LeaseLost: func(e chanq.LeaseLostEvent) { m.lost.WithLabelValues(e.Queue).Inc() },
		Handled: func(e chanq.HandledEvent) {
			if e.Err != nil && e.Outcome != chanq.OutcomeRelease && chanq.Outcome(e.Err).Kind != chanq.OutcomeSnooze {
				m.failed.WithLabelValues(e.Queue).Inc()
			}
		},
		Availability: func(e chanq.AvailabilityEvent) {
			if e.Up {
				m.inOutage.WithLabelValues(e.Queue, e.Part).Dec()
				return
			}
			m.outages.WithLabelValues(e.Queue, e.Part).Inc()
			m.inOutage.WithLabelValues(e.Queue, e.Part).Inc()
		},
		Isolated: func(e chanq.IsolatedEvent) {
			m.isolated.WithLabelValues(e.Queue, e.Part).Add(float64(e.Change))
		},
		Housekeeping: m.housekeeping,
	}
}

// housekeeping counts who is refused a task: one of several consumers that is not, or that has ended, does
// not make it go on for the others.
func (m *Metrics) housekeeping(e chanq.HousekeepingEvent) {
	t := task{e.Queue, e.Task}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Err != nil {
		m.refusals[t]++
	} else if m.refusals[t]--; m.refusals[t] <= 0 {
		delete(m.refusals, t)
	}
	refused := 0.0
	if m.refusals[t] > 0 {
		refused = 1
	}
	m.refused.WithLabelValues(e.Queue, e.Task).Set(refused)
}

// beginSending has the counters of producers begin at 0.
func (m *Metrics) beginSending(queue string) {
	if _, begun := m.sending.LoadOrStore(queue, true); begun {
		return
	}
	begin(queue, m.sent, m.attempted, m.duplicates)
	m.outages.WithLabelValues(queue, "producer")
	m.inOutage.WithLabelValues(queue, "producer")
	m.isolated.WithLabelValues(queue, "producer")
}

// beginConsuming has the counters of consumers begin at 0.
func (m *Metrics) beginConsuming(queue string) {
	if _, begun := m.consuming.LoadOrStore(queue, true); begun {
		return
	}
	begin(queue, m.delivered)
	for _, outcome := range outcomes {
		m.settled.WithLabelValues(queue, outcome)
	}
	m.beginFailing(queue)
}

// beginFailing has those begin at 0 whose first event is news. It says nothing of whether anybody
// consumes here: delivered and settled messages that stay at 0 would say that consumers stand still.
func (m *Metrics) beginFailing(queue string) {
	begin(queue, m.lost, m.failed)
	m.outages.WithLabelValues(queue, "consumer")
	m.inOutage.WithLabelValues(queue, "consumer")
	m.isolated.WithLabelValues(queue, "consumer")
}

func begin(queue string, counters ...*prometheus.CounterVec) {
	for _, c := range counters {
		c.WithLabelValues(queue)
	}
}
