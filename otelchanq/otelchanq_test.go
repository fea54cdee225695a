package otelchanq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/otelchanq"
)

// backend is OpenTelemetry in memory.
type backend struct {
	*testing.T
	reader    *sdkmetric.ManualReader
	spans     *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
	telemetry *otelchanq.Telemetry
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{T: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	b.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	var err error
	b.telemetry, err = otelchanq.New(otelchanq.Config{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader)),
		TracerProvider: b.tracers,
		Propagator:     propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	})
	require.NoError(t, err)
	return b
}

// metrics returns the sums and gauges, and the counts of histograms, by name and attributes.
func (b *backend) metrics() map[string]float64 {
	b.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(b, b.reader.Collect(b.Context(), &all))
	got := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(b, "github.com/chanq/chanq/otelchanq", scope.Scope.Name)
		for _, m := range scope.Metrics {
			require.NotEmpty(b, m.Unit, m.Name)
			require.NotEmpty(b, m.Description, m.Name)
			note := func(set attribute.Set, value float64) {
				system, _ := set.Value("messaging.system")
				require.Equal(b, "chanq", system.AsString(), m.Name)
				queue, _ := set.Value("messaging.destination.name")
				name, shard, _ := strings.Cut(queue.AsString(), "/") // of Config.Label
				require.Equal(b, "orders", name, m.Name)
				var parts []string
				if shard != "" {
					parts = append(parts, shard)
				}
				for _, kv := range set.ToSlice() {
					if key := string(kv.Key); strings.HasPrefix(key, "chanq.") || key == "messaging.operation.name" || key == "error.type" {
						parts = append(parts, kv.Value.String())
					}
				}
				slices.Sort(parts)
				got[strings.TrimSpace(m.Name+" "+strings.Join(parts, " "))] = value
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					note(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					note(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					note(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					note(p.Attributes, float64(p.Count))
				}
			default:
				require.Fail(b, "unexpected kind of metric", "%s: %T", m.Name, data)
			}
		}
	}
	return got
}

func (b *backend) queue() (*chanq.Queue[string], *sql.DB) {
	b.Helper()
	db, err := embedded.Open(":memory:")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	cfg := chanq.Config{Hooks: b.telemetry.Hooks(), Spec: chanq.Spec{MaxAttempts: 2}}
	require.NoError(b, chanq.Migrate(b.Context(), db, "orders", cfg))
	q, err := chanq.Open[string](b.Context(), db, "orders", cfg)
	require.NoError(b, err)
	return q, db
}

func TestShardsAreDistinguished(t *testing.T) {
	b := newBackend(t)
	h := b.telemetry.Hooks()
	h.Sent(chanq.SentEvent{Queue: "orders/east", Messages: 2, Duplicates: 1})
	h.Sent(chanq.SentEvent{Queue: "orders/west", Messages: 3})
	h.Availability(chanq.AvailabilityEvent{Queue: "orders/west", Part: "producer"})
	seen := b.metrics()
	require.Equal(t, 2.0, seen["messaging.client.sent.messages east send"])
	require.Equal(t, 3.0, seen["messaging.client.sent.messages send west"])
	require.Equal(t, 1.0, seen["chanq.sent.duplicates east"])
	require.Equal(t, 1.0, seen["chanq.outages.now producer west"])
}

func TestAQueueIsMeasured(t *testing.T) {
	b := newBackend(t)
	q, db := b.queue()
	admin, err := chanqadmin.Open(t.Context(), db, "orders", chanq.Config{})
	require.NoError(t, err)
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.SendBatch(t.Context(), []chanq.Message[string]{{Body: "fine"}, {Body: "fails", DedupKey: "k"}, {Body: "again", DedupKey: "k"}, {Body: "later", Delay: time.Hour}}...)
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	watch, err := b.telemetry.Watch(q.Name(), admin.Stats)
	require.NoError(t, err)
	consumers, err := b.telemetry.WatchConsumers(q.Name(), admin.Consumers)
	require.NoError(t, err)

	got := b.metrics()
	require.Equal(t, 3.0, got["messaging.client.sent.messages send"])
	require.Equal(t, 1.0, got["chanq.sent.duplicates"])
	require.NotZero(t, got["messaging.client.operation.duration send"])
	require.Equal(t, 2.0, got["chanq.queue.messages ready"])
	require.Equal(t, 1.0, got["chanq.queue.messages scheduled"])
	require.Zero(t, got["chanq.queue.messages dead"])
	require.Contains(t, got, "chanq.queue.oldest_ready")
	require.Contains(t, got, "chanq.queue.paused")
	require.Contains(t, got, "chanq.queue.consumers")

	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{
		Backoff: func(*chanq.Delivery, error) time.Duration { return 0 }, Middleware: []chanq.Middleware{b.telemetry.Middleware},
	})
	require.NoError(t, err)
	require.NoError(t, c.Handle(1, func(_ context.Context, l *chanq.Lease[string]) error {
		if l.Body == "fine" {
			return nil
		}
		if l.Attempt == 2 {
			c.Stop()
			panic("out of ideas")
		}
		return chanq.RetryAfter(0, fmt.Errorf("call: %w", &url.Error{Op: "Get", URL: "/", Err: io.EOF}))
	}))
	require.NoError(t, c.Shutdown(t.Context()))
	got = b.metrics()
	require.Equal(t, 3.0, got["messaging.client.consumed.messages claim"])
	require.Equal(t, 1.0, got["chanq.settled.messages acked"])
	require.Equal(t, 1.0, got["chanq.settled.messages nacked"])
	require.Equal(t, 1.0, got["chanq.settled.messages dead"])
	require.Zero(t, got["chanq.settled.messages released"])
	require.Equal(t, 2.0, got["chanq.handler.errors"])
	require.Equal(t, 1.0, got["messaging.process.duration process"])
	require.Equal(t, 1.0, got["messaging.process.duration *url.Error process"])
	require.Equal(t, 1.0, got["messaging.process.duration panic process"])
	require.NotZero(t, got["messaging.client.operation.duration claim"])
	require.NotZero(t, got["messaging.client.operation.duration settle"])
	require.Equal(t, 1.0, got["chanq.queue.messages dead"])

	require.NoError(t, watch.Unregister())
	require.NoError(t, consumers.Unregister())
	require.NotContains(t, b.metrics(), "chanq.queue.messages dead")
}

func TestSendsOfATransactionAreCountedAfterTheCommit(t *testing.T) {
	b := newBackend(t)
	q, db := b.queue()
	send := func(end func(*sql.Tx) error, ms ...chanq.Message[string]) []chanq.Receipt {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		receipts, err := q.SendTx(t.Context(), tx, ms...)
		require.NoError(t, err)
		require.NoError(t, end(tx))
		require.NotContains(t, b.metrics(), "messaging.client.sent.messages send", "only the caller knows how the transaction ended")
		return receipts
	}
	send((*sql.Tx).Rollback, chanq.Message[string]{Body: "a"})
	receipts := send((*sql.Tx).Commit, chanq.Message[string]{Body: "a", DedupKey: "k"}, chanq.Message[string]{Body: "b", DedupKey: "k"}, chanq.Message[string]{Body: "c"})
	b.telemetry.SentTx(q.Name(), receipts...)
	got := b.metrics()
	require.Equal(t, 2.0, got["messaging.client.sent.messages send"])
	require.Equal(t, 1.0, got["chanq.sent.duplicates"])
}

// Meaningful types, wrapped in other errors.
func TestTheTypeOfAnErrorIsItsCause(t *testing.T) {
	fault := &url.Error{Op: "Get", URL: "/", Err: io.EOF}
	for want, err := range map[string]error{
		"*url.Error":                    chanq.DeadLetter(errors.Join(fmt.Errorf("a: %w, b: %w", fault, io.EOF), io.EOF)),
		"*errors.errorString":           chanq.RetryAfter(time.Second, io.EOF),
		"*chanq.retryAfter":             chanq.RetryAfter(time.Second, nil),
		"quota":                         fmt.Errorf("call: %w", typed{io.EOF}),
		"context.deadlineExceededError": context.DeadlineExceeded,
	} {
		b := newBackend(t)
		fails := func(context.Context) error { return err }
		require.ErrorIs(t, b.telemetry.Middleware(t.Context(), &chanq.Delivery{Queue: "orders"}, fails), err)
		require.Contains(t, b.metrics(), "messaging.process.duration "+strings.Join(slices.Sorted(slices.Values([]string{want, "process"})), " "))
	}
}

// rude is an error whose methods panic.
type rude struct{}

func (rude) Error() string     { panic("no text") }
func (rude) ErrorType() string { panic("no type") }

func TestAnErrorWhoseMethodsPanicIsReturnedUnchanged(t *testing.T) {
	for _, err := range []error{rude{}, chanq.RetryAfter(time.Hour, rude{}), errors.Join(rude{}, chanq.Snooze(time.Hour, nil))} {
		b := newBackend(t)
		got := b.telemetry.Middleware(t.Context(), &chanq.Delivery{Queue: "orders"}, func(context.Context) error { return err })
		require.Equal(t, chanq.Outcome(err), chanq.Outcome(got))
		require.Len(t, b.spans.Ended(), 1)
		require.Equal(t, codes.Error, b.spans.Ended()[0].Status().Code)
		require.Contains(t, b.metrics(), "messaging.process.duration _OTHER process")
	}
}

// typed returns its own type, although it wraps another error.
type typed struct{ error }

func (e typed) Unwrap() error   { return e.error }
func (typed) ErrorType() string { return "quota" }

func TestLossesAndOutagesAreMeasured(t *testing.T) {
	b := newBackend(t)
	h := b.telemetry.Hooks()
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "orders", Confirmed: true})
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "orders"})
	h.Settled(chanq.SettledEvent{Queue: "orders", Released: 3})
	h.Availability(chanq.AvailabilityEvent{Queue: "orders", Part: "consumer", Err: errors.New("gone")})
	h.Availability(chanq.AvailabilityEvent{Queue: "orders", Part: "consumer", Up: true, Down: time.Minute})
	h.Availability(chanq.AvailabilityEvent{Queue: "orders", Part: "producer", Err: errors.New("gone")})
	h.Isolated(chanq.IsolatedEvent{Queue: "orders", Part: "consumer", Items: 3, Change: 3})
	h.Isolated(chanq.IsolatedEvent{Queue: "orders", Part: "consumer", Items: 1, Change: -2})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "orders", Task: "vacuum", Err: errors.New("no right")})
	for outcome, err := range map[chanq.OutcomeKind]error{
		chanq.OutcomeSnooze: chanq.Snooze(time.Second, nil), chanq.OutcomeRelease: errors.New("stopped"), chanq.OutcomeAck: nil,
	} {
		h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "orders"}, Outcome: outcome, Err: err})
	}
	got := b.metrics()
	require.Equal(t, 0.0, got["chanq.outages.now consumer"])
	require.Equal(t, 1.0, got["chanq.outages.now producer"])
	require.Equal(t, 1.0, got["chanq.isolated consumer"])
	require.Equal(t, 1.0, got["chanq.housekeeping.refused vacuum"])
	require.NotContains(t, got, "chanq.handler.errors", "none of them is one")
	require.Equal(t, 1.0, got["chanq.leases.lost true"])
	require.Equal(t, 1.0, got["chanq.leases.lost false"])
	require.Equal(t, 3.0, got["chanq.settled.messages released"])
	require.Equal(t, 1.0, got["chanq.outages consumer"])
	require.Equal(t, 1.0, got["chanq.outages producer"])
	require.Equal(t, 1.0, got["chanq.outage.duration consumer"])
	require.NotContains(t, got, "chanq.outage.duration producer")

	// A part that ends during an outage does not count as down, and its outage has no duration.
	h.Availability(chanq.AvailabilityEvent{Queue: "orders", Part: "producer", Up: true, Ended: true, Down: time.Minute})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "orders", Task: "vacuum", Err: errors.New("no right")}) // another consumer
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "orders", Task: "vacuum"})
	got = b.metrics()
	require.Equal(t, 0.0, got["chanq.outages.now producer"])
	require.NotContains(t, got, "chanq.outage.duration producer")
	require.Equal(t, 1.0, got["chanq.housekeeping.refused vacuum"], "of one of two")
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "orders", Task: "vacuum", Ended: true})
	require.Equal(t, 0.0, b.metrics()["chanq.housekeeping.refused vacuum"])
}

// A query for an increase misses the first count of a counter that begins with it.
func TestCountersBeginAtZero(t *testing.T) {
	b := newBackend(t)
	b.telemetry.Hooks().Claimed(chanq.ClaimedEvent{Queue: "orders", Messages: 1})
	b.telemetry.Hooks().Sent(chanq.SentEvent{Queue: "orders", Messages: 1})
	got := b.metrics()
	for _, name := range []string{"chanq.leases.lost true", "chanq.leases.lost false", "chanq.settled.messages dead", "chanq.handler.errors", "chanq.outages consumer", "chanq.outages producer", "chanq.sent.duplicates"} {
		require.Contains(t, got, name)
		require.Zero(t, got[name], name)
	}
}

func TestATraceFollowsAMessageThroughTheStages(t *testing.T) {
	b := newBackend(t)
	q, _ := b.queue()
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	member, err := baggage.NewMember("tenant", "7")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	ctx, request := b.tracers.Tracer("test").Start(baggage.ContextWithBaggage(t.Context(), bag), "request")
	own := map[string]string{"own": "header"}
	_, err = p.Send(ctx, chanq.Message[string]{Body: "x", Headers: b.telemetry.Headers(ctx, own)})
	require.NoError(t, err)
	require.Len(t, own, 1, "it is copied")
	request.End()

	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{Middleware: []chanq.Middleware{b.telemetry.Middleware}})
	require.NoError(t, err)
	stage := otelchanq.Stage(b.telemetry, func(ctx context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
		assert.Equal(t, "7", baggage.FromContext(ctx).Member("tenant").Value())
		if l.Body == "done" {
			assert.Equal(t, "kept", l.Headers["stage"])
			c.Stop()
			return nil, chanq.DeadLetter(errors.New("enough"))
		}
		assert.Equal(t, "header", l.Headers["own"])
		return []chanq.Message[string]{{Body: "done", Headers: map[string]string{"stage": "kept"}}}, nil
	})
	require.NoError(t, chanq.Pipe(c, q, 1, stage)) // into the same queue
	require.NoError(t, c.Shutdown(t.Context()))
	require.NoError(t, p.Close(t.Context()))

	ended := b.spans.Ended()
	require.Len(t, ended, 3)
	parent := request.SpanContext()
	for i, span := range ended[1:] {
		require.Equal(t, "process orders", span.Name())
		require.Equal(t, trace.SpanKindConsumer, span.SpanKind())
		require.Equal(t, request.SpanContext().TraceID(), span.SpanContext().TraceID())
		require.Equal(t, parent.SpanID(), span.Parent().SpanID())
		require.True(t, span.Parent().IsRemote())
		require.Contains(t, span.Attributes(), attribute.Int("chanq.attempt", 1))
		require.Contains(t, span.Attributes(), attribute.String("messaging.operation.name", "process"))
		require.Equal(t, []codes.Code{codes.Unset, codes.Error}[i], span.Status().Code)
		parent = span.SpanContext()
	}
	require.Equal(t, "enough", ended[2].Status().Description)
	require.Len(t, ended[2].Events(), 1)
}

func TestWithoutAPropagatorThereAreNoHeaders(t *testing.T) {
	telemetry, err := otelchanq.New(otelchanq.Config{}) // the global providers, which do nothing
	require.NoError(t, err)
	require.Nil(t, telemetry.Headers(t.Context(), nil))
	require.Equal(t, map[string]string{"a": "b"}, telemetry.Headers(t.Context(), map[string]string{"a": "b"}))
	require.NoError(t, telemetry.Middleware(t.Context(), &chanq.Delivery{}, func(context.Context) error { return nil }))
}
