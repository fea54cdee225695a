package mssqltest

import (
	"sync"

	"github.com/chanq/chanq/mssqltest/tds"
)

// Counter counts the requests that reach a server, by kind. Its Observe is for tds.Options. It is safe for
// concurrent use; the zero value is ready.
type Counter struct {
	mu sync.Mutex
	n  map[Kind]int64
}

// Observe counts the requests of an exchange.
func (c *Counter) Observe(_ *tds.Conn, e tds.Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[Kind]int64{}
	}
	for _, r := range e.Requests {
		c.n[RequestOf(r).Kind]++
	}
}

// Take returns the counts since the last call.
func (c *Counter) Take() map[Kind]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = nil
	return n
}
