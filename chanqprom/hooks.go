package chanqprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chanq/chanq"
)

// task is a maintenance task of the consumers of a queue.
type task struct{ queue, name string }

// outcomes of a settle, as a label.
var outcomes = []string{"acked", "nacked", "released", "dead", "attempted"}

// Hooks returns hooks that count the operations of producers and consumers. Combine them with other hooks by
// chanq.JoinHooks. Prometheus does not count the first value of a series as an increase, so counters begin at 0: those
// of producers with the first Sent, those of consumers with the first claim. Counters of failures of a queue that this
// Metrics also watches (Watch) begin when the queue is first read.
func (m *Metrics) Hooks() chanq.Hooks {
	m.hooked.Store(true)
	took := func(queue, operation string, d time.Duration) {
		if d == 0 { // the caller ran the statement
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
			for i, n := range []int{e.Acked, e.Nacked, e.Released, e.Dead, e.Attempted} {
				m.settled.WithLabelValues(e.Queue, outcomes[i]).Add(float64(n))
			}
			took(e.Queue, "settle", e.Took)
		},
		LeaseLost: func(e chanq.LeaseLostEvent) { m.lost.WithLabelValues(e.Queue).Inc() },
		Handled: func(e chanq.HandledEvent) {
			if e.Took > 0 { // otherwise it was a Nack
				m.handler.WithLabelValues(e.Queue).Observe(e.Took.Seconds())
				m.wait.WithLabelValues(e.Queue).Observe(max(0, time.Since(e.DueAt)-e.Took).Seconds())
			}
			if e.Failed() {
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

// housekeeping counts the consumers whose task is refused: the task of a queue counts as refused until no consumer is
// left whose task is refused.
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

// beginSending starts the counters of producers at 0.
func (m *Metrics) beginSending(queue string) {
	if _, begun := m.sending.LoadOrStore(queue, true); begun {
		return
	}
	begin(queue, m.sent, m.attempted, m.duplicates)
	m.outages.WithLabelValues(queue, "producer")
	m.inOutage.WithLabelValues(queue, "producer")
	m.isolated.WithLabelValues(queue, "producer")
}

// beginConsuming starts the counters of consumers at 0.
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

// beginFailing starts the counters of failures at 0. It omits delivered and settled messages: in a program without a
// consumer those counters would stay at 0, as if handlers were stuck.
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
