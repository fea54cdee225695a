package suite

import (
	"slices"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// States are the states of a stored message.
var States = []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased, sqlbatch.Dead, sqlbatch.Done}

// Hostile is a value that must not be executed by a database.
const Hostile = "H0STILE'; DROP TABLE chanq_orders; --\"]]\x00`$$ {live} {name} @p1 $1 ?1"

// Calls returns every statement of a queue, by name, with values made of one text. None has more than
// one row or item.
func Calls(q sqlbatch.Queue, value string) map[string]sqlbatch.Statement {
	var id [16]byte
	copy(id[:], value)
	n, d := len(value), time.Duration(len(value))
	heads := HeadsAt(int64(n), 2, 3, 4)
	heads[1].ID = id
	row := sqlbatch.Row{ID: id, Priority: 1, Delay: d, TTL: time.Hour, Key: value, Type: "kind", Headers: []byte(value), Body: []byte(value)}
	begun := row // can be stored in addition to row
	begun.ID[15]++
	begun.Key += " begun"
	calls := map[string]sqlbatch.Statement{
		"enqueue":       q.Enqueue([]sqlbatch.Row{row}),
		"enqueue-begun": q.EnqueueBegun([]sqlbatch.Row{begun}),
		"enqueue-new":   q.EnqueueNew([]sqlbatch.Row{row}),
		"find":          q.Find([][16]byte{id}, []string{value}),
		"look":          q.Look([][16]byte{id}),
		"claim":         q.Claim(sqlbatch.ClaimParams{Rows: n, Lease: d, Consumer: id, Salt: int64(n), Heads: heads, Inline: n}),
		"contents":      q.Contents(sqlbatch.Item{ID: id, Fence: int64(n)}),
		"next-due":      q.NextDue(heads),
		"rescan":        q.Rescan(),
		"rescue":        q.Rescue(sqlbatch.RescueParams{Priority: 1, From: sqlbatch.Head{Due: int64(n), ID: id}, MaxCrashes: n}),
		"due-or-locked": q.DueOrLocked(),
		"version":       q.Version(),
		"problems":      q.Problems(),
		"missing":       q.Missing(),
		"clock":         q.Clock(),
		"join":          q.Join(sqlbatch.Consumer{ID: id, Name: value, Host: value, Process: n, For: d}),
		"leave":         q.Leave(id),
		"consumers":     q.Consumers(),
		"counted":       q.Sample(sqlbatch.Sample{}),
		"sample":        q.Sample(sqlbatch.Sample{Sent: int64(n), Times: sqlbatch.Times{int64(n)}, Depth: &sqlbatch.Depth{Ready: n}}),
		"samples":       q.Samples(int64(n), d),
		"thin":          q.Thin(),
		"record":        q.Record(n, sqlbatch.DefaultPolicy),
		"stats":         q.Stats(n),
		"empty":         q.Empty(),
		"get":           q.Get(id),
		"part":          q.Part(id, n, n),
		"cancel":        q.Cancel([][16]byte{id}),
		"run-now":       q.RunNow([][16]byte{id}),
		"surrender":     q.Surrender(id, [][16]byte{id}),
		"discard":       q.Discard([][16]byte{id}),
		"bodies":        q.Bodies(sqlbatch.Ready, [][16]byte{id}),
		"bodies-dead":   q.Bodies(sqlbatch.Dead, [][16]byte{id}),
		"causes":        q.Causes(sqlbatch.Group{Cause: sqlbatch.CauseRejected, Fingerprint: int64(n)}, n, n),
		"deaths":        q.Deaths(n),
		"walk":          q.Walk(nil, n, sqlbatch.Window{Before: int64(n)}),
		"walk-group":    q.Walk(&sqlbatch.Group{Cause: sqlbatch.CauseRejected, Fingerprint: int64(n)}, n, sqlbatch.Window{Before: int64(n)}),
		"walk-bare":     q.Walk(&sqlbatch.Group{Cause: sqlbatch.CauseExpired}, n, sqlbatch.Window{Before: int64(n)}),
		"queues":        q.Queues(),
		"lock":          q.Lock(),
		"redrive":       q.Redrive(n, nil, sqlbatch.Window{Before: int64(n)}),
		"redrive-ids":   q.Redrive(0, [][16]byte{id}, sqlbatch.Window{}),
		"configure":     q.Configure(sqlbatch.DefaultPolicy),
		"pause":         q.Pause("someone", "a test"),
		"resume":        q.Resume(),
		"trim":          q.Trim(sqlbatch.Done, d, n, int64(n)),
		"trim-dead":     q.Trim(sqlbatch.Dead, d, n, int64(n)),
	}
	over := []sqlbatch.Row{row}
	for _, over[0].OnDuplicate = range []sqlbatch.OnDuplicate{sqlbatch.KeepQueued, sqlbatch.Replace, sqlbatch.Debounce} {
		over[0].DebounceMax = d * time.Duration(over[0].OnDuplicate/sqlbatch.Debounce)
		if st := q.EnqueueOver(over); st.Text != "" { // of a plain queue
			calls["enqueue-"+over[0].OnDuplicate.String()] = st
		}
	}
	if wear := q.Bloat(); wear.Text != "" { // Vacuum runs outside of a transaction, and some callers run these in one
		calls["wear"] = wear
	}
	for name, st := range orderedCalls(q, value) {
		if st.Text != "" { // on a plain queue these statements have no text
			calls[name] = st
		}
	}
	for name, st := range settles(q, d, value, sqlbatch.Item{ID: id, Fence: int64(n)}) {
		calls[name] = st
	}
	for _, s := range States {
		if !s.Live() {
			calls["peek-"+string(s)] = q.Peek(s, n, &sqlbatch.Place{Priority: 1, At: int64(n), ID: id})
		}
		calls["browse-"+string(s)] = q.Browse(s, n, &sqlbatch.Place{Priority: 1, At: int64(n), ID: id}, sqlbatch.Filter{Among: n + 1, Type: value, Key: value, Cause: 1})
		calls["purge-"+string(s)] = q.Purge(s, n, sqlbatch.Window{Before: int64(n)})
	}
	return calls
}

// PlainOnly reports whether only plain queues run a statement: ordered ones lack its index.
func PlainOnly(name string) bool {
	return name == "claim" || name == "claim-past-readers" || name == "rescan" || name == "rescue" || name == "next-due" || name == "due-or-locked" || name == "run-now"
}

// orderedCalls returns the statements that only ordered queues have.
func orderedCalls(q sqlbatch.Queue, value string) map[string]sqlbatch.Statement {
	var consumer [16]byte
	copy(consumer[:], value)
	n := len(value)
	owned := []sqlbatch.OwnedSlot{{Slot: n % 2, Fence: int64(n), Doubt: true}}
	read := sqlbatch.ReadParams{Consumer: consumer, Slots: owned, From: 1, Cursor: int64(n), Upto: end, Rows: n, Behind: n, Keys: []string{value}, Inline: n}
	refill := sqlbatch.ReadParams{Consumer: consumer, Slots: owned, From: 1, Upto: end, Rows: n, Keys: []string{value}, Inline: n}
	several, refillSeveral := read, refill
	several.Slots = append(slices.Clone(owned), sqlbatch.OwnedSlot{Slot: 2})
	refillSeveral.Slots = several.Slots
	item := sqlbatch.Item{ID: consumer, Fence: int64(n)}
	return map[string]sqlbatch.Statement{
		"slots": q.Slots(), "take-slots": q.TakeSlots(consumer, 1, []int{0, 1}), "give-slots": q.GiveSlots(consumer, owned), "slot-stats": q.SlotStats(n), "reach": q.Reach(int64(n), n+1), "begun": q.Begun(),
		"read": q.Read(several), "read-one": q.Read(read), "refill": q.Refill(refillSeveral), "refill-one": q.Refill(refill), "fetch": q.Fetch(consumer, owned, [][16]byte{consumer}),
		"look-ordered": q.LookOrdered(consumer, owned, [][16]byte{consumer}), "held-keys": q.HeldKeys([]int{1}, []string{value}),
		"mark-ordered":    q.MarkOrdered(consumer, []sqlbatch.MarkItem{{Item: item, SlotFence: int64(n)}}),
		"release-ordered": q.ReleaseOrdered(consumer, []sqlbatch.ReleaseItem{{Item: item, Delivery: int64(n)}}, true),
	}
}

// Settles returns the statements that apply to leases, by name.
func Settles(q sqlbatch.Queue, items ...sqlbatch.Item) map[string]sqlbatch.Statement {
	return settles(q, time.Hour, "e", items...)
}

func settles(q sqlbatch.Queue, d time.Duration, cause string, items ...sqlbatch.Item) map[string]sqlbatch.Statement {
	var nacks []sqlbatch.NackItem
	var deadLetters []sqlbatch.DeadLetterItem
	for _, item := range items {
		nacks = append(nacks, sqlbatch.NackItem{Item: item, Delay: d, Error: cause})
		deadLetters = append(deadLetters, sqlbatch.DeadLetterItem{Item: item, Error: cause})
	}
	return map[string]sqlbatch.Statement{
		"ack": q.Ack(items), "archive": q.Archive(items), "nack": q.Nack(nacks), "snooze": q.Snooze(nacks), "release": q.Release(Releases(items)), "dead-letter": q.DeadLetter(deadLetters),
		"extend": q.Extend(Consumer, items, d),
	}
}

// Releases returns the items that release claimed leases.
func Releases(items []sqlbatch.Item) (list []sqlbatch.ReleaseItem) {
	for _, item := range items {
		list = append(list, sqlbatch.ReleaseItem{Item: item})
	}
	return list
}

// Texts returns all parts of a statement that a database reads as SQL: the text and the declaration of
// sp_executesql are arguments.
func Texts(st sqlbatch.Statement) []string {
	var texts []string
	for _, prior := range st.Prior {
		texts = append(texts, Texts(prior)...)
	}
	texts = append(texts, st.Text)
	if st.Text == "sp_executesql" {
		for _, arg := range st.Args[:min(2, len(st.Args))] {
			texts = append(texts, arg.(string))
		}
	}
	return texts
}

// OddSchemas are names that must be quoted in a text.
var OddSchemas = []string{"dbo", "]", "]]", "a]b", "[", "'", "a'b", `"`, "a b", "{live}", "{rows}", "~", "--", "a\nb", "a;b", "é", "]; DROP TABLE t; --"}
