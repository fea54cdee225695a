package otelchanq

import (
	"context"
	"errors"
	"fmt"
	"go/token"
	"reflect"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/chanq/chanq"
)

// Middleware is a chanq.Middleware. Each call of a handler is a span with the name "process" and the queue's name. It
// continues the trace of the message's headers (Headers), or begins a trace. An error is recorded and returned; a panic is
// recorded and continues. error.type is the type of the error inside chanq.RetryAfter and similar wrappers, or the result
// of its method ErrorType. For a panic it is "panic".
func (t *Telemetry) Middleware(ctx context.Context, d *chanq.Delivery, next func(context.Context) error) (err error) {
	ctx = t.propagator.Extract(ctx, propagation.MapCarrier(d.Headers))
	ctx, span := t.tracer.Start(ctx, "process "+d.Queue, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingDestinationName(d.Queue),
		semconv.MessagingOperationName("process"),
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingMessageID(d.ID.String()),
		attemptKey.Int(d.Attempt),
	))
	start := time.Now()
	returned := false
	defer func() {
		attributes := []attribute.KeyValue{t.process.AttrDestinationName(d.Queue)}
		failure := err
		if !returned { // a panic, which Handle recovers
			failure = panicked{}
		}
		if failure != nil {
			attributes = append(attributes, record(span, failure))
		}
		span.End()
		t.process.Record(ctx, time.Since(start).Seconds(), "process", system, attributes...)
	}()
	err = next(ctx)
	returned = true
	return err
}

// record records an error, and returns its error.type. The methods of a user's error may panic, and chanq needs the error itself.
func record(span trace.Span, failure error) (kind attribute.KeyValue) {
	defer func() {
		if recover() != nil {
			kind = semconv.ErrorTypeOther
			span.SetStatus(codes.Error, fmt.Sprintf("%T, whose methods panic", failure))
		}
		span.SetAttributes(kind)
	}()
	span.RecordError(failure)
	span.SetStatus(codes.Error, failure.Error())
	return semconv.ErrorType(cause(failure))
}

// Stage wraps a function for chanq.Pipe. Its outputs receive, in addition to their own headers, those that continue the
// trace of its context, which is the trace of Middleware.
func Stage[In, Out any](t *Telemetry, fn func(context.Context, *chanq.Lease[In]) ([]chanq.Message[Out], error)) func(context.Context, *chanq.Lease[In]) ([]chanq.Message[Out], error) {
	return func(ctx context.Context, l *chanq.Lease[In]) ([]chanq.Message[Out], error) {
		out, err := fn(ctx, l)
		for i := range out {
			out[i].Headers = t.Headers(ctx, out[i].Headers)
		}
		return out, err
	}
}

// cause returns the error inside wrappers whose types have no exported name, such as those of chanq and fmt. If several
// errors are wrapped, it takes the first.
func cause(err error) error {
	for {
		kind := reflect.TypeOf(err)
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if _, says := err.(interface{ ErrorType() string }); says || token.IsExported(kind.Name()) {
			return err
		}
		inner := errors.Unwrap(err)
		if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
			inner = many.Unwrap()[0]
		}
		if inner == nil {
			return err
		}
		err = inner
	}
}

// panicked is the error of a panic.
type panicked struct{}

func (panicked) Error() string     { return "the handler panicked" }
func (panicked) ErrorType() string { return "panic" }
