// Package otelchanq tells OpenTelemetry what chanq does. It is a module of its
// own, so that chanq does not depend on OpenTelemetry.
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
// Metrics come from the hooks, from Middleware, from SentTx and from Watch. Where
// OpenTelemetry's conventions for messaging have a name for something, that is
// its name here; the package chanqprom has the same figures for Prometheus:
//
//	messaging.client.sent.messages       counter    messages stored; by SendTx after the commit of InTx, otherwise by SentTx
//	chanq.attempted.messages             counter    messages sent by SendTx in transactions other than those of InTx, committed or not
//	messaging.client.consumed.messages   counter    messages claimed by consumers
//	messaging.client.operation.duration  histogram  s, by operation: send, claim, settle
//	messaging.process.duration           histogram  s, of handlers (Middleware)
//	chanq.sent.duplicates                counter    not stored, because of their DedupKey
//	chanq.settled.messages               counter    by chanq.outcome: acked, nacked, released, dead
//	chanq.leases.lost                    counter    leases that ended before their message was settled
//	chanq.handler.errors                 counter    errors and panics of Handle and Pipe, Snooze left out
//	chanq.outages                        counter    by chanq.part: times that the database stopped answering
//	chanq.outage.duration                histogram  s, how long it did not, once it does again
//	chanq.outages.now                    updown     by chanq.part: producers and consumers it does not answer now
//	chanq.isolated                       updown     by chanq.part: messages and settles that fail alone, and are repeated by themselves
//	chanq.housekeeping.refused           gauge      by chanq.task: 1 as long as the database refuses it
//	chanq.queue.messages                 gauge      by chanq.state: ready, scheduled, leased, dead, done (Watch)
//	chanq.queue.oldest_ready             gauge      s, how long the oldest ready message has been due (Watch)
//	chanq.queue.paused                   gauge      1 or 0 (Watch)
//	chanq.queue.consumers                  gauge      consumers, of all programs (WatchConsumers)
//
// All have messaging.system chanq and messaging.destination.name: chanq.Config.Label, or the name of the queue.
// Package chanqshards labels each shard of a queue over several databases, for example "orders/east".
//
// A trace follows a message through its headers: Headers writes the context of
// the span in which it is sent, and Middleware continues that trace. Stage writes that of the input into the outputs of a Pipe. What SendTx,
// Redrive and the like store carries the headers that it was given.
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

// scope names this package to the providers.
const scope = "github.com/chanq/chanq/otelchanq"

// system is messaging.system.
const system = "chanq"

// Config says where telemetry goes. The zero value is OpenTelemetry's global
// providers and propagator, as they are when New is called.
type Config struct {
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	Propagator     propagation.TextMapPropagator
}

// Telemetry tells OpenTelemetry what queues do. One serves all queues of a
// program. It is safe for concurrent use.
type Telemetry struct {
	meter      metric.Meter
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	instruments
	begun begun
}

// New makes the instruments. Its error is the meter's.
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
		return nil, fmt.Errorf("otelchanq: %w", err)
	}
	return t, nil
}

// Headers returns a copy of headers, which may be nil, with the trace context and
// the baggage of ctx, for Message.Headers. A limit of chanq applies to them: 64
// headers and 16 KiB for each message.
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
