// Package chanqprom tells Prometheus what chanq does.
//
//	metrics := chanqprom.New(chanqprom.Config{})
//	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Hooks: metrics.Hooks()})
//	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
//	defer metrics.Watch(admin)()
//	http.Handle("/metrics", metrics.Handler())
//
// A Metrics is a prometheus.Collector, for a registry of the program's own; Handler serves one that
// has nothing else. What it has is of two kinds. What this program does comes from the hooks, and
// costs the database nothing:
//
//	chanq_sent_messages_total         counter    by queue: stored by producers and pipes
//	chanq_duplicate_messages_total    counter    not stored, because of their DedupKey
//	chanq_delivered_messages_total    counter    claimed
//	chanq_settled_messages_total      counter    by outcome: acked, nacked, released, dead
//	chanq_leases_lost_total           counter    leases that ended before their message was settled
//	chanq_handler_errors_total        counter    errors and panics of Handle and Pipe, Snooze left out
//	chanq_outages_total               counter    by part: times that the database stopped answering
//	chanq_parts_in_outage             gauge      by part: producers and consumers that it does not answer now
//	chanq_isolated                    gauge      by part: messages and settles that fail alone, and are repeated by themselves
//	chanq_housekeeping_refused        gauge      by task: 1 as long as the database refuses it
//	chanq_statement_duration_seconds  histogram  by operation: send, claim, settle
//
// What is in a queue is asked of the database when metrics are collected, for the queues that Watch
// or WatchAll name: two round trips each, and no more often than Config.MaxAge. One program of
// many that do it is enough:
//
//	chanq_messages                    gauge      by state: ready, scheduled, leased, dead, done; up to 10,000
//	chanq_oldest_ready_seconds        gauge      for how long the oldest ready message has been due
//	chanq_paused                      gauge      1 or 0
//	chanq_consumers                     gauge      consumers, of all programs
//	chanq_up                          gauge      1, or 0 where the database did not answer; then the others are missing
//
// All have the label queue: chanq.Config.Label, or the name of the queue. Package chanqshards labels each
// shard of a queue over several databases, for example "orders/east": give Watch what
// chanqshards.Queue.Admin returns for each. A queue whose database does not answer has chanq_up 0, and nothing else of what
// is asked. Where the list of queues of a WatchAll is not known there is chanq_up 0 with queue "". Why
// one is not seen is in Config.Log, once per change, and not in the metrics: errors of databases have
// names of hosts and users.
//
// A database that is away never makes a collection fail, nor do two queues with the same label: the figures are
// those of the queue that was watched first and answers. Programs with several
// databases whose queues have the same names have a Metrics for each, and labels to tell them apart
// (prometheus.WrapRegistererWith). The package otelchanq has the same figures for OpenTelemetry.
package chanqprom

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config says how queues are looked at. The zero value is right for most.
type Config struct {
	// MaxAge is how old what is told of a watched queue may be: several that collect share a
	// look. Default 5 s.
	MaxAge time.Duration
	// Timeout is for how long a collection waits for the database. Default 5 s: less than the
	// ten that Prometheus waits. What is less than 1 ms is 1 ms.
	Timeout time.Duration
	// Buckets of chanq_statement_duration_seconds, in seconds. Default from 1 ms to 30 s.
	Buckets []float64
	// Log is told, once per change, why a queue cannot be seen. Default slog.Default().
	Log *slog.Logger
}

// Metrics is what Prometheus is told of the queues of a program. It is safe for concurrent use. It has
// no goroutine but those of a collection that is under way.
type Metrics struct {
	cfg Config

	sent, attempted, duplicates, delivered, settled, lost, failed, outages *prometheus.CounterVec
	inOutage, isolated, refused                                            *prometheus.GaugeVec
	took                                                                   *prometheus.HistogramVec

	hooked             atomic.Bool // Hooks was called
	sending, consuming sync.Map    // places whose counters have begun

	mu       sync.Mutex // guards what follows
	refusals map[task]int
	watched  map[int]watch
	next     int             // number of the next watch
	unseen   map[string]bool // and that is in the log
}

var _ prometheus.Collector = (*Metrics)(nil)

// New makes a Metrics, of no queue yet.
func New(cfg Config) *Metrics {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 5 * time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	cfg.Timeout = max(cfg.Timeout, time.Millisecond)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Buckets == nil {
		cfg.Buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"queue"}, labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"queue"}, labels...))
	}
	return &Metrics{
		cfg:        cfg,
		sent:       counter("chanq_sent_messages_total", "Messages stored by this program, in transactions of InTx after the commit."),
		attempted:  counter("chanq_attempted_messages_total", "Messages that SendTx has sent in other transactions, committed or not."),
		duplicates: counter("chanq_duplicate_messages_total", "Messages that were not stored, because one with their dedup key was in the queue."),
		delivered:  counter("chanq_delivered_messages_total", "Messages claimed by consumers of this program."),
		settled:    counter("chanq_settled_messages_total", "Messages whose settle is in the database.", "outcome"),
		lost:       counter("chanq_leases_lost_total", "Leases that ended before their message was settled."),
		failed:     counter("chanq_handler_errors_total", "Errors and panics of handlers."),
		outages:    counter("chanq_outages_total", "Times that the database stopped answering a producer or consumer.", "part"),
		inOutage:   gauge("chanq_parts_in_outage", "Producers and consumers of this program that the database does not answer now.", "part"),
		isolated:   gauge("chanq_isolated", "Messages and settles of this program that fail while the database stores others.", "part"),
		refused:    gauge("chanq_housekeeping_refused", "1 as long as the database refuses a task of a consumer.", "task"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "chanq_statement_duration_seconds", Help: "How long statements took, each for many messages.", Buckets: cfg.Buckets,
		}, []string{"queue", "operation"}),
		watched: map[int]watch{}, refusals: map[task]int{}, unseen: map[string]bool{},
	}
}

// own are the collectors of what this program does.
func (m *Metrics) own() []prometheus.Collector {
	return []prometheus.Collector{m.sent, m.attempted, m.duplicates, m.delivered, m.settled, m.lost, m.failed, m.outages, m.inOutage, m.isolated, m.refused, m.took}
}

// Describe is prometheus.Collector's.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.own() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{messagesDesc, oldestDesc, pausedDesc, membersDesc, upDesc} {
		ch <- d
	}
}

// Collect is prometheus.Collector's. It looks at the watched queues, side by side, unless that was
// done within Config.MaxAge, and takes no longer than Config.Timeout for it.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.collectWatched(ch) // first: counters may begin with it
	for _, c := range m.own() {
		c.Collect(ch)
	}
}

// Handler serves these metrics, and no others, in the format that the client asks for.
func (m *Metrics) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m) // the only one
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(m.cfg.Log.Handler(), slog.LevelWarn)})
}
