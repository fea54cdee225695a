package chanqprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chanq/chanq"
)

// place is a queue, or a shard of one.
type place struct{ queue, shard string }

// task is one that a consumer does beside its work.
type task struct {
	place
	name string
}

// outcomes of a settle, as a label.
var outcomes = []string{"acked", "nacked", "released", "dead"}

// Hooks count what producers and consumers do. Join them with others by chanq.JoinHooks. A counter
// begins at 0, not with what it counts first, which Prometheus would not see as an increase: those of
// producers with the first Sent, those of consumers with the first claim; and those of a queue that is
// watched here, too (Watch), when it is first looked at.
func (m *Metrics) Hooks() chanq.Hooks {
	m.hooked.Store(true)
	took := func(queue, shard, operation string, d time.Duration) {
		m.took.WithLabelValues(queue, shard, operation).Observe(d.Seconds())
	}
	return chanq.Hooks{
		Sent: func(e chanq.SentEvent) {
			m.beginSending(place{e.Queue, e.Shard})
			m.sent.WithLabelValues(e.Queue, e.Shard).Add(float64(e.Messages))
			m.duplicates.WithLabelValues(e.Queue, e.Shard).Add(float64(e.Duplicates))
			took(e.Queue, e.Shard, "send", e.Took)
		},
		Claimed: func(e chanq.ClaimedEvent) {
			m.beginConsuming(place{e.Queue, e.Shard})
			m.delivered.WithLabelValues(e.Queue, e.Shard).Add(float64(e.Messages))
			took(e.Queue, e.Shard, "claim", e.Took)
		},
		Settled: func(e chanq.SettledEvent) {
			for i, n := range []int{e.Acked, e.Nacked, e.Released, e.Dead} {
				m.settled.WithLabelValues(e.Queue, e.Shard, outcomes[i]).Add(float64(n))
			}
			took(e.Queue, e.Shard, "settle", e.Took)
		},
		LeaseLost: func(e chanq.LeaseLostEvent) { m.lost.WithLabelValues(e.Queue, e.Shard).Inc() },
		Failed: func(e chanq.FailedEvent) {
			if chanq.Outcome(e.Err).Kind != chanq.OutcomeSnooze {
				m.failed.WithLabelValues(e.Queue, e.Shard).Inc()
			}
		},
		Availability: func(e chanq.AvailabilityEvent) {
			if e.Up {
				m.inOutage.WithLabelValues(e.Queue, e.Shard, e.Part).Dec()
				return
			}
			m.outages.WithLabelValues(e.Queue, e.Shard, e.Part).Inc()
			m.inOutage.WithLabelValues(e.Queue, e.Shard, e.Part).Inc()
		},
		Isolated: func(e chanq.IsolatedEvent) {
			m.isolated.WithLabelValues(e.Queue, e.Shard, e.Part).Add(float64(e.Change))
		},
		Housekeeping: m.housekeeping,
	}
}

// housekeeping counts who is refused a task: one of several consumers that is not, or that has ended, does
// not make it go on for the others.
func (m *Metrics) housekeeping(e chanq.HousekeepingEvent) {
	t := task{place{e.Queue, e.Shard}, e.Task}
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
	m.refused.WithLabelValues(e.Queue, e.Shard, e.Task).Set(refused)
}

// beginSending has the counters of producers begin at 0.
func (m *Metrics) beginSending(p place) {
	if _, begun := m.sending.LoadOrStore(p, true); begun {
		return
	}
	begin(p, m.sent, m.duplicates)
	m.outages.WithLabelValues(p.queue, p.shard, "producer")
	m.inOutage.WithLabelValues(p.queue, p.shard, "producer")
	m.isolated.WithLabelValues(p.queue, p.shard, "producer")
}

// beginConsuming has the counters of consumers begin at 0.
func (m *Metrics) beginConsuming(p place) {
	if _, begun := m.consuming.LoadOrStore(p, true); begun {
		return
	}
	begin(p, m.delivered)
	for _, outcome := range outcomes {
		m.settled.WithLabelValues(p.queue, p.shard, outcome)
	}
	m.beginFailing(p)
}

// beginFailing has those begin at 0 whose first event is news. It says nothing of whether anybody
// consumes here: delivered and settled messages that stay at 0 would say that consumers stand still.
func (m *Metrics) beginFailing(p place) {
	begin(p, m.lost, m.failed)
	m.outages.WithLabelValues(p.queue, p.shard, "consumer")
	m.inOutage.WithLabelValues(p.queue, p.shard, "consumer")
	m.isolated.WithLabelValues(p.queue, p.shard, "consumer")
}

func begin(p place, counters ...*prometheus.CounterVec) {
	for _, c := range counters {
		c.WithLabelValues(p.queue, p.shard)
	}
}
