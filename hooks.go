package chanq

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Hooks are functions that chanq calls on events; each can be nil. LogHooks, package chanqprobe (probes), and the
// modules chanqprom (Prometheus) and otelchanq (OpenTelemetry) have ready ones; JoinHooks combines them. Events contain
// no bodies, and headers only after failures (Handled, Dead).
//
// A call costs about 1 µs, per statement or failure; Handled is called for every message. Hooks run on their own
// goroutines, several at a time. A panic or runtime.Goexit ends that call alone; but after a success Handled runs
// on its worker, and runtime.Goexit stops the consumer.
//
// Return soon, and do not wait for your caller, which waits for you:
//
//   - Sent is called by a producer, Queue.Send, InTx or SendTx. It must not call Send, SendBatch, Flush or Close of
//     that producer.
//   - Claimed delays claims; Settled, Dead and LeaseLost delay settles; Handled delays its worker, or the caller of
//     Nack. They must not call Wait, Flush or Shutdown of that consumer. Settled, Dead and LeaseLost must not settle.
//   - Unsent, Availability, Isolated and Housekeeping delay nothing. They must not call Shutdown or Close. Up to 4096
//     of their events wait; later ones are dropped.
//
// Other calls that return immediately (Stop, Ack, Stats) are allowed.
type Hooks struct {
	// Sent: one statement stored messages, or SendTx was called.
	Sent func(SentEvent)
	// Claimed: one statement leased messages.
	Claimed func(ClaimedEvent)
	// Settled: one batch of settles is in the database.
	Settled func(SettledEvent)
	// LeaseLost: a lease was lost before its message was settled.
	LeaseLost func(LeaseLostEvent)
	// Handled: a handler of Handle, HandleBatches or Pipe was called, or a lease was nacked with a cause. Once per
	// call; for a batch, per message settled by it.
	Handled func(HandledEvent)
	// Dead: a message was dead-lettered.
	Dead func(DeadEvent)
	// Unsent: a message of Producer.C cannot be stored. Producer.Unsent returns it. After Close has started the hook is
	// not called.
	Unsent func(UnsentEvent)
	// Availability: the database stopped answering a producer or consumer, answers it again, or that stopped during the
	// outage. Once per change.
	Availability func(AvailabilityEvent)
	// Isolated: a message or settle fails while the database stores others, or it was stored, refused or given up. Once
	// per change.
	Isolated func(IsolatedEvent)
	// Housekeeping: the database refuses a maintenance task, or accepts it again, or the producer or consumer that ran
	// it has stopped. Once per change.
	Housekeeping func(HousekeepingEvent)
}

// SentEvent is one batch of stored messages. Duplicates counts those that met a message with their DedupKey, which they
// have left or replaced, and Messages the others. Bytes counts their bodies. Took includes repetitions and pauses; it
// is 0 for InTx, whose messages are one batch per queue after the commit. Attempted counts messages of SendTx in
// another transaction, and the other counts are then 0: chanq does not learn of its commit.
type SentEvent struct {
	Queue                       string
	Messages, Duplicates, Bytes int
	Attempted                   int
	Took                        time.Duration
}

// ClaimedEvent is one successful claim. Bytes counts their bodies. On an ordered queue it is a batch of messages that
// became deliverable, and Took the time of the statements since the last one.
type ClaimedEvent struct {
	Queue           string
	Messages, Bytes int
	Took            time.Duration
}

// SettledEvent is one batch of settles. Lost counts those whose lease was lost. Took includes repetitions and pauses;
// it is 0 for InTx, whose acks count after the commit. Attempted counts acks of AckTx in another transaction, and the
// other counts are then 0.
type SettledEvent struct {
	Queue                               string
	Acked, Nacked, Released, Dead, Lost int
	Attempted                           int
	Took                                time.Duration
}

// LeaseLostEvent is a lease that was lost before it was settled. If Confirmed is set, the database reported the loss,
// for example because the message was cancelled. Otherwise it expired in an outage, or after ConsumerConfig.MaxExtend.
type LeaseLostEvent struct {
	Queue     string
	ID        ID
	Attempt   int
	Confirmed bool
}

// HandledEvent is the result of one call of a handler, or of a Nack with a cause. Settled and LeaseLost report the
// outcome of the settle. The Delivery is a copy for reading, after a success without Headers.
type HandledEvent struct {
	Delivery
	// Outcome is what happens to the message: OutcomeDeadLetter after the last attempt, OutcomeAck after AckTx and the
	// function of a Pipe, before the commit. If the outputs of a Pipe cannot be stored in time, the hook is called
	// again, with the error.
	Outcome OutcomeKind
	Next    time.Duration // until the next attempt; 0 if there is none or it can start immediately
	Took    time.Duration // of the call, above 0; 0 for a Nack
	Err     error         // of the handler, with the stack of a panic, or the cause of a Nack
}

// Failed reports whether the handler failed. Otherwise Err is nil or a Snooze, or the consumer was stopping and the
// message was released.
func (e HandledEvent) Failed() bool {
	return e.Err != nil && e.Outcome != OutcomeRelease && Outcome(e.Err).Kind != OutcomeSnooze
}

// DeadEvent is a dead-lettered message. Reason is its last error, without the text of a decoder, which can contain
// parts of the body.
type DeadEvent struct {
	Queue string
	ID    ID
	// Empty if unreadable. Do not modify the map.
	Key, DedupKey, Type string
	Headers             map[string]string
	Attempt             int // as chanqadmin.Entry.Attempts; 0 if it was never delivered
	Cause               Cause
	Reason              string // as chanqadmin.Entry.LastError
}

// UnsentEvent is a message of Producer.C that cannot be stored, with the error of Producer.Unsent.
type UnsentEvent struct {
	Queue string
	ID    ID
	Err   error
}

// AvailabilityEvent is a change of the database's availability to one producer or consumer.
type AvailabilityEvent struct {
	Queue string
	Part  string // "producer" or "consumer"
	Up    bool   // this outage is over
	// Ended, when Up: the producer or consumer stopped during the outage.
	Ended bool
	Err   error         // what failed; nil when Up
	Down  time.Duration // how long it was down; when Up
}

// IsolatedEvent is a change of the number of isolated messages (of a producer) or settles. An isolated item has failed
// alone while the database stored others. It is repeated alone, every 5 s or sooner, and delays no other, except those
// of its key on an ordered queue. When all is stopped, the sum of Change is 0.
type IsolatedEvent struct {
	Queue  string
	Part   string // "producer", "consumer" or "pipe"
	Items  int    // isolated now
	Change int    // since the previous event of this producer or consumer
	Err    error  // of the last item that was isolated; nil if Change is negative
}

// HousekeepingEvent is a change of a maintenance task for which no delivery waits, for example because a permission is
// missing.
type HousekeepingEvent struct {
	Queue string
	// Task is one of these. While it is refused:
	//
	//   - "consumers": chanqadmin.Queue.Consumers does not list this consumer.
	//   - "trim": messages stay longer than Spec.Retain and Spec.RetainDead.
	//   - "vacuum": on PostgreSQL the live table grows until autovacuum runs.
	//   - "history": chanqadmin.Queue.History lacks this program's counts.
	Task string
	Err  error // the error of the database; nil when it accepts the task again
	// Ended: the producer or consumer stopped while the task was refused.
	Ended bool
}

// LogHooks logs every event to log, or to slog.Default() if log is nil. Errors of handlers have the level failed, for
// example slog.LevelWarn. An error that dead-letters the message is logged once, with the dead letter. The times next,
// took and down are durations.
//
//	WARN   an outage, an isolated item, refused housekeeping, a lost lease, an unsent message, a dead letter
//	INFO   the end of the first three
//	DEBUG  the rest
func LogHooks(log *slog.Logger, failed slog.Level) Hooks {
	if log == nil {
		log = slog.Default()
	}
	return Hooks{
		Sent: func(e SentEvent) {
			log.Debug("chanq: sent", "queue", e.Queue, "messages", e.Messages, "attempted", e.Attempted, "duplicates",
				e.Duplicates, "bytes", e.Bytes, "took", e.Took)
		},
		Claimed: func(e ClaimedEvent) {
			log.Debug("chanq: claimed", "queue", e.Queue, "messages", e.Messages, "bytes", e.Bytes, "took", e.Took)
		},
		Settled: func(e SettledEvent) {
			log.Debug("chanq: settled", "queue", e.Queue, "acked", e.Acked, "nacked", e.Nacked, "released", e.Released,
				"dead", e.Dead, "attempted", e.Attempted, "lost", e.Lost, "took", e.Took)
		},
		LeaseLost: func(e LeaseLostEvent) {
			log.Warn("chanq: lease lost", "queue", e.Queue, "id", e.ID, "attempt", e.Attempt, "confirmed", e.Confirmed)
		},
		Handled: func(e HandledEvent) {
			level, message := slog.LevelDebug, "chanq: handled"
			if e.Failed() && e.Outcome != OutcomeDeadLetter {
				level, message = failed, "chanq: attempt failed"
			}
			if ctx := context.Background(); log.Enabled(ctx, level) {
				attrs := []any{"queue", e.Queue, "id", e.ID, "type", e.Type, "key", e.Key, "attempt", e.Attempt,
					"outcome", e.Outcome, "next", e.Next}
				if e.Took > 0 { // it was a call of a handler
					attrs = append(attrs, "took", e.Took)
				}
				log.Log(ctx, level, message, append(attrs, "err", e.Err)...)
			}
		},
		Dead: func(e DeadEvent) {
			log.Warn("chanq: message is dead", "queue", e.Queue, "id", e.ID, "type", e.Type, "key", e.Key, "attempt",
				e.Attempt, "cause", e.Cause, "reason", e.Reason)
		},
		Unsent: func(e UnsentEvent) {
			log.Warn("chanq: message cannot be stored", "queue", e.Queue, "id", e.ID, "err", e.Err)
		},
		Availability: func(e AvailabilityEvent) {
			if e.Ended {
				log.Info("chanq: ended while the database did not answer", "queue", e.Queue, "part", e.Part, "down",
					e.Down)
			} else if e.Up {
				log.Info("chanq: database answers again", "queue", e.Queue, "part", e.Part, "down", e.Down)
			} else {
				log.Warn("chanq: database does not answer", "queue", e.Queue, "part", e.Part, "err", e.Err)
			}
		},
		Isolated: func(e IsolatedEvent) {
			if e.Change > 0 {
				log.Warn("chanq: isolated", "queue", e.Queue, "part", e.Part, "items", e.Items, "err", e.Err)
			} else {
				log.Info("chanq: fewer are isolated", "queue", e.Queue, "part", e.Part, "items", e.Items)
			}
		},
		Housekeeping: func(e HousekeepingEvent) {
			if e.Ended {
				log.Info("chanq: ended while housekeeping was refused", "queue", e.Queue, "task", e.Task)
			} else if e.Err == nil {
				log.Info("chanq: housekeeping goes on", "queue", e.Queue, "task", e.Task)
			} else {
				log.Warn("chanq: housekeeping is refused", "queue", e.Queue, "task", e.Task, "err", e.Err)
			}
		},
	}
}

// JoinHooks returns Hooks that call the hooks of each set in order.
func JoinHooks(sets ...Hooks) Hooks {
	return Hooks{
		Sent:         each(sets, func(h *Hooks) func(SentEvent) { return h.Sent }),
		Claimed:      each(sets, func(h *Hooks) func(ClaimedEvent) { return h.Claimed }),
		Settled:      each(sets, func(h *Hooks) func(SettledEvent) { return h.Settled }),
		LeaseLost:    each(sets, func(h *Hooks) func(LeaseLostEvent) { return h.LeaseLost }),
		Handled:      here(sets),
		Dead:         each(sets, func(h *Hooks) func(DeadEvent) { return h.Dead }),
		Unsent:       each(sets, func(h *Hooks) func(UnsentEvent) { return h.Unsent }),
		Availability: each(sets, func(h *Hooks) func(AvailabilityEvent) { return h.Availability }),
		Isolated:     each(sets, func(h *Hooks) func(IsolatedEvent) { return h.Isolated }),
		Housekeeping: each(sets, func(h *Hooks) func(HousekeepingEvent) { return h.Housekeeping }),
	}
}

// each returns a function that calls the same hook of each set.
func each[E any](sets []Hooks, of func(*Hooks) func(E)) func(E) {
	sets = slices.Clone(sets)
	return func(e E) {
		for i := range sets {
			call(of(&sets[i]), e)
		}
	}
}

// here is the variant of each for Handled, which is called for every message.
func here(sets []Hooks) func(HandledEvent) {
	var hooks []func(HandledEvent)
	for _, h := range sets {
		if h.Handled != nil {
			hooks = append(hooks, h.Handled)
		}
	}
	if len(hooks) == 0 {
		return nil
	}
	return func(e HandledEvent) {
		for _, hook := range hooks {
			callHere(hook, e)
		}
	}
}

// callHere calls a hook on the goroutine of its caller, which no panic ends.
func callHere[E any](hook func(E), e E) {
	defer func() { _ = recover() }()
	hook(e)
}

// call calls a hook that is not nil on a separate goroutine and waits for it, so that no panic of a hook ends the
// caller.
func call[E any](hook func(E), e E) {
	if hook != nil {
		base.Call(func() { hook(e) })
	}
}

// availability returns an Availability that reports to the hook.
func (q *queue) availability(part string) *base.Availability {
	return &base.Availability{Changed: func(c base.AvailabilityChange) {
		call(q.cfg.Hooks.Availability, AvailabilityEvent{Queue: q.cfg.Label, Part: part, Up: c.Err == nil,
			Ended: c.Ended, Err: c.Err, Down: c.Down})
	}}
}

// isolated returns an Isolated that reports to the hook.
func (q *queue) isolated(part string) *base.Isolated {
	return &base.Isolated{Changed: func(items, change int, err error) {
		call(q.cfg.Hooks.Isolated, IsolatedEvent{Queue: q.cfg.Label, Part: part, Items: items, Change: change,
			Err: err})
	}}
}

// task returns a Task that reports to the Housekeeping hook. op is as in OpError.
func (q *queue) task(name, op string) *base.Task {
	return &base.Task{
		Away: q.away,
		Changed: func(err error, ended bool) {
			call(q.cfg.Hooks.Housekeeping, HousekeepingEvent{Queue: q.cfg.Label, Task: name, Err: q.fail(op, err),
				Ended: ended})
		},
	}
}
