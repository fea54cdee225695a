package chanq

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Hooks are functions that chanq calls on events, for logs, metrics and traces. Each can be nil. You get ready ones
// from LogHooks, package chanqprobe (probes), and the modules chanqprom (Prometheus) and otelchanq (OpenTelemetry);
// combine them with JoinHooks. Events contain no bodies, and headers only after failures (Handled, Dead). Their Queue
// is Config.Label.
//
// A hook is called on its own goroutine, sometimes on several simultaneously; Handled after a success is called by its
// worker. It costs about 1 µs per statement or failure, and Handled is called for every message. A panic ends that call
// alone, and so does runtime.Goexit, but in Handled after a success runtime.Goexit stops the consumer.
//
// The caller waits for its hook. So return soon, and do not wait for your caller, or both wait until the caller's
// context is cancelled. Shutdown and Close wait for hooks too.
//
//   - Sent is called by a worker of a producer, with InFlight 1 the one of all sends, or by Queue.Send, InTx or SendTx.
//     It must not call Send, SendBatch, Flush or Close of that producer.
//   - Claimed delays claims. Settled, Dead, and LeaseLost that a settle found delay settles. Handled delays its worker,
//     or the caller of Nack. None of them can call Wait, Flush or Shutdown of that consumer. Settled, Dead and
//     LeaseLost must not settle, which waits while the backlog of settles is full.
//   - Unsent, Availability, Isolated, and other LeaseLost delay nothing. Up to 4096 of their events wait; later ones
//     are dropped. They must not call Shutdown or Close.
//   - Housekeeping delays the task that the event is about.
//
// Other producers, Queue, and calls that return immediately (Stop, Ack, Stats) are allowed.
type Hooks struct {
	// Sent: one statement stored messages, or has stored them in a transaction that must commit.
	Sent func(SentEvent)
	// Claimed: one statement leased messages.
	Claimed func(ClaimedEvent)
	// Settled: one batch of settles is in the database.
	Settled func(SettledEvent)
	// LeaseLost: a lease was lost before its message was settled.
	LeaseLost func(LeaseLostEvent)
	// Handled: a handler of Handle, HandleBatches or Pipe was called and its result has settled the message, or a lease
	// was nacked with a cause. Once per call, and per message that the call of a batch has settled. If each message of
	// a batch is then handled alone, the error of the batch is not reported.
	Handled func(HandledEvent)
	// Dead: a message was dead-lettered.
	Dead func(DeadEvent)
	// Unsent: a message that came through Producer.C cannot be stored. Producer.Unsent returns it. After Close has
	// started, Close does, and the hook is not called.
	Unsent func(UnsentEvent)
	// Availability: the database stopped answering a producer or consumer, answers it again, or the producer or
	// consumer stopped during the outage. Once per change.
	Availability func(AvailabilityEvent)
	// Isolated: a message or settle fails while the database stores others, or an isolated one was stored, refused or
	// given up. Once per change.
	Isolated func(IsolatedEvent)
	// Housekeeping: the database refuses a maintenance task, for which no delivery waits, or accepts it again, or the
	// producer or consumer that ran it has stopped. Once per change.
	Housekeeping func(HousekeepingEvent)
}

// SentEvent is one batch of stored messages. Bytes are those of bodies. Took includes repetitions and pauses; it is 0
// for messages of an InTx, which are one batch per queue after the commit.
//
// Attempted counts messages that SendTx sent in another transaction, and the other counts are then 0. chanq does not
// know whether that transaction commits.
type SentEvent struct {
	Queue                       string
	Messages, Duplicates, Bytes int
	Attempted                   int
	Took                        time.Duration
}

// ClaimedEvent is one claim that found messages. Bytes are those of bodies. On an ordered queue it is a batch of
// messages that became deliverable, and Took is the time of the statements since the last batch.
type ClaimedEvent struct {
	Queue           string
	Messages, Bytes int
	Took            time.Duration
}

// SettledEvent is one batch of settles. Lost counts those whose lease was lost. Took includes repetitions and pauses;
// it is 0 for AckTx in an InTx, which counts as Acked after the commit.
//
// Attempted counts messages that AckTx has acked in another transaction, at the call, and the other counts are then 0.
// chanq does not know whether that transaction commits.
type SettledEvent struct {
	Queue                               string
	Acked, Nacked, Released, Dead, Lost int
	Attempted                           int
	Took                                time.Duration
}

// LeaseLostEvent is a lease that was lost before it was settled. If Confirmed is set, the database reported the loss.
// Otherwise the lease expired while the database did not answer, or ConsumerConfig.MaxExtend allowed no further
// extension.
type LeaseLostEvent struct {
	Queue     string
	ID        ID
	Attempt   int
	Confirmed bool
}

// HandledEvent is the result of one call of a handler, or of a Nack with a cause. The settle has been handed over:
// Settled and LeaseLost report its outcome. The Delivery is a copy, after a success without Headers, that you cannot
// settle or extend. Its Context is never cancelled, and its Deadline is zero.
type HandledEvent struct {
	Delivery
	// Outcome is what happens to the message. A retry of the last attempt is OutcomeDeadLetter. After AckTx, and after
	// the function of a Pipe, it is OutcomeAck before the commit. If the outputs of a Pipe cannot be stored in time,
	// the hook is called again, with that error and a Took of 0.
	Outcome OutcomeKind
	Next    time.Duration // until the next attempt; 0 if there is none or it may start immediately
	Took    time.Duration // of the call; 0 for a Nack
	Err     error         // of the handler, with the stack of a panic, or the cause of a Nack; nil for success
}

// DeadEvent is a dead-lettered message. Cause says why. Reason is its last error, without the text of a decoder, which
// can repeat parts of the body.
type DeadEvent struct {
	Queue string
	ID    ID
	// Fields of the message; empty if they cannot be read. Do not modify the map.
	Key, DedupKey, Type string
	Headers             map[string]string
	Attempt             int // as chanqadmin.Entry.Attempts; 0 if it was never delivered
	Cause               Cause
	Reason              string // as chanqadmin.Entry.LastError
}

// UnsentEvent is a message of Producer.C that cannot be stored. Err is the error that Producer.Unsent returns with it.
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
	// Ended, when Up: the producer or consumer stopped during the outage, so whether the database answers is unknown.
	Ended bool
	Err   error         // what failed; nil when Up
	Down  time.Duration // how long it was down; when Up
}

// IsolatedEvent is a change of the number of isolated items of one producer or consumer: messages to be stored, or
// settles. An isolated item has failed alone while the database stored others. It is repeated alone, with pauses of up
// to 5 s, and delays no other item, except those of its key on an ordered queue. The sum of Change over all events is 0
// when the producer or consumer has stopped.
type IsolatedEvent struct {
	Queue  string
	Part   string // "producer", "consumer" or "pipe"
	Items  int    // isolated now
	Change int    // since the previous event of this producer or consumer
	Err    error  // of the last item that was isolated; nil if Change is negative
}

// HousekeepingEvent is a change of a maintenance task for which no delivery waits. A missing permission is a possible
// cause.
type HousekeepingEvent struct {
	Queue string
	// Task is one of these. While it is refused:
	//
	//   - "consumers": chanqadmin.Queue.Consumers does not list this consumer.
	//   - "trim": messages stay longer than Spec.Retain and Spec.RetainDead, and on SQLite free pages stay in the file.
	//   - "vacuum": on PostgreSQL the live table grows until autovacuum runs (see Config.VacuumEvery).
	//   - "history": chanqadmin.Queue.History lacks the counts of this program (see Config.History).
	Task string
	Err  error // the error of the database; nil when it accepts the task again
	// Ended: the producer or consumer that ran the task stopped while it was refused. Err is nil.
	Ended bool
}

// LogHooks logs every event to log, or to slog.Default() if log is nil. Errors of handlers are logged at the level
// failed, for example slog.LevelWarn. An error that dead-letters the message is logged once, with the dead letter.
//
//	WARN   an outage, an isolated item, refused housekeeping, a lost lease, a message that cannot be stored, a dead letter
//	INFO   the end of the first three
//	DEBUG  the rest: messages that were sent, claimed, settled, handled, snoozed or released
//
// Times (next, took, down) are durations: slog's TextHandler writes 1.5s, its JSONHandler nanoseconds.
func LogHooks(log *slog.Logger, failed slog.Level) Hooks {
	if log == nil {
		log = slog.Default()
	}
	return Hooks{
		Sent: func(e SentEvent) {
			log.Debug("chanq: sent", "queue", e.Queue, "messages", e.Messages, "attempted", e.Attempted, "duplicates", e.Duplicates, "bytes", e.Bytes, "took", e.Took)
		},
		Claimed: func(e ClaimedEvent) {
			log.Debug("chanq: claimed", "queue", e.Queue, "messages", e.Messages, "bytes", e.Bytes, "took", e.Took)
		},
		Settled: func(e SettledEvent) {
			log.Debug("chanq: settled", "queue", e.Queue, "acked", e.Acked, "nacked", e.Nacked, "released", e.Released, "dead", e.Dead, "attempted", e.Attempted, "lost", e.Lost, "took", e.Took)
		},
		LeaseLost: func(e LeaseLostEvent) {
			log.Warn("chanq: lease lost", "queue", e.Queue, "id", e.ID, "attempt", e.Attempt, "confirmed", e.Confirmed)
		},
		Handled: func(e HandledEvent) {
			level, message := slog.LevelDebug, "chanq: handled"
			if e.Err != nil && e.Outcome != OutcomeSnooze && e.Outcome != OutcomeRelease && e.Outcome != OutcomeDeadLetter {
				level, message = failed, "chanq: attempt failed"
			}
			if ctx := context.Background(); log.Enabled(ctx, level) {
				attrs := []any{"queue", e.Queue, "id", e.ID, "type", e.Type, "key", e.Key, "attempt", e.Attempt, "outcome", e.Outcome, "next", e.Next}
				if e.Took > 0 { // it was a call of a handler
					attrs = append(attrs, "took", e.Took)
				}
				log.Log(ctx, level, message, append(attrs, "err", e.Err)...)
			}
		},
		Dead: func(e DeadEvent) {
			log.Warn("chanq: message is dead", "queue", e.Queue, "id", e.ID, "type", e.Type, "key", e.Key, "attempt", e.Attempt, "cause", e.Cause, "reason", e.Reason)
		},
		Unsent: func(e UnsentEvent) {
			log.Warn("chanq: message cannot be stored", "queue", e.Queue, "id", e.ID, "err", e.Err)
		},
		Availability: func(e AvailabilityEvent) {
			if e.Ended {
				log.Info("chanq: ended while the database did not answer", "queue", e.Queue, "part", e.Part, "down", e.Down)
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
	a := &base.Availability{}
	if hook := q.cfg.Hooks.Availability; hook != nil {
		a.Changed = func(c base.AvailabilityChange) {
			call(hook, AvailabilityEvent{Queue: q.cfg.Label, Part: part, Up: c.Up, Ended: c.Ended, Err: c.Err, Down: c.Down})
		}
	}
	return a
}

// isolated returns an Isolated that reports to the hook.
func (q *queue) isolated(part string) *base.Isolated {
	i := &base.Isolated{}
	if hook := q.cfg.Hooks.Isolated; hook != nil {
		i.Changed = func(items, change int, err error) {
			call(hook, IsolatedEvent{Queue: q.cfg.Label, Part: part, Items: items, Change: change, Err: err})
		}
	}
	return i
}

// task returns a Task that reports to the Housekeeping hook. op is as in OpError.
func (q *queue) task(name, op string) *base.Task {
	return &base.Task{
		Away: q.away,
		Changed: func(err error, ended bool) {
			call(q.cfg.Hooks.Housekeeping, HousekeepingEvent{Queue: q.cfg.Label, Task: name, Err: q.fail(op, err), Ended: ended})
		},
	}
}
