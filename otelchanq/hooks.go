package otelchanq

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/chanq/chanq"
)

// task is a maintenance task of the consumers of a queue.
type task struct{ queue, name string }

// begun is the state of the hooks.
type begun struct {
	sending, consuming sync.Map // queues whose counters have begun

	mu       sync.Mutex // guards the fields below
	refusals map[task]int
}

// Hooks returns hooks that measure the operations of chanq. Combine them with other hooks by chanq.JoinHooks. Counters of
// failures and of settles begin at 0, with the first Sent of a queue or the first claim.
func (t *Telemetry) Hooks() chanq.Hooks {
	ctx := context.Background() // without a span, because a statement is for many messages
	took := func(queue, name string, kind messagingconv.OperationTypeAttr, d time.Duration) {
		if d == 0 { // the caller ran the statement
			return
		}
		t.operation.Record(ctx, d.Seconds(), name, system, append(where(queue), t.operation.AttrOperationType(kind))...)
	}
	return chanq.Hooks{
		Sent: func(e chanq.SentEvent) {
			t.beginSending(e.Queue)
			t.countSent(e.Queue, e.Messages, e.Duplicates)
			if e.Attempted > 0 {
				t.attempted.Add(ctx, int64(e.Attempted), queueAttributes(e.Queue))
			}
			took(e.Queue, "send", messagingconv.OperationTypeSend, e.Took)
		},
		Claimed: func(e chanq.ClaimedEvent) {
			t.beginConsuming(e.Queue)
			t.consumed.Add(ctx, int64(e.Messages), "claim", system, where(e.Queue)...)
			took(e.Queue, "claim", messagingconv.OperationTypeReceive, e.Took)
		},
		Settled: func(e chanq.SettledEvent) {
			for outcome, n := range map[string]int{"acked": e.Acked, "nacked": e.Nacked, "released": e.Released, "dead": e.Dead, "attempted": e.Attempted} {
				if n > 0 {
					t.settled.Add(ctx, int64(n), queueAttributes(e.Queue, outcomeKey.String(outcome)))
				}
			}
			took(e.Queue, "settle", messagingconv.OperationTypeSettle, e.Took)
		},
		LeaseLost: func(e chanq.LeaseLostEvent) {
			t.lost.Add(ctx, 1, queueAttributes(e.Queue, confirmedKey.Bool(e.Confirmed)))
		},
		Handled: func(e chanq.HandledEvent) {
			if e.Failed() {
				t.failed.Add(ctx, 1, queueAttributes(e.Queue))
			}
		},
		Availability: func(e chanq.AvailabilityEvent) {
			part := queueAttributes(e.Queue, partKey.String(e.Part))
			if e.Up {
				if !e.Ended { // otherwise the outage might last longer
					t.down.Record(ctx, e.Down.Seconds(), part)
				}
				t.inOutage.Add(ctx, -1, part)
			} else {
				t.outages.Add(ctx, 1, part)
				t.inOutage.Add(ctx, 1, part)
			}
		},
		Isolated: func(e chanq.IsolatedEvent) {
			t.isolated.Add(ctx, int64(e.Change), queueAttributes(e.Queue, partKey.String(e.Part)))
		},
		Housekeeping: t.housekeeping,
	}
}

// housekeeping counts the consumers whose task is refused: the task of a queue counts as refused until no consumer is
// left whose task is refused.
func (t *Telemetry) housekeeping(e chanq.HousekeepingEvent) {
	at := task{e.Queue, e.Task}
	t.begun.mu.Lock()
	defer t.begun.mu.Unlock()
	if e.Err != nil {
		t.begun.refusals[at]++
	} else if t.begun.refusals[at]--; t.begun.refusals[at] <= 0 {
		delete(t.begun.refusals, at)
	}
	refused := int64(0)
	if t.begun.refusals[at] > 0 {
		refused = 1
	}
	t.refused.Record(context.Background(), refused, queueAttributes(e.Queue, taskKey.String(e.Task)))
}

// beginSending starts the counters of failures of sends at 0.
func (t *Telemetry) beginSending(queue string) {
	if _, known := t.begun.sending.LoadOrStore(queue, true); known {
		return
	}
	ctx := context.Background()
	t.duplicates.Add(ctx, 0, queueAttributes(queue))
	t.outages.Add(ctx, 0, queueAttributes(queue, partKey.String("producer")))
}

// beginConsuming starts the counters of settles and of failures of consumers at 0.
func (t *Telemetry) beginConsuming(queue string) {
	if _, known := t.begun.consuming.LoadOrStore(queue, true); known {
		return
	}
	ctx := context.Background()
	for _, outcome := range []string{"acked", "nacked", "released", "dead"} {
		t.settled.Add(ctx, 0, queueAttributes(queue, outcomeKey.String(outcome)))
	}
	for _, confirmed := range []bool{true, false} {
		t.lost.Add(ctx, 0, queueAttributes(queue, confirmedKey.Bool(confirmed)))
	}
	t.failed.Add(ctx, 0, queueAttributes(queue))
	t.outages.Add(ctx, 0, queueAttributes(queue, partKey.String("consumer")))
}
