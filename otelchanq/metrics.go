package otelchanq

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Attributes that OpenTelemetry has no name for.
const (
	outcomeKey   = attribute.Key("chanq.outcome")
	stateKey     = attribute.Key("chanq.state")
	partKey      = attribute.Key("chanq.part")      // producer or consumer
	confirmedKey = attribute.Key("chanq.confirmed") // the database reported the loss
	taskKey      = attribute.Key("chanq.task")
	attemptKey   = attribute.Key("chanq.attempt")
)

type instruments struct {
	sent       messagingconv.ClientSentMessages
	consumed   messagingconv.ClientConsumedMessages
	operation  messagingconv.ClientOperationDuration
	process    messagingconv.ProcessDuration
	attempted  metric.Int64Counter
	duplicates metric.Int64Counter
	settled    metric.Int64Counter
	lost       metric.Int64Counter
	failed     metric.Int64Counter
	outages    metric.Int64Counter
	down       metric.Float64Histogram
	inOutage   metric.Int64UpDownCounter
	isolated   metric.Int64UpDownCounter
	refused    metric.Int64Gauge
}

func newInstruments(m metric.Meter) (i instruments, err error) {
	var errs [14]error
	seconds := metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	i.sent, errs[0] = messagingconv.NewClientSentMessages(m)
	i.consumed, errs[1] = messagingconv.NewClientConsumedMessages(m)
	i.operation, errs[2] = messagingconv.NewClientOperationDuration(m, seconds)
	i.process, errs[3] = messagingconv.NewProcessDuration(m, seconds)
	i.duplicates, errs[4] = m.Int64Counter("chanq.sent.duplicates", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that met one with their dedup key in the queue, and left or replaced it."))
	i.settled, errs[5] = m.Int64Counter("chanq.settled.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages whose settle is stored. The outcome dead means dead-lettered."))
	i.lost, errs[6] = m.Int64Counter("chanq.leases.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended before their message was settled."))
	i.failed, errs[7] = m.Int64Counter("chanq.handler.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Errors and panics of handlers."))
	i.outages, errs[8] = m.Int64Counter("chanq.outages", metric.WithUnit("{outage}"),
		metric.WithDescription("Times that the database stopped answering a producer or consumer."))
	i.down, errs[9] = m.Float64Histogram("chanq.outage.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of outages that have ended."), seconds)
	i.inOutage, errs[10] = m.Int64UpDownCounter("chanq.outages.now", metric.WithUnit("{part}"),
		metric.WithDescription("Producers and consumers that are in an outage: the database does not answer."))
	i.refused, errs[11] = m.Int64Gauge("chanq.housekeeping.refused", metric.WithUnit("1"),
		metric.WithDescription("1 while the database refuses a maintenance task of a consumer."))
	i.isolated, errs[12] = m.Int64UpDownCounter("chanq.isolated", metric.WithUnit("{item}"),
		metric.WithDescription("Messages and settles of this program that fail while the database stores others."))
	i.attempted, errs[13] = m.Int64Counter("chanq.attempted.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that SendTx has sent in transactions outside InTx, committed or not."))
	return i, errors.Join(errs[:]...)
}

// queueAttributes returns the attributes that every measurement has, and more.
func queueAttributes(queue string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(where(queue), append(more, semconv.MessagingSystemKey.String(system))...)...)
}

// where returns the attribute of the queue.
func where(queue string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.MessagingDestinationName(queue)}
}

// SentTx counts messages that Queue.SendTx has stored in a transaction other than those of InTx. The hooks cannot know
// whether such a transaction was committed. Call it with the receipts after the commit, together with Queue.Wake. It is
// safe for concurrent use.
func (t *Telemetry) SentTx(queue string, receipts ...chanq.Receipt) {
	duplicates := 0
	for _, r := range receipts {
		if r.Duplicate || r.Replaced {
			duplicates++
		}
	}
	t.countSent(queue, len(receipts)-duplicates, duplicates)
}

func (t *Telemetry) countSent(queue string, messages, duplicates int) {
	ctx := context.Background()
	if messages > 0 {
		t.sent.Add(ctx, int64(messages), "send", system, where(queue)...)
	}
	if duplicates > 0 {
		t.duplicates.Add(ctx, int64(duplicates), queueAttributes(queue))
	}
}

// Watch measures the depth of a queue whenever metrics are collected, which costs one round trip each time. Pass Label
// and Stats of a chanqadmin.Queue. One process that calls it is enough. Unregister the registration before the *sql.DB
// is closed.
func (t *Telemetry) Watch(queue string, stats func(context.Context) (chanqadmin.Stats, error)) (metric.Registration, error) {
	messages, err := t.meter.Int64ObservableGauge("chanq.queue.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages in a queue, counted up to 10,000 of each state."))
	if err != nil {
		return nil, err
	}
	oldest, err := t.meter.Float64ObservableGauge("chanq.queue.oldest_ready", metric.WithUnit("s"),
		metric.WithDescription("Time since the oldest ready message became due."))
	if err != nil {
		return nil, err
	}
	paused, err := t.meter.Int64ObservableGauge("chanq.queue.paused", metric.WithUnit("1"),
		metric.WithDescription("1 if the queue is paused."))
	if err != nil {
		return nil, err
	}
	return t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		s, err := stats(ctx)
		if err != nil {
			return err
		}
		for state, n := range map[chanqadmin.State]int{
			chanqadmin.StateReady: s.Ready, chanqadmin.StateScheduled: s.Scheduled, chanqadmin.StateLeased: s.Leased, chanqadmin.StateDead: s.Dead, chanqadmin.StateDone: s.Done,
		} {
			o.ObserveInt64(messages, int64(n), queueAttributes(queue, stateKey.String(string(state))))
		}
		o.ObserveFloat64(oldest, s.OldestReady.Seconds(), queueAttributes(queue))
		is := int64(0)
		if s.Paused {
			is = 1
		}
		o.ObserveInt64(paused, is, queueAttributes(queue))
		return nil
	}, messages, oldest, paused)
}

// WatchConsumers counts the consumers of a queue, of all programs, whenever metrics are collected, which costs one round
// trip each time. Pass Label and Consumers of a chanqadmin.Queue. One process that calls it is enough. Unregister the
// registration before the *sql.DB is closed.
func (t *Telemetry) WatchConsumers(queue string, consumers func(context.Context) ([]chanqadmin.ConsumerInfo, error)) (metric.Registration, error) {
	count, err := t.meter.Int64ObservableGauge("chanq.queue.consumers", metric.WithUnit("{consumer}"),
		metric.WithDescription("Consumers of a queue, of all programs."))
	if err != nil {
		return nil, err
	}
	return t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		list, err := consumers(ctx)
		if err != nil {
			return err
		}
		o.ObserveInt64(count, int64(len(list)), queueAttributes(queue))
		return nil
	}, count)
}
