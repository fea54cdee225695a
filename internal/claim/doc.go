// Package claim decides which messages a consumer leases, and when. A Plain claims those of a plain queue, and an Ordered reads
// those of an ordered queue, whose Reader owns slots and keeps each key's messages in order with package order. A Pace
// says how many messages there is room for. Both are a Source of leases, which a Feed takes from them.
//
// # Files
//
// Of both: pace.go, leases.go, gate.go, neighbours.go (consumers of one queue in a process). Of a Plain: plain.go, plain_deliver.go,
// head.go, rescan.go, wait.go, careful.go, source.go (its buffer). Of an Ordered: ordered.go, reader.go, reader_deliver.go,
// assignment.go, membership.go.
//
// # Goroutines
//
// The consumer starts and joins them: Run of a Plain or an Ordered, which runs one statement after the other until the consumer
// stops, and later Vacate of an Ordered. A Plain starts one for a rescan that claims do not wait for, which Close joins. The goroutine of the Feed
// calls Next. Other methods may be called at any time where it is said so.
//
// # Locks
//
// That of the buffer of a Plain, that of a Reader, that of a Pace's counts, and one for all Neighbours. All are held for moments: no
// statement runs under them, and nothing of the caller is called under them.
//
// # Failures
//
// Those of a Plain are in plain.go and careful.go. Of a Reader:
//
//	a statement fails, or its outcome is unknown   package order has an answer for each task: see order.Sequencer.Answer
//	the session was lost                           all messages are read again before new ones are delivered
//	the membership ends                            all slots are dropped; answers of statements sent before are discarded
//	another consumer owns a slot                   a read finds nothing; a look at the slots follows
//	the process dies                               the next owner marks all messages up to the last number drawn
//
// The package must not import session, settle or consume: it reaches a database through the interfaces PlainTable and OrderedTable,
// and the leases of its consumer through the interface Consumer.
package claim
