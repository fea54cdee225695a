// Package chanqfindings says what is wrong with a queue: in a sentence, with a remedy.
//
//	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
//	for _, f := range chanqfindings.Of(chanqfindings.Look(ctx, admin), chanqfindings.Limits{}, time.Now()) {
//		fmt.Println(f.Queue, f.Kind, f.Text, f.Remedy)
//	}
//
// The web UI, the commands chanq doctor and chanq top, and the metrics of chanqprom show these findings. A queue without trouble has none.
// The package has no goroutine except during Examine, and no state.
package chanqfindings

import (
	"cmp"
	"slices"
	"time"
)

// Kind is the kind of a finding. A queue has at most one finding of each kind.
type Kind string

// The kinds.
const (
	Locked       Kind = "locked"        // another session locks the queue's tables, or the SQLite file
	Unreachable  Kind = "unreachable"   // the database does not answer
	Unknown      Kind = "unknown"       // there are no figures, or old ones
	ConsumerLost Kind = "consumer-lost" // a consumer that has leases sends no heartbeats
	NoConsumer   Kind = "no-consumer"   // messages are ready, and no consumer runs
	Stuck        Kind = "stuck"         // handlers have kept messages for very long
	Failing      Kind = "failing"       // many attempts fail, or a message fails again and again
	BlockedKey   Kind = "blocked-key"   // messages wait for dead messages of their keys
	Late         Kind = "late"          // the oldest ready message waits for longer than Limits.Late
	Dead         Kind = "dead"          // messages are dead
	Paused       Kind = "paused"        // the queue is paused
)

// Kinds has all kinds, the worst first.
var Kinds = []Kind{Locked, Unreachable, Unknown, ConsumerLost, NoConsumer, Stuck, Failing, BlockedKey, Late, Dead, Paused}

// Severity says how soon an operator should act.
type Severity string

// The severities.
const (
	Failure Severity = "failure" // messages are not delivered
	Warning Severity = "warning" // some messages are not delivered, or will not be
	Notice  Severity = "notice"  // as an operator has chosen
)

// Finding is one thing that is wrong with a queue.
type Finding struct {
	Queue    string    `json:"queue,omitempty"` // "": all queues of the database
	Kind     Kind      `json:"kind"`
	Severity Severity  `json:"severity"`
	Text     string    `json:"text"`           // what is wrong, without the name of the queue
	Since    time.Time `json:"since,omitzero"` // by the clock of the database; zero: not known
	Remedy   string    `json:"remedy"`         // what to do
	Path     string    `json:"path,omitempty"` // the page of the web UI, relative to its root
}

// Worst sorts findings, the worst first. Findings that several queues share, since they concern the whole database, become one.
func Worst(list []Finding) []Finding {
	list = slices.Clone(list)
	severity := []Severity{Failure, Warning, Notice}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(severity, a.Severity), slices.Index(severity, b.Severity)),
			cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(a.Queue, b.Queue))
	})
	return slices.CompactFunc(list, func(a, b Finding) bool { return a.Queue == "" && b.Queue == "" && a.Kind == b.Kind })
}

// states has the word of a queue's state for its worst finding. A dead message is no state of its queue.
var states = map[Kind]string{
	Locked: "locked", Unreachable: "no answer", Unknown: "unknown", ConsumerLost: "not heard", NoConsumer: "nobody", Stuck: "stuck",
	Failing: "failing", BlockedKey: "key waits", Late: "late", Paused: "paused",
}

// State returns a word or two for a queue: for its worst finding, such as "nobody" for NoConsumer, or else "moving" or "idle". It goes by
// samples, which programs store every 10 s: "moving" means within a minute.
func State(f Figures, found []Finding) string {
	for _, one := range found {
		if word := states[one.Kind]; word != "" {
			return word
		}
	}
	for _, s := range f.Recent {
		if f.Now.Sub(s.At) <= time.Minute && s.Sent+s.Delivered+s.Acked+s.Nacked+s.Died > 0 {
			return "moving"
		}
	}
	return "idle"
}
