package chanqjobs

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// Mux calls a handler by the kind of a job. Register all handlers before you use it; then it is safe for concurrent use. Pass Handle to
// Consumer.Handle, or Step to chanq.Pipe, or run Split.
type Mux struct {
	// Unknown handles jobs of kinds that are not registered. NewMux sets UnknownWaits(time.Hour).
	Unknown chanq.Handler[Job]

	routes map[string]*route // by the name of the kind
}

// NewMux returns a Mux without kinds.
func NewMux() *Mux { return &Mux{Unknown: UnknownWaits(time.Hour), routes: map[string]*route{}} }

// Options of a kind in a Mux. All default to what the queue and its consumer do.
type Options struct {
	// Timeout of one call. It cancels the context, and the error then names the kind and the limit. Default: none.
	Timeout time.Duration
	// MaxAttempts is how many failed attempts dead-letter a job of this kind, with CauseExhausted. Range: up to Spec.MaxAttempts, which
	// applies as well. Default: that.
	MaxAttempts int
	// Backoff returns the delay until the next attempt, as ConsumerConfig.Backoff does. A panic of a handler is an error for it.
	// Default: ConsumerConfig.Backoff.
	Backoff func(d *chanq.Delivery, err error) time.Duration
	// Keep is how long a result is kept, for kinds of Returns. Default: 1 h.
	Keep time.Duration
}

// route is what a Mux does with a kind.
type route struct {
	Options
	place string // where it was registered
	late  error  // of a call that took longer than Timeout
	// call handles a job. Outputs are appended to out, which is nil if there can be none.
	call func(ctx context.Context, l *chanq.Lease[Job], out *[]chanq.Message[Job]) error
	// Of a channel: pass sends the job on it, unless ended is closed first.
	pass  func(l *chanq.Lease[Job], ended <-chan struct{}) error
	close func()
}

// Handle registers the handler of a kind. It panics if the kind has one.
func Handle[T any](m *Mux, k *Kind[T], fn chanq.Handler[T], o Options) {
	m.add(k.name, fn == nil, &route{Options: o, call: func(ctx context.Context, l *chanq.Lease[Job], _ *[]chanq.Message[Job]) error {
		opened, err := k.Open(l)
		if err != nil {
			return err
		}
		return fn(ctx, opened)
	}})
}

// HandleTo registers a handler with outputs, for chanq.Pipe and Mux.Step.
func HandleTo[T any](m *Mux, k *Kind[T], fn func(context.Context, *chanq.Lease[T]) ([]chanq.Message[Job], error), o Options) {
	m.add(k.name, fn == nil, &route{Options: o, call: func(ctx context.Context, l *chanq.Lease[Job], out *[]chanq.Message[Job]) error {
		if out == nil {
			return fmt.Errorf("chanqjobs: the kind %q has outputs (HandleTo): use Mux.Step with chanq.Pipe", k.name)
		}
		opened, err := k.Open(l)
		if err != nil {
			return err
		}
		*out, err = fn(ctx, opened)
		return err
	}})
}

// Upgrade registers an old kind whose jobs are converted, and then handled as jobs of a new kind by fn. Register the new kind as well. A job
// that convert refuses is dead-lettered with CauseUndecodable. Deploy readers of the new kind before you send it.
func Upgrade[Old, New any](m *Mux, from *Kind[Old], to *Kind[New], convert func(Old) (New, error), fn chanq.Handler[New], o Options) {
	handler := func(ctx context.Context, l *chanq.Lease[Old]) error {
		body, err := convert(l.Body)
		if err != nil {
			return chanq.DeadLetterAs(chanq.CauseUndecodable, fmt.Errorf("from %q to %q: %w", from.name, to.name, err))
		}
		converted := &chanq.Lease[New]{Delivery: l.Delivery, Body: body}
		converted.Type = to.name
		return fn(ctx, converted)
	}
	if convert == nil || fn == nil {
		handler = nil
	}
	Handle(m, from, handler, o)
}

func (m *Mux) add(name string, none bool, r *route) {
	wrong := func(format string, args ...any) {
		panic(fmt.Sprintf("chanqjobs: kind %q: ", name) + fmt.Sprintf(format, args...))
	}
	switch earlier := m.routes[name]; {
	case none:
		wrong("the function is nil")
	case r.Timeout < 0:
		wrong("Options.Timeout is %v: must not be negative", r.Timeout)
	case r.MaxAttempts < 0:
		wrong("Options.MaxAttempts is %d: must not be negative", r.MaxAttempts)
	case earlier != nil:
		wrong("it is registered at %s, and again at %s", earlier.place, caller())
	}
	r.place, r.late = caller(), fmt.Errorf("the kind %q took longer than its Options.Timeout of %v", name, r.Timeout)
	m.routes[name] = r
}

// caller returns the file and line that called this package.
func caller() string {
	pcs := make([]uintptr, 8)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if !more || !strings.Contains(f.Function, "/chanqjobs.") {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}

// Handle handles a job of any kind. Pass it to Consumer.Handle.
func (m *Mux) Handle(ctx context.Context, l *chanq.Lease[Job]) error {
	if r := m.routes[l.Type]; r != nil {
		return r.handle(ctx, l, nil)
	}
	return m.Unknown(ctx, l)
}

// Step handles a job of any kind, and returns its outputs. Pass it to chanq.Pipe. Kinds of Handle have no outputs.
func (m *Mux) Step(ctx context.Context, l *chanq.Lease[Job]) (out []chanq.Message[Job], err error) {
	if r := m.routes[l.Type]; r != nil {
		err = r.handle(ctx, l, &out)
		return out, err
	}
	return nil, m.Unknown(ctx, l)
}

func (r *route) handle(ctx context.Context, l *chanq.Lease[Job], out *[]chanq.Message[Job]) error {
	if r.Timeout == 0 && r.MaxAttempts == 0 && r.Backoff == nil {
		return r.call(ctx, l, out)
	}
	return r.handleWithin(ctx, l, out)
}

// handleWithin handles a job of a kind with Options.
func (r *route) handleWithin(ctx context.Context, l *chanq.Lease[Job], out *[]chanq.Message[Job]) (err error) {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, r.late)
		defer cancel()
	}
	defer func() {
		if p := recover(); p != nil { // its attempt counts, so it must be an error here
			err = panicked(p)
		}
		if err != nil {
			err = r.outcome(ctx, &l.Delivery, err)
		}
	}()
	return r.call(ctx, l, out)
}

// outcome returns the error that settles a job whose handler returned err.
func (r *route) outcome(ctx context.Context, d *chanq.Delivery, err error) error {
	if context.Cause(ctx) == r.late {
		err = fmt.Errorf("%w: %w", r.late, err)
	}
	o := chanq.Outcome(err)
	switch {
	case retries(o) && r.MaxAttempts > 0 && d.Failures()+1 >= r.MaxAttempts:
		return chanq.DeadLetterAs(chanq.CauseExhausted, err)
	case o.Kind == chanq.OutcomeRetry && r.Backoff != nil:
		if delay := r.Backoff(d, err); delay >= 0 { // otherwise the consumer decides
			return chanq.RetryAfter(delay, err)
		}
	}
	return err
}

// retries reports whether an outcome is a failed attempt, after which there might be another one.
func retries(o chanq.HandlerOutcome) bool {
	return o.Kind == chanq.OutcomeRetry || o.Kind == chanq.OutcomeRetryAfter
}
