package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

const (
	samples      = 10   // of the long load
	window       = 3    // samples: the first one is left out, the next ones are compared with the last ones
	mostGrowth   = 1.5  // of the reads per message, between the two
	mostCompiled = 0.01 // batches per message that are compiled
	outstanding  = 5000 // messages that are sent and not acked, in the long load
	articlesMost = 2000 // messages of the articles' statements, which take one at a time
)

// perMessage explains the tables of counters.
const perMessage = "Per message, of the whole server: reads of pages, locks that were requested, waits, bytes of the log, ghosts that were passed, batches, and " +
	"batches that were compiled. Versions are the size of the version store. A dash is a counter that the server does not show."

// stalled is how long a load waits for a message.
const stalled = time.Minute

// consumersOf are the numbers of consumers of a pipeline.
var consumersOf = []int{1, 4, 16, 40}

// load is part 7: chanq compared with other statements on the same server, pipelines with more and more consumers, and a load over minutes
// during which the reads per message must not grow.
func load(ctx context.Context, h *hour) error {
	measure := func(d *database, what string, figure func(context.Context, *database) error) {
		h.report.say("  %s, in %s", what, d.name)
		if err := figure(ctx, d); err != nil {
			h.report.failed(d.suffix+": "+what, "it is measured to its end", err)
		}
	}
	for _, d := range h.databases {
		if d.slots > 0 {
			continue
		}
		measure(d, "other statements", h.compareStatements)
		measure(d, "consumers", h.pipelines)
		if h.quick {
			break
		}
	}
	d := h.databases[min(1, len(h.databases)-1)] // with row versions, where ghosts stay longest
	measure(d, fmt.Sprintf("load for %v", h.options.load), h.sustain)
	h.onlyQuick()
	return nil
}

// rate is a line of go run ./bench -format json.
type rate struct {
	Strategy  string  `json:"strategy"`
	Enqueue   float64 `json:"enqueue_per_s"`
	Drain     float64 `json:"drain_per_s"`
	Pipeline  float64 `json:"pipeline_per_s"`
	PerDrain  float64 `json:"drain_statements_per_message"`
	ClaimTime float64 `json:"claim_statement_us_per_message"`
	AckTime   float64 `json:"ack_statement_us_per_message"`
}

// compareStatements measures chanq, the same statements in bare loops, and the statements of articles.
func (h *hour) compareStatements(ctx context.Context, d *database) error {
	single := min(articlesMost, h.messages)
	args := []string{"run", "./bench", "-engine", "sqlserver", "-dsn", d.dsn, "-format", "json", "-rounds", "1", "-n", fmt.Sprint(h.messages), "-single-n", fmt.Sprint(single)}
	if h.quick {
		args = append(args, "-strategies", "chanq,updlock-readpast")
	}
	var rates []rate
	err := h.child(ctx, nil, func(out io.Reader) error {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var r rate
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				return fmt.Errorf("bench: %w: %s", err, brief(lines.Text()))
			}
			rates = append(rates, r)
		}
		return lines.Err()
	}, "go", args...)
	if err != nil {
		return err
	}
	table := [][]string{{"messages per second", "enqueue", "drain", "pipeline", "stmts/msg", "claim µs", "ack µs"}}
	var own, best rate
	for _, r := range rates {
		line := []string{r.Strategy}
		for _, v := range []struct {
			format string
			value  float64
		}{{"%.0f", r.Enqueue}, {"%.0f", r.Drain}, {"%.0f", r.Pipeline}, {"%.3f", r.PerDrain}, {"%.1f", r.ClaimTime}, {"%.1f", r.AckTime}} {
			line = append(line, fmt.Sprintf(v.format, v.value))
		}
		table = append(table, line)
		if r.Strategy == "chanq" {
			own = r
		} else if !strings.Contains(r.Strategy, "raw") && !strings.Contains(r.Strategy, "chanq") && r.Drain > best.Drain {
			best = r
		}
	}
	h.report.attach("Statements compared in "+d.suffix, "stmts/msg are statements per message of the drain; claim and ack are microseconds of a statement per message.", columns(table))
	h.report.judge(own.Drain > best.Drain, d.suffix+": chanq drains faster than the statements of the articles",
		fmt.Sprintf("more than %.0f/s of %s", best.Drain, best.Strategy), fmt.Sprintf("%.0f/s", own.Drain))
	return nil
}

// pipelines sends messages while consumers of one process each receive and ack them.
func (h *hour) pipelines(ctx context.Context, d *database) error {
	table := [][]string{heading("consumers")}
	counts := consumersOf
	if h.quick {
		counts = counts[:2]
	}
	for _, n := range counts {
		what := fmt.Sprintf("%s: each message is received, consumers: %d", d.suffix, n)
		var got int64
		c, err := h.count(ctx, func() (int64, error) {
			var err error
			got, err = pipeline(ctx, d, n, h.messages)
			return got, err
		})
		if err != nil {
			return fmt.Errorf("%d consumers: %w", n, err)
		}
		h.report.judge(got >= int64(h.messages), what, fmt.Sprintf("at least %d deliveries", h.messages), fmt.Sprint(got))
		table = append(table, c.line(fmt.Sprint(n)))
	}
	h.report.attach("Pipelines in "+d.suffix, perMessage, columns(table))
	return nil
}

// pipeline sends n messages through a queue with so many consumers, and returns the number of deliveries.
func pipeline(ctx context.Context, d *database, consumers, n int) (int64, error) {
	f, err := newFlow(ctx, d, consumers)
	if err != nil {
		return 0, err
	}
	body := make([]byte, 200)
	for range n {
		if err := f.send(ctx, body); err != nil {
			return 0, errors.Join(err, f.end(ctx))
		}
	}
	err = f.wait(ctx, int64(n))
	return f.received(), errors.Join(err, f.end(ctx))
}

// flow is a queue of its own with a producer and consumers, which ack what they receive.
//
// Goroutines: one per consumer, ended by end.
type flow struct {
	queue     string
	d         *database
	producer  *chanq.Producer[[]byte]
	consumers []*chanq.Consumer[[]byte]
	handling  sync.WaitGroup

	mu   sync.Mutex // guards the following fields
	got  int64
	errs []error
	more chan struct{} // closed and replaced with each message
}

const flowQueue = "load"

func newFlow(ctx context.Context, d *database, consumers int) (*flow, error) {
	cfg := chanq.Config{Dialect: chanq.DialectSQLServer}
	if err := chanq.Migrate(ctx, d.db, flowQueue, cfg); err != nil {
		return nil, err
	}
	f := &flow{queue: flowQueue, d: d, more: make(chan struct{})}
	for range consumers {
		q, err := chanq.Open[[]byte](ctx, d.db, flowQueue, cfg)
		if err != nil {
			return nil, errors.Join(err, f.end(ctx))
		}
		if f.producer == nil {
			if f.producer, err = q.Producer(ctx, chanq.ProducerConfig{}); err != nil {
				return nil, err
			}
		}
		c, err := q.Consume(context.WithoutCancel(ctx), chanq.ConsumerConfig{})
		if err != nil {
			return nil, errors.Join(err, f.end(ctx))
		}
		f.consumers = append(f.consumers, c)
		f.handling.Go(func() {
			for lease := range c.C() {
				f.note(lease.Ack())
			}
		})
	}
	return f, nil
}

func (f *flow) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got++
	if err != nil {
		f.errs = append(f.errs, err)
	}
	close(f.more)
	f.more = make(chan struct{})
}

func (f *flow) received() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got
}

func (f *flow) send(ctx context.Context, body []byte) error {
	select {
	case f.producer.C() <- chanq.Msg(body):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait waits until n messages were received. It ends if nothing is received for a minute.
func (f *flow) wait(ctx context.Context, n int64) error {
	for {
		f.mu.Lock()
		got, more := f.got, f.more
		f.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-more:
		case <-time.After(stalled):
			return fmt.Errorf("%d of %d messages were received, and none for %v", got, n, stalled)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end stores all acks, and ends everything.
func (f *flow) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if f.producer != nil {
		f.errs = append(f.errs, f.producer.Close(ctx))
	}
	for _, c := range f.consumers {
		f.errs = append(f.errs, c.Shutdown(ctx))
	}
	f.handling.Wait()
	return errors.Join(f.errs...)
}

// sustain sends and receives for the time of -load, and samples the server's counters.
func (h *hour) sustain(ctx context.Context, d *database) error {
	f, err := newFlow(ctx, d, 4)
	if err != nil {
		return err
	}
	body := make([]byte, 200)
	var sent int64
	table := [][]string{heading("after")}
	var all []counted
	for i := range samples {
		c, err := h.count(ctx, func() (int64, error) {
			before := f.received()
			for until := time.Now().Add(h.options.load / samples); time.Now().Before(until); sent++ {
				if err := f.send(ctx, body); err != nil {
					return 0, err
				}
				if err := f.wait(ctx, sent-outstanding); err != nil {
					return 0, err
				}
			}
			return f.received() - before, nil
		})
		if err != nil {
			return fmt.Errorf("the load ended early, after %d of %d samples: %w; not measured: page reads and compilations per message, ghosts", i, samples, errors.Join(err, f.end(ctx)))
		}
		all = append(all, c)
		line := c.line((h.options.load * time.Duration(i+1) / samples).String())
		table = append(table, line)
		h.report.say("    after %s: %s messages/s", line[0], line[1])
	}
	if err := errors.Join(f.wait(ctx, sent), f.end(ctx)); err != nil {
		return err
	}
	h.judgeSamples(d, all)
	h.report.attach(fmt.Sprintf("Load over %v in %s", h.options.load, d.suffix), perMessage, columns(table))
	var ghosts string
	if ghosts, err = h.fact(ctx, d.db, `SELECT CONVERT(nvarchar(20), COALESCE(SUM(ghost_record_count), 0)) FROM sys.dm_db_index_physical_stats(DB_ID(), OBJECT_ID(N'dbo.chanq_`+flowQueue+`'), NULL, NULL, 'DETAILED')`); err != nil {
		h.report.skip(d.suffix+": ghosts in the table when it is empty", err)
		return nil
	}
	h.report.note(d.suffix+": ghosts in the table when it is empty", ghosts)
	return nil
}

// judgeSamples compares what a message cost at the beginning of the long load and at its end.
func (h *hour) judgeSamples(d *database, all []counted) {
	first, last := sum(all[1:1+window]), sum(all[samples-window:])
	judge := func(counter, what string, most float64, found string) {
		what = fmt.Sprintf("%s: %s per message over %v", d.suffix, what, h.options.load)
		if err := cmp.Or(first.lacks(counter), last.lacks(counter)); err != nil {
			h.report.skip(what, err)
			return
		}
		h.report.judge(last.per(counter) <= most, what, fmt.Sprintf("at most %.2f", most), found)
	}
	early, late := first.per(pageReads), last.per(pageReads)
	judge(pageReads, "page reads", early*mostGrowth, fmt.Sprintf("%.1f, then %.1f", early, late))
	judge(compilations, "compiled batches", mostCompiled, fmt.Sprintf("%.3f", last.per(compilations)))
}
