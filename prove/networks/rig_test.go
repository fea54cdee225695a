// Package networks runs chanq over failing networks: each test reaches its server through a proxy
// that it breaks, and checks the actual state over a direct connection.
package networks

import (
	"database/sql"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

func TestMain(m *testing.M) {
	if testdb.IsLong() {
		testdb.Together(32) // the minutes of silence should pass for all tests at once
	}
	goleak.VerifyTestMain(m)
}

// rig is a database behind a proxy. World has direct access to the same database, for checks.
type rig struct {
	*testdb.World
	proxy *netproxy.Proxy
	near  *sql.DB // through the proxy
}

var engines = []testdb.Engine{testdb.Emulator, testdb.Postgres, testdb.EmulatorSocket}

// onEach runs a test on each kind of server.
func onEach(t *testing.T, test func(*rig)) {
	testdb.OnEach(t, engines, func(w *testdb.World) { test(behindProxy(w)) })
}

func behindProxy(w *testdb.World) *rig {
	w.Within(2*hole + emptied)
	w.Open()
	r := &rig{World: w}
	r.proxy, r.near = w.BehindProxy()
	return r
}

// queues creates a queue and opens it on both sides.
func (r *rig) queues(name string, cfg chanq.Config) (near, truth *chanq.Queue[string]) {
	r.Helper()
	truth = r.Queue(name, chanq.Config{Spec: chanq.Spec{MaxAttempts: 1000}})
	return testdb.OpenOn[string](r, r.near, name, cfg), truth
}

// changes collects Availability events.
type changes struct {
	mu     sync.Mutex
	events []chanq.AvailabilityEvent
}

func (c *changes) add(e chanq.AvailabilityEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// of returns the changes of one part, in order: "down up".
func (c *changes) of(part string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, e := range c.events {
		switch {
		case e.Part != part:
		case e.Up:
			list = append(list, "up")
		default:
			list = append(list, "down")
		}
	}
	return strings.Join(list, " ")
}
