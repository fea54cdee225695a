package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
)

// suiteRow is a row of the suite's table: one phase of one strategy, how the strategy does it, and
// what it leaves out of what chanq does.
type suiteRow struct {
	phase, strategy string
	engines         []string
	how, without    string
}

// The phases of the suite. A hand-over is the drain of a strategy that moves messages to another queue.
const (
	enqueuePhase  = "enqueue"
	drainPhase    = "drain"
	pipelinePhase = "pipeline"
	handOverPhase = "hand-over"
)

// suiteRows are in the order of the table. Each phase begins with chanq.
var suiteRows = slices.Concat([]suiteRow{
	{enqueuePhase, "chanq", allEngines, "Producer.C", "–"},
	{enqueuePhase, "raw", []string{"sqlite"}, "chanq's INSERT on one connection", bareSender},
	{enqueuePhase, "raw", servers, "chanq's INSERT on two connections", "the order; " + bareSender},
	{enqueuePhase, "best", []string{"sqlite"}, "an INSERT with bound parameters", onlyBodies + "; " + bareSender},
	{enqueuePhase, "best", []string{"postgres"}, "pipelined on one connection", onlyBodies + "; " + bareSender},
	{enqueuePhase, "limit", []string{"postgres"}, "COPY", onlyBodies + "; the database's clock; " + bareSender},
}, articleRows(enqueuePhase), []suiteRow{
	{drainPhase, "chanq", allEngines, "Consumer.C, Ack", "–"},
	{drainPhase, "raw", allEngines, "chanq's statements on one connection", bareReceiver},
	{drainPhase, "raw-3conn", servers, "the same; another connection acks", bareReceiver},
	{drainPhase, "best", []string{"sqlite", "postgres"}, "a leased range, no UPDATE per message", rangeReceiver},
	{drainPhase, "limit", []string{"postgres"}, "DELETE … RETURNING", "the lease: a crash loses messages; retries"},
}, articleRows(drainPhase), []suiteRow{
	{pipelinePhase, "chanq", allEngines, "both, concurrently", "–"},
	{pipelinePhase, "raw", allEngines, "both in turn on one connection", bareReceiver},
	{pipelinePhase, "raw-3conn", servers, "both, concurrently", bareReceiver},
	{pipelinePhase, "best", []string{"sqlite", "postgres"}, "both, concurrently", "as above"},
	{pipelinePhase, "limit", []string{"postgres"}, "both, concurrently", "as above"},
	{handOverPhase, "chanq-pipe", allEngines, "chanq.Pipe to a second queue", "–"},
	{handOverPhase, "raw-pipe", allEngines, "chanq's statements, in one transaction per batch", bareReceiver},
})

// What the loops leave out.
const (
	bareSender    = "channels, waiting for a full batch, unknown outcomes"
	onlyBodies    = "all fields but ID and body"
	bareReceiver  = "channels, extension of leases, retries, stopping"
	rangeReceiver = "other consumers, fences, attempts, priorities, late commits; " + bareReceiver
)

func articleRows(phase string) []suiteRow {
	rows := make([]suiteRow, len(articles))
	for i, a := range articles {
		rows[i] = suiteRow{phase, a.name, []string{"sqlserver"}, "the method of an article", a.without}
		if phase == enqueuePhase {
			rows[i].how, rows[i].without = "INSERT of one message", "batches; all fields but the body"
		}
	}
	return rows
}

// suiteStrategies returns the names of the strategies that have a row for this engine.
func suiteStrategies(engine string) (names []string) {
	for _, name := range strategiesOf(engine) {
		if slices.ContainsFunc(suiteRowsOf(engine), func(row suiteRow) bool { return row.strategy == name }) {
			names = append(names, name)
		}
	}
	return names
}

func suiteRowsOf(engine string) (rows []suiteRow) {
	for _, row := range suiteRows {
		if slices.Contains(row.engines, engine) {
			rows = append(rows, row)
		}
	}
	return rows
}

func (o *options) declareSuite(f *flag.FlagSet) {
	f.IntVar(&o.n, "n", 100_000, "messages")
	f.IntVar(&o.single, "single-n", 1_000, "at most this many messages for the articles' methods, which are slow")
	f.DurationVar(&o.suiteFor, "for", 14*time.Minute, "the longest time; what is done by then is the result")
	o.articleBatch = 1
}

// measureSuite is measureThroughput within a time. When that is over, or the program is interrupted,
// what is done is the result.
func measureSuite(ctx context.Context, o options, report func(measure.Result)) error {
	ctx, cancel := context.WithTimeout(ctx, o.suiteFor)
	defer cancel()
	done := 0
	err := measureThroughput(ctx, o, func(r measure.Result) {
		done++
		report(r)
	})
	if ctx.Err() != nil && done > 0 {
		return nil
	}
	return err
}

func writeSuiteHead(w io.Writer, o options) error {
	_, err := fmt.Fprintf(w, "%s: %s; %d rounds after a short one, at most %v; Ctrl-C shows what is done\n",
		o.engine, strings.Join(o.strategies, ", "), o.rounds, o.suiteFor)
	return err
}

func writeSuiteLine(w io.Writer, r measure.Result) error {
	_, err := fmt.Fprintf(w, "round %d, %s: enqueue %s/s, drain %s/s, pipeline %s/s\n",
		r.Round, r.Strategy, measure.Short(r.EnqueuePerS), measure.Short(r.DrainPerS), measure.Short(r.PipelinePerS))
	return err
}

func writeSuite(w io.Writer, o options, results []measure.Result) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return measure.WriteTables(w, suiteTable(o, results))
}

// phaseFigures are the figures of a phase: messages per second, and the CPU time of this process and
// of the server.
var phaseFigures = map[string][3]measure.Figure{
	enqueuePhase:  {enqueueRate, enqueueCPU, func(r measure.Result) float64 { return r.EnqueueServerCPU }},
	drainPhase:    {drainRate, drainCPU, func(r measure.Result) float64 { return r.DrainServerCPU }},
	pipelinePhase: {pipelineRate, func(r measure.Result) float64 { return r.PipelineCPU }, func(r measure.Result) float64 { return r.PipelineServerCPU }},
	handOverPhase: {drainRate, drainCPU, func(r measure.Result) float64 { return r.DrainServerCPU }},
}

// suiteTable shows the medians of the rounds, and the medians of the rounds' ratios to chanq.
func suiteTable(o options, results []measure.Result) measure.Table {
	first := results[0]
	t := measure.Table{
		Title: fmt.Sprintf("%s, body %d B, %d messages in batches of %d, rounds %d of %d; %s/%s, GOMAXPROCS %d, %s; %s", o.engine, o.body, o.n, o.batch,
			rounds(results), o.rounds, first.GOOS, first.GOARCH, first.GOMAXPROCS, first.GoVersion, strings.Split(first.Server, "\n")[0]),
		Head: []string{"phase", "strategy", "how", "messages/s", "/ chanq", "CPU µs/msg, client + server", "/ chanq", "leaves out"},
	}
	by := map[string][]measure.Result{}
	for _, g := range byStrategy(results) {
		by[g.Key] = g.Results
	}
	var ours []measure.Result // of the phase
	phase := ""
	for _, row := range suiteRowsOf(o.engine) {
		rs, figures := by[row.strategy], phaseFigures[row.phase]
		if row.phase != phase {
			phase, ours = row.phase, rs
		}
		if len(rs) == 0 {
			continue
		}
		how := row.how
		if rs[0].N != o.n {
			how += fmt.Sprintf(", %d messages", rs[0].N)
		}
		both := func(r measure.Result) float64 { return figures[1](r) + figures[2](r) }
		cpu := fmt.Sprintf("%.1f", measure.Median(rs, figures[1]))
		if server := measure.Median(rs, figures[2]); server > 0 {
			cpu += fmt.Sprintf(" + %.1f", server)
		}
		t.Rows = append(t.Rows, []string{
			row.phase, row.strategy, how, measure.Ranged(rs, figures[0]), measure.Times(rs, ours, figures[0]), cpu, measure.Times(rs, ours, both), row.without,
		})
	}
	return t
}
