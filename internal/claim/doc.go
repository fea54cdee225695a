// Package claim decides which messages of an ordered queue a consumer delivers. Its Reader owns slots, reads their messages
// with plain SELECTs and keeps each key's messages in order with package order.
//
// One goroutine of the consumer calls Step, which runs at most one statement. Other goroutines may call the other methods of
// a Reader at any time. Everything is decided under the Reader's mutex and done after it: no statement runs under it, and
// nothing of the caller is called under it.
//
// What a failure does:
//
//	a statement fails, or its outcome is unknown   package order has an answer for each task: see order.Sequencer.Answer
//	the session was lost                           all messages are read again before new ones are delivered
//	the membership ends                            all slots are dropped; answers of statements sent before are discarded
//	another consumer owns a slot                   a read finds nothing; a look at the slots follows
//	the process dies                               the next owner marks all messages up to the last number drawn
package claim
