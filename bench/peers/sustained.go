package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
)

// sustainAll runs every system for a long time, one after another, as `bench sustained` runs chanq.
// It reads its figures from the database itself. The process that sends and receives prints its
// progress.
func (b *bench) sustainAll(ctx context.Context, out io.Writer, report func(measure.Result)) error {
	var failures []error
	for _, s := range b.options.systems {
		if b.options.format == formatTable {
			fmt.Fprintf(out, "%s: %s\n%s\n", s.name(), s.note, measure.SustainedHead)
		}
		var intervals []measure.Result
		err := b.sustain(ctx, s, func(r measure.Result) {
			intervals = append(intervals, r)
			report(r)
			if b.options.format == formatTable {
				fmt.Fprintln(out, measure.SustainedLine(r))
			}
		})
		if ctx.Err() != nil {
			return errors.Join(append(failures, context.Cause(ctx))...)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.name(), err))
			fmt.Fprintln(b.messages, "peers:", failures[len(failures)-1])
		} else if b.options.format == formatTable {
			failures = append(failures, measure.WriteSummary(out, measure.Summarise(intervals)))
		}
	}
	return errors.Join(failures...)
}

func (b *bench) sustain(ctx context.Context, s system, report func(measure.Result)) error {
	o := b.options
	return b.onStore(ctx, s, func(job peer.Job, _ phaseRun) error {
		job.Phase, job.Rate, job.Backlog = peer.Sustained, o.sustained.rate, o.sustained.backlog
		run := measure.Sustained{For: o.sustained.length, Every: o.sustained.every, Report: report, Base: measure.Here()}
		run.Base.Engine, run.Base.Strategy, run.Base.BodyBytes = s.engine, s.strategy, o.body
		run.Base.RatePerS, run.Base.Processes, run.Base.Consumers, run.Base.Command = job.Rate, 1, 1, o.command
		if s.engine == postgres {
			run.Base.Server = b.server.about
			db, err := openPostgres(job.DSN)
			if err != nil {
				return err
			}
			defer db.Close()
			run.Footprint = func(ctx context.Context) (measure.Footprint, error) {
				return measure.FootprintPostgres(ctx, db, "public")
			}
			run.Hold = func(ctx context.Context) (func() error, error) {
				db, err := openPostgres(job.DSN)
				if err != nil {
					return nil, err
				}
				return measure.HoldSnapshot(ctx, db, sql.LevelRepeatableRead, "SELECT count(*) FROM pg_class")
			}
		} else {
			run.Footprint = func(context.Context) (measure.Footprint, error) {
				return measure.FootprintSQLite(peer.SQLiteFile(job.Dir)), nil
			}
			run.Hold = func(ctx context.Context) (func() error, error) {
				db, err := sql.Open("sqlite", peer.SQLiteDSN(job.Dir))
				if err != nil {
					return nil, err
				}
				return measure.HoldStatement(ctx, db, "SELECT 1 FROM sqlite_schema")
			}
		}
		if !o.sustained.hold {
			run.Hold = nil
		}
		p, err := b.startSustained(ctx, s, job)
		if err != nil {
			return err
		}
		run.Sent, run.Received, run.Ages, run.Heap, run.Failed = p.sent.Load, p.received.Load, p.takeAges, p.takeHeap, p.failed
		run.Base.Version = p.version
		return errors.Join(run.Run(ctx), p.end())
	})
}

// sustainedProcess is a system under load in a separate process.
type sustainedProcess struct {
	command *exec.Cmd
	input   io.Closer
	said    bytes.Buffer
	ended   chan struct{} // closed when all its output has been read
	failed  chan error    // the error if it ended before it was stopped

	sent, received atomic.Int64
	version        string // known after it has begun

	mu      sync.Mutex // guards the fields below
	ages    measure.Histogram
	heap    float64
	slowest time.Duration
}

// startSustained returns when the system has begun.
func (b *bench) startSustained(ctx context.Context, s system, job peer.Job) (*sustainedProcess, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	p := &sustainedProcess{
		command: exec.CommandContext(ctx, b.programs[s.name()]), ages: measure.Histogram{},
		ended: make(chan struct{}), failed: make(chan error, 1),
	}
	p.command.Args = append(p.command.Args, s.arguments()...)
	p.command.Stderr, p.command.WaitDelay = &p.said, 10*time.Second
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.input = in
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	begun := make(chan struct{})
	go p.listen(out, begun) // ends with the process; end waits for it
	if _, err := in.Write(text); err != nil {
		return nil, errors.Join(err, p.end())
	}
	select {
	case <-begun:
		return p, nil
	case <-p.ended:
		return nil, errors.Join(errors.New("it did not begin"), p.end())
	}
}

func (p *sustainedProcess) listen(out io.Reader, begun chan<- struct{}) {
	defer close(p.ended)
	lines := json.NewDecoder(out)
	for {
		var now peer.Progress
		if lines.Decode(&now) != nil {
			p.failed <- errors.New("its process ended early")
			return
		}
		if begun != nil {
			p.version = now.Version
			close(begun)
			begun = nil
		}
		p.sent.Store(now.Sent)
		p.received.Store(now.Received)
		p.mu.Lock()
		p.ages.Merge(now.Ages)
		p.heap, p.slowest = now.Heap, max(p.slowest, now.Slowest)
		p.mu.Unlock()
	}
}

// end ends the process, and returns its error.
func (p *sustainedProcess) end() error {
	_ = p.input.Close() // fails if the process has ended, which Wait reports
	<-p.ended
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(p.said.String()))
	}
	return nil
}

func (p *sustainedProcess) takeAges() measure.Histogram {
	p.mu.Lock()
	defer p.mu.Unlock()
	ages := p.ages
	p.ages = measure.Histogram{}
	return ages
}

func (p *sustainedProcess) takeHeap() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heap
}
