package chanqprom

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chanq/chanq"
)

var (
	messagesDesc = prometheus.NewDesc("chanq_messages", "Messages in a queue, counted up to 10,000 of each state.", []string{"queue", "shard", "state"}, nil)
	oldestDesc   = prometheus.NewDesc("chanq_oldest_ready_seconds", "For how long the oldest ready message has been due.", []string{"queue", "shard"}, nil)
	pausedDesc   = prometheus.NewDesc("chanq_paused", "1 where the queue is paused.", []string{"queue", "shard"}, nil)
	membersDesc  = prometheus.NewDesc("chanq_members", "Consumers of a queue, of all programs.", []string{"queue", "shard"}, nil)
	upDesc       = prometheus.NewDesc("chanq_up", "1, or 0 where the database did not answer when the queue was looked at.", []string{"queue", "shard"}, nil)
)

// Source is a queue that can be looked at: *chanq.Queue[T] of any T is one.
type Source interface {
	Name() string
	Stats(context.Context) (chanq.Stats, error)
	Members(context.Context) ([]chanq.Member, error)
}

// sharded is a Source that tells its shards apart, as *chanq.Queue[T] does.
type sharded interface {
	ShardStats(context.Context) []chanq.ShardStats
}

// watch returns the queues that are watched at the moment.
type watch func(context.Context) ([]*look, error)

// Watch has a queue looked at whenever metrics are collected, until the function that it returns is
// called: do so before its *sql.DB is closed. A queue that is watched twice in one Metrics makes a
// collection fail.
func (m *Metrics) Watch(q Source) (stop func()) {
	one := []*look{{source: q}}
	return m.add(func(context.Context) ([]*look, error) { return one, nil })
}

// WatchAll is Watch of all queues of a schema, of whatever kind, those that come later, too. That
// costs one round trip more for each collection that asks the database. Of cfg it uses Dialect and Schema.
func (m *Metrics) WatchAll(db *sql.DB, cfg chanq.Config) (stop func()) {
	cfg = chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema, MaxAttempts: chanq.UnlimitedAttempts, Durability: chanq.DurabilityAsIs}
	a := &all{db: db, cfg: cfg, maxAge: m.cfg.MaxAge}
	return m.add(a.list)
}

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

// all are the queues of a schema.
type all struct {
	db     *sql.DB
	cfg    chanq.Config
	maxAge time.Duration

	mu    sync.Mutex // guards what follows, and is held while the database is asked
	at    time.Time
	names []string
	known map[string]*look
}

func (a *all) list(ctx context.Context) ([]*look, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) >= a.maxAge {
		names, err := chanq.Queues(ctx, a.db, a.cfg)
		if err != nil {
			return nil, err
		}
		a.at, a.names = time.Now(), names
	}
	known := map[string]*look{}
	var list []*look
	for _, name := range a.names {
		l := a.known[name]
		if l == nil {
			cfg, err := chanq.StoredConfig(ctx, a.db, name, a.cfg)
			if err != nil {
				continue // dropped just now
			}
			q, err := chanq.Open[[]byte](ctx, a.db, name, cfg)
			if err != nil {
				l = &look{source: broken{name, err}} // looked at again next time
				list = append(list, l)
				continue
			}
			l = &look{source: q}
		}
		known[name] = l
		list = append(list, l)
	}
	a.known = known
	return list, nil
}

// broken is a queue that cannot be opened.
type broken struct {
	name string
	err  error
}

func (b broken) Name() string                                    { return b.name }
func (b broken) Stats(context.Context) (chanq.Stats, error)      { return chanq.Stats{}, b.err }
func (b broken) Members(context.Context) ([]chanq.Member, error) { return nil, b.err }

// look is what was seen of a queue, and when.
type look struct {
	source Source

	mu      sync.Mutex // guards what follows, and is held while the database is asked
	at      time.Time
	shards  []chanq.ShardStats // one, where the queue has none
	members []int              // of each; below 0: not known
}

// collect looks, unless that was done just now, and tells what is seen.
func (l *look) collect(ctx context.Context, maxAge time.Duration, ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) >= maxAge {
		l.again(ctx)
		l.at = time.Now()
	}
	for i, s := range l.shards {
		tell(ch, l.source.Name(), s, l.members[i])
	}
}

// again asks the database. mu is held.
func (l *look) again(ctx context.Context) {
	if q, ok := l.source.(sharded); ok {
		l.shards = q.ShardStats(ctx)
	} else {
		stats, err := l.source.Stats(ctx)
		l.shards = []chanq.ShardStats{{Stats: stats, Err: err}}
	}
	l.members = make([]int, len(l.shards))
	list, err := l.source.Members(ctx)
	for _, m := range list {
		if len(l.shards) == 1 {
			l.members[0]++
		} else if m.Shard < len(l.members) {
			l.members[m.Shard]++
		}
	}
	for i, n := range l.members {
		if err != nil && n == 0 { // it is this one that did not answer, perhaps
			l.members[i] = -1
		}
	}
}

// tell tells of one shard.
func tell(ch chan<- prometheus.Metric, queue string, s chanq.ShardStats, members int) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{queue, s.Shard}, labels...)...)
	}
	if s.Err != nil {
		gauge(upDesc, 0)
		return
	}
	gauge(upDesc, 1)
	for _, n := range []struct {
		state chanq.State
		n     int
	}{{chanq.StateReady, s.Ready}, {chanq.StateScheduled, s.Scheduled}, {chanq.StateLeased, s.Leased}, {chanq.StateDead, s.Dead}, {chanq.StateDone, s.Done}} {
		gauge(messagesDesc, float64(n.n), string(n.state))
	}
	gauge(oldestDesc, s.OldestReady.Seconds())
	paused := 0.0
	if s.Paused {
		paused = 1
	}
	gauge(pausedDesc, paused)
	if members >= 0 {
		gauge(membersDesc, float64(members))
	}
}

// sideBySide is how many queues are looked at at once: each takes a connection.
const sideBySide = 4

func (m *Metrics) collectWatched(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), m.cfg.Timeout)
	defer cancel()
	m.mu.Lock()
	var watched []watch
	numbers := make([]int, 0, len(m.watched))
	for n := range m.watched {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		watched = append(watched, m.watched[n])
	}
	m.mu.Unlock()
	var looks []*look
	for _, w := range watched {
		list, err := w(ctx)
		if err != nil {
			ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, 0, "", "")
			continue
		}
		looks = append(looks, list...)
	}
	next := make(chan *look)
	var lookers sync.WaitGroup
	for range min(sideBySide, len(looks)) {
		lookers.Go(func() { // ends when next is closed
			for l := range next {
				l.collect(ctx, m.cfg.MaxAge, ch)
			}
		})
	}
	for _, l := range looks {
		next <- l
	}
	close(next)
	lookers.Wait()
}
