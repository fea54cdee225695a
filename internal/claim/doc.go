// Package claim decides which messages a consumer leases, and when. A Plain claims those of a plain queue. An Ordered reads those of
// the Slots of an ordered queue, in which package order keeps each key's messages in order. A Pace says how many messages there is room
// for. A Feed takes the leases from a Source: the buffer of the Plain, or the Slots.
//
// # Files
//
// Of both: pace.go, leases.go, holder.go (the consumer), neighbours.go (consumers of one process). Of a Plain: plain.go (claims),
// wait.go (its pauses), intake.go (from rows to leases), source.go (the buffer), rescan.go and head.go, careful.go (suspects), gate.go. Of
// an Ordered: ordered.go (its pauses), reader.go and assignment.go (statements), slots.go (what is in memory), membership.go.
//
// # Goroutines
//
// The consumer starts and joins them: Run of a Plain or an Ordered, which runs one statement after the other until the consumer
// stops, and later Finish. A Plain starts one for a rescan that claims do not wait for, which Finish joins. The goroutine of the Feed
// calls Next. Other methods may be called at any time where it is said so.
//
// # Locks
//
// Those of the buffer of a Plain, of the Slots, of a Membership, of the entries of all queues (neighbours), and of the turn to try a
// suspect (process). All are held for moments: no statement runs under them, and nothing of the caller is called under them.
//
// # Failures
//
// Those of a Plain are in plain.go, rescan.go and careful.go. Of a Reader:
//
//	a statement fails, or its outcome is unknown   package order has an answer for each task: see order.Sequencer.Answer
//	the session was lost                           all messages are read again before new ones are delivered
//	the membership ends                            all slots are dropped; answers of statements sent before are discarded
//	another consumer owns a slot                   a read finds nothing; a look at the slots follows
//	the process dies                               the next owner marks all messages up to the last number drawn
//
// The package must not import session, settle or consume: it reaches a database through the interfaces PlainTable and OrderedTable,
// and the consumer that holds its leases through the functions of a Holder.
package claim
