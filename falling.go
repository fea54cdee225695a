package chanq

import (
	"github.com/chanq/chanq/internal/session"
)

// What becomes of a consumer of which something panics: it ends, with an error.

// caught ends the consumer by a panic of one of its goroutines, which is a fault of chanq's:
// those of drivers and of the user's functions are caught where they are called. What is
// delivered may still be settled, for LeaseFor; then it is given up. It is to be deferred.
func (c *Consumer[T]) caught() {
	if p := recover(); p != nil {
		c.fell(panicked(p))
	}
}

func (c *Consumer[T]) fell(err error) {
	c.broken(&OpError{Op: "consume", Queue: c.queue.name, Err: err})
	notify(c.fallen)
}

// mind ends the consumer where an error, of a statement that is made again whatever becomes of
// it, is of a panic.
func (c *Consumer[T]) mind(op string, err error) {
	if session.Panicked(err) {
		c.broken(c.queue.fail(op, err))
	}
}

// tell is the report of a chore.
func (c *Consumer[T]) tell(h *housework, err error) {
	h.report(err)
	c.mind(h.op, err)
}
