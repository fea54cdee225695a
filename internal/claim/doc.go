// Package claim decides which messages a consumer leases, and when. A Plain claims messages of a plain queue. An
// Ordered reads the slots of an ordered queue (Slots), where package order keeps each key's messages in order. A Pace
// limits the number of messages per claim. A Feed takes leases from a Source, which is the buffer of the Plain, or the
// Slots.
//
// # Files
//
// Both: pace.go, leases.go, holder.go (the consumer), neighbours.go (consumers of one process). Plain: plain.go
// (claims), wait.go (its pauses), intake.go (from rows to leases), source.go (the buffer), rescan.go and head.go,
// gate.go. Ordered: ordered.go (its pauses), reader.go and assignment.go (statements), slots.go (state in memory),
// membership.go.
//
// # Goroutines
//
// The consumer starts and joins one goroutine: Run of a Plain or an Ordered, which runs statements one after another
// until the consumer stops, and Finish after it. A Plain starts a goroutine for each rescan, one at
// a time; Finish joins them. The goroutine of the Feed calls Next. Other methods may be called at any time if their
// comments say so.
//
// # Locks
//
// Locks guard the buffer of a Plain, the Slots, a Membership, and the entries of all queues (neighbours). They are held
// briefly: no statement runs and no function of the caller is called under them.
//
// # Failures
//
// Those of a Plain are described in plain.go and rescan.go. Those of an Ordered:
//
//	a statement fails, or its outcome is unknown   package order handles it for each task: see order.Sequencer.Answer
//	the session was lost                           all messages are read again before new ones are delivered
//	the membership ends                            all slots are dropped; answers to earlier statements are discarded
//	another consumer owns a slot                   a read finds nothing, and the slots are checked next
//	the process dies                               the next owner marks all messages up to the last number drawn
//
// The package must not import session, settle or consume: it reaches a database through the interfaces PlainTable and
// OrderedTable, and the consumer that holds its leases by the interface Holder.
package claim
