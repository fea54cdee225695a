package chanq

import (
	"github.com/chanq/chanq/internal/session"
)

// What becomes of a consumer of which something panics: it ends, with an error. A producer goes on:
// the panic is the outcome of the messages that were at hand (store.go).

// caught ends the consumer by a panic of one of its goroutines, which is a fault of chanq's:
// those of drivers and of the user's functions are caught where they are called. What is
// delivered may still be settled, for LeaseFor; then it is given up. It is to be deferred.
func (c *shardConsumer[T]) caught() {
	if p := recover(); p != nil {
		c.fell(panicked(p))
	}
}

func (c *shardConsumer[T]) fell(err error) {
	c.broken(&OpError{Op: "consume", Queue: c.queue.name, Shard: c.queue.shard, Err: err})
	notify(c.fallen)
}

// mind ends the owner of leases where an error, of a statement that is made again whatever becomes
// of it, is of a panic.
func mind(o leaseOwner, op string, err error) {
	if session.Panicked(err) {
		o.broken(o.home().fail(op, err))
	}
}

// tell is the report of a chore.
func (c *shardConsumer[T]) tell(h *housework, err error) {
	h.report(err)
	mind(c, h.op, err)
}
