// Package chanqprom exports metrics of chanq to Prometheus.
//
//	metrics := chanqprom.New(chanqprom.Config{})
//	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Hooks: metrics.Hooks()})
//	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
//	defer metrics.Watch(admin)()
//	http.Handle("/metrics", metrics.Handler())
//
// A Metrics is a prometheus.Collector for the registry of a program. Handler serves a registry that has no other metrics. There are two
// kinds of metrics. The metrics of this program's activity come from the hooks and make no database call:
//
//	chanq_sent_messages_total         counter    stored by producers and pipes, and by SendTx after the commit of InTx
//	chanq_attempted_messages_total    counter    sent by SendTx in other transactions, committed or not
//	chanq_duplicate_messages_total    counter    not stored, because of their DedupKey
//	chanq_delivered_messages_total    counter    claimed
//	chanq_settled_messages_total      counter    by outcome: acked, nacked, released, dead (dead-lettered), attempted (by AckTx in other transactions)
//	chanq_leases_lost_total           counter    leases that ended before their message was settled
//	chanq_handler_errors_total        counter    errors and panics of Handle and Pipe, without Snooze
//	chanq_outages_total               counter    by part: times that the database stopped answering
//	chanq_parts_in_outage             gauge      by part: producers and consumers that the database does not answer now
//	chanq_isolated                    gauge      by part: messages and settles that fail while others are stored, and are repeated separately
//	chanq_housekeeping_refused        gauge      by task: 1 while the database refuses the task
//	chanq_statement_duration_seconds  histogram  by operation: send, claim, settle
//	chanq_handler_seconds             histogram  calls of handlers
//	chanq_wait_seconds                histogram  from due until the handler is called
//
// The metrics of the content of queues are read from the database when metrics are collected, for the queues of Watch and WatchAll. This
// costs five to ten round trips per queue (chanqfindings.Look), at most once per Config.MaxAge. One program that does this is enough:
//
//	chanq_messages                    gauge      by state: ready, scheduled, leased, dead, done; up to 10,000
//	chanq_oldest_ready_seconds        gauge      for how long the oldest ready message has been due
//	chanq_paused                      gauge      1 or 0
//	chanq_consumers                   gauge      consumers, of all programs
//	chanq_up                          gauge      1, or 0 if the queue could not be read; then the others are missing, except those of findings
//	chanq_finding                     gauge      by kind: 1 while something is wrong with the queue, or 0: see package chanqfindings
//	chanq_finding_info                gauge      1 for each finding, with its severity and, in the label text, its sentence
//
// All have the label queue: chanq.Config.Label, or the name of the queue. Package chanqshards labels each shard of a queue over several
// databases, for example "orders/east": pass to Watch the result of chanqshards.Queue.Admin for each shard. If WatchAll cannot read the
// list of queues, chanq_up is 0 with queue "", and it reads those of the last list. Config.Log receives the error, once per change. The metrics do not contain it, because
// database errors contain names of hosts and users.
//
// The sentence of a finding is the one at its beginning, renewed after 1, 2, 4, 8 … minutes: each other text is another series. It can
// contain names of programs and consumers, and errors of handlers without bodies.
//
// Neither an unavailable database nor two queues with the same label make a collection fail: the figures are those of the first watched
// queue that answers. For several databases whose queues have the same names use one Metrics per database, with labels that distinguish
// them (prometheus.WrapRegistererWith). Package otelchanq exports the same figures to OpenTelemetry.
package chanqprom

import (
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/chanq/chanq/chanqfindings"
)

// Config configures a Metrics. The zero value suits most programs.
type Config struct {
	// MaxAge is the age up to which collections share the values read for a watched queue. Default: 5 s.
	MaxAge time.Duration
	// Timeout is how long a collection waits for the database. Keep it below the timeout of the scrape, by default 10 s. Default: 5 s. A
	// value below 1 ms counts as 1 ms.
	Timeout time.Duration
	// Buckets are those of the histograms, in seconds. Default: from 1 ms to 30 s; of chanq_handler_seconds and chanq_wait_seconds to 1 h.
	Buckets []float64
	// Limits are when a queue is in trouble, for chanq_finding.
	Limits chanqfindings.Limits
	// Log receives the errors of reads of watched queues, once per change. Default: slog.Default().
	Log *slog.Logger
}

// Metrics has the metrics of the queues of a program. It is safe for concurrent use. It has no goroutines except
// during a collection.
type Metrics struct {
	cfg Config

	sent, attempted, duplicates, delivered, settled, lost, failed, outages *prometheus.CounterVec
	inOutage, isolated, refused                                            *prometheus.GaugeVec
	took, handler, wait                                                    *prometheus.HistogramVec

	hooked             atomic.Bool // Hooks was called
	sending, consuming sync.Map    // queues whose counters have begun

	mu       sync.Mutex // guards the fields below
	refusals map[task]int
	watched  map[int]watch
	next     int             // number of the next watch
	unseen   map[string]bool // queues that cannot be read, which was logged
}

var _ prometheus.Collector = (*Metrics)(nil)

// New returns a Metrics without queues.
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
	long := cfg.Buckets
	if cfg.Buckets == nil {
		cfg.Buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
		long = append(slices.Clip(cfg.Buckets), 60, 300, 900, 3600)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, append([]string{"queue"}, labels...))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"queue"}, labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"queue"}, labels...))
	}
	return &Metrics{
		cfg:        cfg,
		sent:       counter("chanq_sent_messages_total", "Messages stored by this program; in a transaction of InTx counted after the commit."),
		attempted:  counter("chanq_attempted_messages_total", "Messages that SendTx has sent in other transactions, committed or not."),
		duplicates: counter("chanq_duplicate_messages_total", "Messages that met one with their dedup key in the queue, and left or replaced it."),
		delivered:  counter("chanq_delivered_messages_total", "Messages claimed by consumers of this program."),
		settled:    counter("chanq_settled_messages_total", "Messages whose settle is stored. The outcome dead means dead-lettered, attempted acked by AckTx in other transactions, committed or not.", "outcome"),
		lost:       counter("chanq_leases_lost_total", "Leases that ended before their message was settled."),
		failed:     counter("chanq_handler_errors_total", "Errors and panics of handlers."),
		outages:    counter("chanq_outages_total", "Times that the database stopped answering a producer or consumer.", "part"),
		inOutage:   gauge("chanq_parts_in_outage", "Producers and consumers of this program that are in an outage: the database does not answer.", "part"),
		isolated:   gauge("chanq_isolated", "Messages and settles of this program that fail while the database stores others.", "part"),
		refused:    gauge("chanq_housekeeping_refused", "1 while the database refuses a maintenance task of a consumer.", "task"),
		took:       histogram("chanq_statement_duration_seconds", "Duration of statements. One statement is for many messages.", cfg.Buckets, "operation"),
		handler:    histogram("chanq_handler_seconds", "Duration of handler calls.", long),
		wait:       histogram("chanq_wait_seconds", "Time from when a message was due until its handler was called.", long),
		watched:    map[int]watch{}, refusals: map[task]int{}, unseen: map[string]bool{},
	}
}

// own returns the collectors of this program's activity.
func (m *Metrics) own() []prometheus.Collector {
	return []prometheus.Collector{m.sent, m.attempted, m.duplicates, m.delivered, m.settled, m.lost, m.failed, m.outages, m.inOutage, m.isolated, m.refused, m.took, m.handler, m.wait}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.own() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{messagesDesc, estimateDesc, oldestDesc, pausedDesc, consumersDesc, upDesc, findingDesc, textDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It reads the watched queues concurrently, except for those that were read within Config.MaxAge,
// in at most Config.Timeout.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.collectWatched(ch) // first, because counters may begin with it
	for _, c := range m.own() {
		c.Collect(ch)
	}
}

// Handler serves these metrics, and no others, in the format that the client requests.
func (m *Metrics) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m) // the only collector
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(m.cfg.Log.Handler(), slog.LevelWarn)})
}
