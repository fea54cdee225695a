// Package otelchanq exports metrics and traces of chanq to OpenTelemetry. It is a separate module, so that chanq
// does not depend on OpenTelemetry: go get github.com/chanq/chanq/otelchanq@latest.
//
//	telemetry, err := otelchanq.New(otelchanq.Config{})
//	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Hooks: telemetry.Hooks()})
//
//	message := chanq.Message[Order]{Body: order, Headers: telemetry.Headers(ctx, nil)}
//	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{Middleware: []chanq.Middleware{telemetry.Middleware}})
//	err = consumer.Handle(8, handle)
//
//	receipts, err := orders.SendTx(ctx, tx, message)
//	if err = tx.Commit(); err == nil {
//		orders.Wake()
//		telemetry.SentTx(orders.Name(), receipts...)
//	}
//
// Metrics come from the hooks, from Middleware, from SentTx and from Watch. Their names follow OpenTelemetry's conventions for messaging
// where those define a name. Package chanqprom exports the same figures to Prometheus:
//
//	messaging.client.sent.messages       counter    messages stored; by SendTx after the commit of InTx, otherwise by SentTx
//	chanq.attempted.messages             counter    messages sent by SendTx in transactions other than those of InTx, committed or not
//	messaging.client.consumed.messages   counter    messages claimed by consumers
//	messaging.client.operation.duration  histogram  s, by operation: send, claim, settle
//	messaging.process.duration           histogram  s, of handlers (Middleware)
//	chanq.sent.duplicates                counter    not stored, because of their DedupKey
//	chanq.settled.messages               counter    by chanq.outcome: acked, nacked, released, dead (dead-lettered), attempted (by AckTx in other transactions)
//	chanq.leases.lost                    counter    leases that ended before their message was settled
//	chanq.handler.errors                 counter    errors and panics of Handle and Pipe, without Snooze
//	chanq.outages                        counter    by chanq.part: times that the database stopped answering
//	chanq.outage.duration                histogram  s, of outages that have ended
//	chanq.outages.now                    updown     by chanq.part: producers and consumers that the database does not answer now
//	chanq.isolated                       updown     by chanq.part: messages and settles that fail while others are stored, and are repeated separately
//	chanq.housekeeping.refused           gauge      by chanq.task: 1 while the database refuses the task
//	chanq.queue.messages                 gauge      by chanq.state: ready, scheduled, leased, dead, done (Watch)
//	chanq.queue.oldest_ready             gauge      s, how long the oldest ready message has been due (Watch)
//	chanq.queue.paused                   gauge      1 or 0 (Watch)
//	chanq.queue.consumers                gauge      consumers, of all programs (WatchConsumers)
//
// All have messaging.system chanq and messaging.destination.name: chanq.Config.Label, or the name of the queue.
// Package chanqshards labels each shard of a queue over several databases, for example "orders/east".
//
// A trace follows a message through its headers. Headers writes the context of the span in which the message is sent, and Middleware
// continues that trace. Stage writes the context of the input into the outputs of a Pipe. Messages of SendTx and redriven messages keep the
// headers with which they were sent.
package otelchanq

import (
	"context"
	"fmt"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of this package for the providers.
const scope = "github.com/chanq/chanq/otelchanq"

// system is the value of messaging.system.
const system = "chanq"

// Config has the providers and the propagator. The default of each field is OpenTelemetry's global value at the time of New.
type Config struct {
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	Propagator     propagation.TextMapPropagator
}

// Telemetry exports the operations of queues. One instance serves all queues of a program. It is safe for concurrent use.
type Telemetry struct {
	meter      metric.Meter
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	instruments
	begun begun
}

// New creates the instruments. It returns the errors of the meter.
func New(cfg Config) (*Telemetry, error) {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = otel.GetTextMapPropagator()
	}
	t := &Telemetry{
		meter:      cfg.MeterProvider.Meter(scope),
		tracer:     cfg.TracerProvider.Tracer(scope),
		propagator: cfg.Propagator,
		begun:      begun{refusals: map[task]int{}},
	}
	var err error
	if t.instruments, err = newInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("otelchanq: Config.MeterProvider: %w", err)
	}
	return t, nil
}

// Headers returns a copy of headers, or of no headers if it is nil, with the trace context and the baggage of ctx, for
// Message.Headers. chanq limits them to 64 headers and 16 KiB per message.
func (t *Telemetry) Headers(ctx context.Context, headers map[string]string) map[string]string {
	carrier := propagation.MapCarrier(maps.Clone(headers))
	if carrier == nil {
		carrier = propagation.MapCarrier{}
	}
	t.propagator.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return nil
	}
	return carrier
}
