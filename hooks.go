package chanq

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// Hooks are told of what chanq does: for logs, metrics and traces. Each field
// may be nil. They are called on goroutines made for it, sometimes several at
// once, with no lock held: about a microsecond each, where a statement was run or
// something failed. Only Handled, which is called for every message, is called by its worker after a success. A panic in one, or
// runtime.Goexit (t.FailNow), ends that call and nothing else. Events carry no bodies, and headers only after failures (Handled, Dead);
// LogHooks does not log headers. Their Queue is Config.Label, or the name of the queue. LogHooks, the packages chanqprom
// (Prometheus) and chanqprobe (probes) and the module otelchanq (OpenTelemetry) have some ready.
//
// A hook should return soon. What calls it waits for it: Sent a worker of a producer, and with InFlight 1 all sends of its producer, or
// the caller of Queue.Send, of InTx, or of SendTx, whose transaction is open; Claimed the claims; Settled and Dead the
// settles, LeaseLost too where a settle finds the loss; Handled its worker, or the caller of Nack; Housekeeping
// the task that it tells of. Nothing waits for Unsent, Availability and Isolated, nor for LeaseLost where
// time ran out or an extension found the loss, so leases are extended in any case; up
// to 4096 of their events wait for a hook that does not return, and later ones are not
// told. Shutdown and Close wait for hooks, too, until their contexts end.
//
// So a hook must not wait for what waits for it, or both wait until the context of
// its call ends: not for Send, SendBatch, Flush or Close of that producer in Sent; not
// for Lease.Wait, Flush or Shutdown of that consumer in Claimed, Settled,
// Dead, LeaseLost and Handled; not for Shutdown or Close in Unsent, Availability and Isolated. Calls of other
// producers, Queue's calls and what returns at once (Stop, Ack, Stats) may be made,
// except Ack, Nack and the like in Settled, Dead and LeaseLost, which wait while the
// backlog of settles is full.
type Hooks struct {
	// Sent: one statement stored messages, or will have stored them when its transaction is committed.
	Sent func(SentEvent)
	// Claimed: one statement leased messages.
	Claimed func(ClaimedEvent)
	// Settled: one group of settles is in the database.
	Settled func(SettledEvent)
	// LeaseLost: a lease ended before its message was settled.
	LeaseLost func(LeaseLostEvent)
	// Handled: a handler of Handle, HandleBatches or Pipe was called, and its result has settled the message; or a lease was nacked
	// with a cause. It is called once per call of a handler, and per message of a batch that the call has settled. An error of a batch
	// of several after which each message is handled alone is not reported.
	Handled func(HandledEvent)
	// Dead: a message is a dead letter.
	Dead func(DeadEvent)
	// Unsent: a message that came through Producer.C cannot be stored: Producer.Unsent returns it, and until then Flush fails. Not
	// after Close has begun, which returns it.
	Unsent func(UnsentEvent)
	// Availability: the database stopped answering a producer or consumer, or
	// answers it again; or that one has ended meanwhile. Once per change, so each outage
	// ends.
	Availability func(AvailabilityEvent)
	// Isolated: a message or settle fails while the database stores others, or one that did is
	// stored, refused or given up. Once per change.
	Isolated func(IsolatedEvent)
	// Housekeeping: the database refuses a task that keeps the tables in order, and
	// that no delivery waits for, or no longer refuses it; or whoever did it has ended. Once
	// per change.
	Housekeeping func(HousekeepingEvent)
}

// SentEvent is one group of messages that is stored. Bytes are of bodies. Took has the repetitions and their pauses in it. What was sent
// in a transaction of InTx is one group per queue, after the commit, with a Took of 0.
//
// Only Attempted counts what a call of SendTx has sent in another transaction: whether that is committed only its owner learns. Compare it
// with nothing that counts what is in the queue.
type SentEvent struct {
	Queue                       string
	Messages, Duplicates, Bytes int
	Attempted                   int
	Took                        time.Duration
}

// ClaimedEvent is one claim that found messages. Bytes are of bodies. On an ordered queue it is a group of messages whose turn has
// come, and Took is the time of the statements about messages since the last group.
type ClaimedEvent struct {
	Queue           string
	Messages, Bytes int
	Took            time.Duration
}

// SettledEvent is one group of settles. Lost counts those whose lease had
// ended; Took has the repetitions and their pauses in it. Acked also counts messages that AckTx has acked: after the commit of InTx, and
// for other transactions when the consumer has found that the message is gone, about a second after the commit. Of these Took is 0.
type SettledEvent struct {
	Queue                               string
	Acked, Nacked, Released, Dead, Lost int
	Took                                time.Duration
}

// LeaseLostEvent is the end of a lease that was not settled. Confirmed says
// that the database reported it; otherwise its time ran out while the database
// could not be asked, or ConsumerConfig.MaxExtend allowed no further extension.
type LeaseLostEvent struct {
	Queue     string
	ID        ID
	Attempt   int
	Confirmed bool
}

// HandledEvent is the result of one call of a handler, or of a Nack with a cause. The settle is handed over: Settled and LeaseLost
// report what became of it.
//
// The Delivery is a copy, after a success without Headers, and the message is settled: its methods that settle or extend return an error, its Context
// does not end, and its Deadline is the zero time.
type HandledEvent struct {
	Delivery
	// Outcome is what becomes of the message. A retry of the last attempt is OutcomeDeadLetter. It is OutcomeAck after AckTx and a nil
	// error, though only the caller's commit acks the message, and after the function of a Pipe has returned outputs. If those cannot
	// be stored in time, the hook is called again, with that error and a Took of 0.
	Outcome OutcomeKind
	Next    time.Duration // until the next attempt; 0 if there is none or it may be made at once
	Took    time.Duration // of the call; 0 for a Nack
	Err     error         // of the handler, with the stack of a panic, or the cause of a Nack; nil for success
}

// DeadEvent is a message that was set aside: by its last Nack, by DeadLetter,
// because its body cannot be decoded, because it expired, or because a claim found its
// attempts spent. Reason is the text that is kept as its last error; not that of a
// decoder, which may repeat parts of the body.
type DeadEvent struct {
	Queue string
	ID    ID
	// Those of the message. They are empty if its contents cannot be read, and Headers if they cannot be decoded. The map is the message's:
	// read it only.
	Key, DedupKey, Type string
	Headers             map[string]string
	Attempt             int // as Entry.Attempts; 0 if it was never delivered
	Cause               Cause
	Reason              string // as Entry.LastError
}

// UnsentEvent is a message of Producer.C that cannot be stored. Err is the error that Producer.Unsent returns with it.
type UnsentEvent struct {
	Queue string
	ID    ID
	Err   error
}

// AvailabilityEvent is a change of the database's availability to one producer
// or consumer.
type AvailabilityEvent struct {
	Queue string
	Part  string // "producer" or "consumer"
	Up    bool   // this outage is over
	// Ended, when Up: the producer or consumer has ended while the database did not answer, so
	// nothing is known of that any more.
	Ended bool
	Err   error         // what failed; nil when Up
	Down  time.Duration // how long it was down; when Up
}

// IsolatedEvent is a change of the number of items that are isolated in one producer or consumer: messages to be stored, or
// settles. An isolated item has failed by itself while the database stored others. It is repeated alone, with pauses of
// up to 5 s, and delays no other one. The sum of Change over all events is 0 when the producer or consumer has ended.
type IsolatedEvent struct {
	Queue  string
	Part   string // "producer", "consumer" or "pipe"
	Items  int    // isolated now
	Change int    // since the event before, of this producer or consumer
	Err    error  // of the item that was isolated last; nil if Change is negative
}

// HousekeepingEvent is a change in how a task goes that no delivery waits for. The
// database refuses it because a right is missing, say.
type HousekeepingEvent struct {
	Queue string
	// Task is "members" (this consumer is not in chanqadmin.Queue.Consumers), "trim" (what
	// Spec.Retain and Spec.RetainDead no longer keep stays, and on SQLite free pages stay in the file), "vacuum" (on PostgreSQL: the live table grows
	// until autovacuum comes, see Config.VacuumEvery), or "history" (chanqadmin.Queue.History lacks what this
	// program does; it is Config.History's).
	Task string
	Err  error // what the database refused; nil when it no longer does
	// Ended: whoever did the task has ended, and it was refused until then. Err is nil.
	Ended bool
}

// LogHooks logs every event; log is slog.Default() if it is nil. Errors of handlers are logged at level failed, slog.LevelWarn for
// example. An error that dead-letters the message is logged once, by the line of the dead letter.
//
//	WARN   an outage, an isolated item, refused housekeeping, a lost lease, a message that cannot be stored, a dead letter
//	INFO   the end of the first three
//	DEBUG  the rest: what was sent, claimed and settled, and what was handled, snoozed or released
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
			log.Debug("chanq: settled", "queue", e.Queue, "acked", e.Acked, "nacked", e.Nacked, "released", e.Released, "dead", e.Dead, "lost", e.Lost, "took", e.Took)
		},
		LeaseLost: func(e LeaseLostEvent) {
			log.Warn("chanq: lease lost", "queue", e.Queue, "id", e.ID, "attempt", e.Attempt, "confirmed", e.Confirmed)
		},
		Handled: func(e HandledEvent) {
			level, message := slog.LevelDebug, "chanq: handled"
			if e.Err != nil && e.Outcome != OutcomeSnooze && e.Outcome != OutcomeRelease && e.Outcome != OutcomeDeadLetter {
				level, message = failed, "chanq: handler failed"
			}
			if ctx := context.Background(); log.Enabled(ctx, level) {
				log.Log(ctx, level, message, "queue", e.Queue, "id", e.ID, "type", e.Type, "key", e.Key, "attempt", e.Attempt, "outcome", e.Outcome, "next", e.Next, "took", e.Took, "err", e.Err)
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

// JoinHooks calls the hooks of each set in order.
func JoinHooks(sets ...Hooks) Hooks {
	var sent []func(SentEvent)
	var claimed []func(ClaimedEvent)
	var settled []func(SettledEvent)
	var lost []func(LeaseLostEvent)
	var handled []func(HandledEvent)
	var dead []func(DeadEvent)
	var unsent []func(UnsentEvent)
	var availability []func(AvailabilityEvent)
	var isolated []func(IsolatedEvent)
	var housekeeping []func(HousekeepingEvent)
	for _, h := range sets {
		sent = append(sent, h.Sent)
		claimed = append(claimed, h.Claimed)
		settled = append(settled, h.Settled)
		lost = append(lost, h.LeaseLost)
		handled = append(handled, h.Handled)
		dead = append(dead, h.Dead)
		unsent = append(unsent, h.Unsent)
		availability = append(availability, h.Availability)
		isolated = append(isolated, h.Isolated)
		housekeeping = append(housekeeping, h.Housekeeping)
	}
	return Hooks{
		Sent: each(sent), Claimed: each(claimed), Settled: each(settled),
		LeaseLost: each(lost), Handled: here(handled), Dead: each(dead), Unsent: each(unsent), Availability: each(availability),
		Isolated: each(isolated), Housekeeping: each(housekeeping),
	}
}

func each[E any](hooks []func(E)) func(E) {
	return func(e E) {
		for _, h := range hooks {
			call(h, e)
		}
	}
}

// here is each for hooks that are called on the goroutine of their worker: one that leaves by runtime.Goexit ends it.
func here[E any](hooks []func(E)) func(E) {
	hooks = slices.DeleteFunc(hooks, func(h func(E)) bool { return h == nil })
	if len(hooks) == 0 {
		return nil
	}
	return func(e E) { callHere(hooks, e) }
}

// callHere calls hooks, each whatever the one before does.
func callHere[E any](hooks []func(E), e E) {
	if len(hooks) == 0 {
		return
	}
	defer callHere(hooks[1:], e)
	defer func() { _ = recover() }()
	hooks[0](e)
}

// call runs a hook if there is one, and waits for it. What it does must not end the
// loop that called it.
func call[E any](hook func(E), e E) {
	if hook != nil {
		_ = base.Call(func() { hook(e) })
	}
}

// availability reports to the Availability hook.
func (q *queue) availability(part string) *base.Availability {
	a := &base.Availability{}
	if hook := q.cfg.Hooks.Availability; hook != nil {
		a.Changed = func(c base.AvailabilityChange) {
			call(hook, AvailabilityEvent{Queue: q.label, Part: part, Up: c.Up, Ended: c.Ended, Err: c.Err, Down: c.Down})
		}
	}
	return a
}

// isolated reports to the Isolated hook.
func (q *queue) isolated(part string) *base.Isolated {
	i := &base.Isolated{}
	if hook := q.cfg.Hooks.Isolated; hook != nil {
		i.Changed = func(items, change int, err error) {
			call(hook, IsolatedEvent{Queue: q.label, Part: part, Items: items, Change: change, Err: err})
		}
	}
	return i
}

// task reports to the Housekeeping hook. op is as in OpError.
func (q *queue) task(name, op string) *base.Task {
	return &base.Task{
		Away: func(err error) bool {
			class := q.classify(err)
			return class == sqlbatch.Unknown || class == sqlbatch.Refused || class == sqlbatch.RolledBack
		},
		Changed: func(err error, ended bool) {
			call(q.cfg.Hooks.Housekeeping, HousekeepingEvent{Queue: q.label, Task: name, Err: q.fail(op, err), Ended: ended})
		},
	}
}
