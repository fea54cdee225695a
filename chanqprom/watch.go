package chanqprom

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

var (
	messagesDesc  = prometheus.NewDesc("chanq_messages", "Messages in a queue, counted up to 10,000 of each state.", []string{"queue", "state"}, nil)
	estimateDesc  = prometheus.NewDesc("chanq_messages_estimate", "Messages in a queue. Above 10,000 of a state what the database estimates, or 10,000.", []string{"queue", "state"}, nil)
	oldestDesc    = prometheus.NewDesc("chanq_oldest_ready_seconds", "Seconds since the oldest ready message became due.", []string{"queue"}, nil)
	pausedDesc    = prometheus.NewDesc("chanq_paused", "1 if the queue is paused.", []string{"queue"}, nil)
	consumersDesc = prometheus.NewDesc("chanq_consumers", "Consumers of a queue, of all programs.", []string{"queue"}, nil)
	upDesc        = prometheus.NewDesc("chanq_up", "1, or 0 if the queue could not be read from the database.", []string{"queue"}, nil)
	findingDesc   = prometheus.NewDesc("chanq_finding", "1 while chanq finds something wrong with a queue, by kind.", []string{"queue", "kind"}, nil)
	textDesc      = prometheus.NewDesc("chanq_finding_info", "1: the severity and sentence of a finding.", []string{"queue", "kind", "severity", "text"}, nil)
)

// Source is a queue that can be watched: a *chanqadmin.Queue.
type Source interface {
	Label() string // the value of the label queue
	chanqfindings.Queue
}

// figured is a queue whose figures can be read.
type figured interface {
	Label() string
	figures(context.Context) chanqfindings.Figures
}

// given is a queue of Watch.
type given struct{ Source }

func (g given) figures(ctx context.Context) chanqfindings.Figures { return chanqfindings.Look(ctx, g) }

// watch has the queues of one Watch or WatchAll.
type watch interface {
	// list returns what is known of them, even with an error.
	list(context.Context) ([]*look, error)
}

// Watch reads a queue whenever metrics are collected, until stop is called. Call stop before the *sql.DB of the queue is
// closed. The label of q must be that of the queue's producers and consumers. A queue that is watched twice in one
// Metrics has one set of series. If Hooks was called, the counters of failures of the queue's consumers begin at 0 with
// the first read.
func (m *Metrics) Watch(q Source) (stop func()) {
	return m.add(one{&look{source: given{q}, here: true}})
}

// one is a single queue.
type one struct{ *look }

func (o one) list(context.Context) ([]*look, error) { return []*look{o.look}, nil }

func (m *Metrics) add(w watch) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	number := m.next
	m.next++
	m.watched[number] = w
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watched, number)
	}
}

// look has the last values read for a queue, and when they were read.
type look struct {
	source figured
	here   bool // it belongs to Watch, and not to WatchAll

	mu    sync.Mutex // guards the fields below, and is held during the statements
	found chanqfindings.Figures
	said  map[chanqfindings.Kind]said
}

// said is a finding as it was exported at a time.
type said struct {
	chanqfindings.Finding
	began, at time.Time
}

// seen is the state of a queue in a collection.
type seen struct {
	queue string
	chanqfindings.Figures
	findings []chanqfindings.Finding
	here     bool
}

// collect reads the queue, unless it was read within maxAge, and returns the known state.
func (l *look) collect(ctx context.Context, cfg Config) seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.found.At) >= cfg.MaxAge {
		last := l.found.Seen
		l.found = l.source.figures(ctx)
		l.found.Follow(last)
	}
	now := time.Now()
	return seen{l.source.Label(), l.found, l.say(chanqfindings.Of(l.found, cfg.Limits, now), now), l.here}
}

// say returns findings with the sentences to export. Each other sentence is another series, and sentences contain durations and numbers:
// a sentence is renewed 1, 2, 4, 8 … minutes after the finding began, and when its severity changes.
func (l *look) say(found []chanqfindings.Finding, now time.Time) []chanqfindings.Finding {
	before := l.said
	l.said = map[chanqfindings.Kind]said{}
	for i, f := range found {
		s, known := before[f.Kind]
		if !known {
			s.began = now
		}
		if s.Severity != f.Severity || now.Sub(s.at) >= max(time.Minute, s.at.Sub(s.began)) {
			s.Finding, s.at = f, now
		}
		l.said[f.Kind], found[i] = s, s.Finding
	}
	return found
}

// export sends the gauges of one queue.
func (m *Metrics) export(ch chan<- prometheus.Metric, s seen) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.queue}, labels...)...)
	}
	for _, f := range s.findings {
		gauge(textDesc, 1, string(f.Kind), string(f.Severity), strings.ToValidUTF8(f.Text, "\uFFFD"))
	}
	for _, kind := range chanqfindings.Kinds {
		holds := 0.0
		if slices.ContainsFunc(s.findings, func(f chanqfindings.Finding) bool { return f.Kind == kind }) {
			holds = 1
		}
		gauge(findingDesc, holds, string(kind))
	}
	if s.Err != nil {
		gauge(upDesc, 0)
		return
	}
	gauge(upDesc, 1)
	for _, n := range []struct {
		state chanqadmin.State
		n     int
	}{
		{chanqadmin.StateReady, s.Stats.Ready}, {chanqadmin.StateScheduled, s.Stats.Scheduled}, {chanqadmin.StateLeased, s.Stats.Leased},
		{chanqadmin.StateDead, s.Stats.Dead}, {chanqadmin.StateDone, s.Stats.Done},
	} {
		gauge(messagesDesc, float64(n.n), string(n.state))
		gauge(estimateDesc, float64(max(n.n, s.Stats.Estimate(n.state))), string(n.state))
	}
	gauge(oldestDesc, s.Stats.OldestReady.Seconds())
	paused := 0.0
	if s.Stats.Paused {
		paused = 1
	}
	gauge(pausedDesc, paused)
	gauge(consumersDesc, float64(len(s.Consumers)))
}

func (m *Metrics) collectWatched(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), m.cfg.Timeout)
	defer cancel()
	m.mu.Lock()
	var watched []watch
	for _, n := range slices.Sorted(maps.Keys(m.watched)) {
		watched = append(watched, m.watched[n])
	}
	m.mu.Unlock()
	found := make([][]seen, len(watched))
	var lookers sync.WaitGroup
	for i, w := range watched { // concurrently: a database that hangs delays no other
		lookers.Go(func() { found[i] = lookAt(ctx, w, m.cfg) })
	}
	lookers.Wait()
	queues := map[string]seen{}
	for _, s := range slices.Concat(found...) {
		before, twice := queues[s.queue]
		s.here, before.here = s.here || before.here, s.here || before.here
		if twice && (before.Err == nil || s.Err != nil || s.queue == "") {
			s = before
		}
		queues[s.queue] = s
	}
	for _, s := range queues {
		if s.here && m.hooked.Load() {
			m.beginFailing(s.queue)
		}
		m.export(ch, s)
	}
	m.note(queues)
}

// readers is how many queues of one database are read concurrently. Each read uses a connection.
const readers = 4

// lookAt returns the known states of the queues of a watch, in the order of its list.
func lookAt(ctx context.Context, w watch, cfg Config) []seen {
	looks, err := w.list(ctx)
	found := make([]seen, len(looks))
	next := make(chan int)
	var lookers sync.WaitGroup
	for range min(readers, len(looks)) {
		lookers.Go(func() { // ends when next is closed
			for i := range next {
				found[i] = looks[i].collect(ctx, cfg)
			}
		})
	}
	for i := range looks {
		next <- i
	}
	close(next)
	lookers.Wait()
	if err != nil {
		f := chanqfindings.Figures{At: time.Now(), Err: err}
		found = append(found, seen{Figures: f, findings: chanqfindings.Of(f, cfg.Limits, f.At)})
	}
	return found
}

// note logs which queues cannot be read, with the error, and which can be read again: once per change.
func (m *Metrics) note(queues map[string]seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for queue := range m.unseen {
		if s, known := queues[queue]; known && s.Err == nil || !known && queue == "" {
			m.cfg.Log.Info("chanqprom: the queue can be read again", "queue", queue)
			delete(m.unseen, queue)
		} else if !known { // its watch has ended, or the list of queues cannot be read
			delete(m.unseen, queue)
		}
	}
	for queue, s := range queues {
		if s.Err != nil && !m.unseen[queue] {
			m.unseen[queue] = true
			m.cfg.Log.Warn("chanqprom: the queue cannot be read; chanq doctor shows the cause", "queue", queue, "err", s.Err)
		}
	}
}
