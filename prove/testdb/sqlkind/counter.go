package sqlkind

import (
	"sync"

	"github.com/chanq/chanq/mssqltest"
)

// Counter counts the requests that reach a server, by kind. Its Count is for mssqltest.Options.OnRequest. It is safe for
// concurrent use; the zero value is ready.
type Counter struct {
	mu sync.Mutex
	n  map[Kind]int64
}

// Count counts a request.
func (c *Counter) Count(r mssqltest.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[Kind]int64{}
	}
	c.n[Of(r)]++
}

// Take returns the counts since the last call.
func (c *Counter) Take() map[Kind]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = nil
	return n
}
