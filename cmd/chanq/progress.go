package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows the progress of a long command on stderr: as a bar on a terminal, as occasional
// lines in a log.
type progress struct {
	out   io.Writer
	every time.Duration // between lines
	unit  string        // the counted unit, in the plural

	bar *progressbar.ProgressBar // nil in a log

	what    string
	total   int // 0: unknown
	before  int // steps done before Start
	started time.Time
	done    atomic.Int64
	stop    chan struct{}  // ends the goroutine that prints lines
	lines   sync.WaitGroup // joins it
}

func (a *app) progress(unit string, every time.Duration) *progress {
	return &progress{out: a.err, unit: unit, every: every}
}

// Start begins a part of total steps (0: unknown), of which done are already done. End must follow.
func (p *progress) Start(what string, done, total int) {
	p.what, p.total, p.before, p.started = what, total, done, time.Now()
	p.done.Store(int64(done))
	if isTerminal(p.out) {
		p.startBar()
		return
	}
	p.stop = make(chan struct{})
	p.lines.Go(p.printLines)
}

func (p *progress) startBar() {
	steps := p.total
	if steps == 0 {
		steps = -1 // unknown
	}
	p.bar = progressbar.NewOptions(steps,
		progressbar.OptionSetSpinnerChangeInterval(0), // its goroutine would outlive the bar
		progressbar.OptionSetItsString(p.unit),
		progressbar.OptionSetWriter(p.out),
		progressbar.OptionSetDescription(p.what),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionThrottle(65*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetPredictTime(p.total > 0),
	)
	_ = p.bar.Set(p.before) // the bar can fail only when writing
}

// Add counts n steps. Several goroutines may call it.
func (p *progress) Add(n int) {
	p.done.Add(int64(n))
	if p.bar != nil {
		_ = p.bar.Add(n)
	}
}

// End shows the last state.
func (p *progress) End() {
	if p.bar != nil {
		_ = p.bar.Exit() // leaves the bar where it is
		fmt.Fprintln(p.out)
		p.bar = nil
		return
	}
	close(p.stop)
	p.lines.Wait()
	p.line()
}

func (p *progress) printLines() {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.line()
		case <-p.stop:
			return
		}
	}
}

func (p *progress) line() {
	done := int(p.done.Load())
	rate := float64(done-p.before) / max(time.Since(p.started).Seconds(), 1e-3)
	if p.total > 0 {
		fmt.Fprintf(p.out, "%s: %d of %d (%.0f %s/s)\n", p.what, done, p.total, rate, p.unit)
	} else {
		fmt.Fprintf(p.out, "%s: %d (%.0f %s/s)\n", p.what, done, rate, p.unit)
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
