package otelchanq

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/chanq/chanq"
)

// Attributes that OpenTelemetry has no name for.
const (
	outcomeKey   = attribute.Key("chanq.outcome")
	stateKey     = attribute.Key("chanq.state")
	partKey      = attribute.Key("chanq.part")      // producer or consumer
	confirmedKey = attribute.Key("chanq.confirmed") // the database reported the loss
	attemptKey   = attribute.Key("chanq.attempt")
)

type instruments struct {
	sent       messagingconv.ClientSentMessages
	consumed   messagingconv.ClientConsumedMessages
	operation  messagingconv.ClientOperationDuration
	process    messagingconv.ProcessDuration
	duplicates metric.Int64Counter
	settled    metric.Int64Counter
	lost       metric.Int64Counter
	failed     metric.Int64Counter
	outages    metric.Int64Counter
	down       metric.Float64Histogram
}

func newInstruments(m metric.Meter) (i instruments, err error) {
	var errs [10]error
	seconds := metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	i.sent, errs[0] = messagingconv.NewClientSentMessages(m)
	i.consumed, errs[1] = messagingconv.NewClientConsumedMessages(m)
	i.operation, errs[2] = messagingconv.NewClientOperationDuration(m, seconds)
	i.process, errs[3] = messagingconv.NewProcessDuration(m, seconds)
	i.duplicates, errs[4] = m.Int64Counter("chanq.sent.duplicates", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that were not stored, because one with their dedup key was in the queue."))
	i.settled, errs[5] = m.Int64Counter("chanq.settled.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages whose settle is in the database."))
	i.lost, errs[6] = m.Int64Counter("chanq.leases.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended before their message was settled."))
	i.failed, errs[7] = m.Int64Counter("chanq.handler.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Errors and panics of handlers."))
	i.outages, errs[8] = m.Int64Counter("chanq.outages", metric.WithUnit("{outage}"),
		metric.WithDescription("Times that the database stopped answering a producer or consumer."))
	i.down, errs[9] = m.Float64Histogram("chanq.outage.duration", metric.WithUnit("s"),
		metric.WithDescription("How long the database did not answer, once it does again."), seconds)
	return i, errors.Join(errs[:]...)
}

// queueAttributes are those of every measurement, and more.
func queueAttributes(queue string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, semconv.MessagingSystemKey.String(system), semconv.MessagingDestinationName(queue))...)
}

// Hooks measure what chanq does. Join them with others by chanq.JoinHooks.
func (t *Telemetry) Hooks() chanq.Hooks {
	ctx := context.Background() // of no span: a statement serves many messages
	took := func(queue, name string, kind messagingconv.OperationTypeAttr, d time.Duration) {
		t.operation.Record(ctx, d.Seconds(), name, system, t.operation.AttrDestinationName(queue), t.operation.AttrOperationType(kind))
	}
	return chanq.Hooks{
		Sent: func(e chanq.SentEvent) {
			t.countSent(e.Queue, e.Messages, e.Duplicates)
			took(e.Queue, "send", messagingconv.OperationTypeSend, e.Took)
		},
		Claimed: func(e chanq.ClaimedEvent) {
			t.consumed.Add(ctx, int64(e.Messages), "claim", system, t.consumed.AttrDestinationName(e.Queue))
			took(e.Queue, "claim", messagingconv.OperationTypeReceive, e.Took)
		},
		Settled: func(e chanq.SettledEvent) {
			for outcome, n := range map[string]int{"acked": e.Acked, "nacked": e.Nacked, "released": e.Released, "dead": e.Dead} {
				if n > 0 {
					t.settled.Add(ctx, int64(n), queueAttributes(e.Queue, outcomeKey.String(outcome)))
				}
			}
			took(e.Queue, "settle", messagingconv.OperationTypeSettle, e.Took)
		},
		LeaseLost: func(e chanq.LeaseLostEvent) {
			t.lost.Add(ctx, 1, queueAttributes(e.Queue, confirmedKey.Bool(e.Confirmed)))
		},
		Failed: func(e chanq.FailedEvent) {
			t.failed.Add(ctx, 1, queueAttributes(e.Queue))
		},
		Availability: func(e chanq.AvailabilityEvent) {
			if e.Up {
				t.down.Record(ctx, e.Down.Seconds(), queueAttributes(e.Queue, partKey.String(e.Part)))
			} else {
				t.outages.Add(ctx, 1, queueAttributes(e.Queue, partKey.String(e.Part)))
			}
		},
	}
}

// SentTx counts messages that Queue.SendTx stored, as the hooks count those of
// producers, which cannot know what became of the transaction. Call it with the
// receipts once the transaction is committed, where Queue.Wake is called; after a
// rollback do not. It is safe for concurrent use.
func (t *Telemetry) SentTx(queue string, receipts ...chanq.Receipt) {
	duplicates := 0
	for _, r := range receipts {
		if r.Duplicate {
			duplicates++
		}
	}
	t.countSent(queue, len(receipts)-duplicates, duplicates)
}

func (t *Telemetry) countSent(queue string, messages, duplicates int) {
	ctx := context.Background()
	if messages > 0 {
		t.sent.Add(ctx, int64(messages), "send", system, t.sent.AttrDestinationName(queue))
	}
	if duplicates > 0 {
		t.duplicates.Add(ctx, int64(duplicates), queueAttributes(queue))
	}
}

// Watch measures the depth of a queue whenever metrics are collected, which costs
// one round trip each time: give Queue.Name and Queue.Stats. One process of many
// is enough. Unregister the registration before the *sql.DB is closed.
func (t *Telemetry) Watch(queue string, stats func(context.Context) (chanq.Stats, error)) (metric.Registration, error) {
	messages, err := t.meter.Int64ObservableGauge("chanq.queue.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages in a queue, counted up to 10,000 of each state."))
	if err != nil {
		return nil, err
	}
	oldest, err := t.meter.Float64ObservableGauge("chanq.queue.oldest_ready", metric.WithUnit("s"),
		metric.WithDescription("For how long the oldest ready message has been due."))
	if err != nil {
		return nil, err
	}
	return t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		s, err := stats(ctx)
		if err != nil {
			return err
		}
		for state, n := range map[chanq.State]int{
			chanq.StateReady: s.Ready, chanq.StateScheduled: s.Scheduled, chanq.StateLeased: s.Leased, chanq.StateDead: s.Dead, chanq.StateDone: s.Done,
		} {
			o.ObserveInt64(messages, int64(n), queueAttributes(queue, stateKey.String(string(state))))
		}
		o.ObserveFloat64(oldest, s.OldestReady.Seconds(), queueAttributes(queue))
		return nil
	}, messages, oldest)
}
