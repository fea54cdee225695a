package chanqtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chanq/chanq"
)

// Outcome is what became of one call of a handler.
type Outcome struct {
	chanq.HandlerOutcome
	Err     error // of the handler
	ID      chanq.ID
	Type    string // the kind of a job
	Key     string
	Attempt int
}

// String returns one line, for example: welcome, attempt 2: retry: no such host
func (o Outcome) String() string {
	var text strings.Builder
	if o.Type != "" {
		text.WriteString(o.Type + ", ")
	}
	if o.Key != "" {
		fmt.Fprintf(&text, "key %q, ", o.Key)
	}
	fmt.Fprintf(&text, "attempt %d: %s", o.Attempt, o.Kind)
	if o.Delay > 0 {
		fmt.Fprintf(&text, " %v", o.Delay)
	}
	if o.Err != nil {
		text.WriteString(": " + o.Reason)
	}
	return text.String()
}

// Work handles what is due in a queue, one message after the other, and returns the outcomes in the order of the calls. The handler can
// settle by AckTx. Scheduled messages, and those that wait for a retry, stay. For jobs of several kinds pass Mux.Handle.
func Work[T any](t testing.TB, q *chanq.Queue[T], fn chanq.Handler[T]) []Outcome {
	t.Helper()
	d := databaseWith(t, "Work", q.Names())
	var mu sync.Mutex
	var outcomes []Outcome
	handler := func(ctx context.Context, l *chanq.Lease[T]) (err error) {
		returned := false
		defer func() {
			p := recover()
			if p != nil {
				err = fmt.Errorf("panic: %v", p)
			} else if !returned {
				err = errors.New("the handler left by runtime.Goexit, as t.FailNow does")
			}
			mu.Lock()
			outcomes = append(outcomes, Outcome{chanq.Outcome(err), err, l.ID, l.Type, l.Key, l.Attempt})
			mu.Unlock()
			if p != nil {
				panic(p)
			}
		}()
		err = fn(ctx, l)
		returned = true
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	d.work(end)
	c, err := q.Consume(ctx, chanq.ConsumerConfig{Name: "chanqtest.Work", Prefetch: 1, StopWhenIdle: true})
	if err == nil {
		err = c.Handle(1, handler)
	}
	if died := d.rest(); err != nil && !died {
		t.Fatalf("chanqtest: Work: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	return outcomes
}
