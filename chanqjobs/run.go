package chanqjobs

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"

	"github.com/chanq/chanq"
)

// Part is a part of a program that works until ctx is cancelled.
type Part func(ctx context.Context) error

// Work returns a Part that handles the messages of a queue: see Consumer.Handle.
func Work[T any](q *chanq.Queue[T], workers int, fn chanq.Handler[T], cfg chanq.ConsumerConfig) Part {
	return func(ctx context.Context) error {
		c, err := q.Consume(ctx, cfg)
		if err != nil {
			return err
		}
		return c.Handle(workers, fn)
	}
}

// Run runs parts, each in a goroutine, and returns when all have returned, with all of their errors. If ctx is cancelled, or a part returns an
// error or panics, it cancels the contexts of all parts. A part that returns nil ends no other one. What a part returns because its context
// was cancelled, ctx.Err() or the cause, is not an error.
//
// Signals are up to you: pass a context of signal.NotifyContext.
func Run(ctx context.Context, parts ...Part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() {
			err := errors.New("a part left by runtime.Goexit, as t.FailNow does") // unless it returns
			defer func() {
				if p := recover(); p != nil {
					err = panicked(p)
				}
				if err != nil && !cancelled(ctx, err) {
					errs[i] = err
					cancel(err)
				}
			}()
			err = part(ctx)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// cancelled reports whether an error is what a part returns because its context was cancelled.
func cancelled(ctx context.Context, err error) bool {
	return reflect.TypeOf(err).Comparable() && (err == ctx.Err() || err == context.Cause(ctx))
}

// panicked returns a panic as an error, with the stack. Call it where the panic was recovered.
func panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }
