// Package networks runs chanq over networks that fail: each test reaches its
// server through a proxy that it breaks, and watches the truth over a direct
// connection.
package networks

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/engine"
	"github.com/chanq/chanq/internal/testdb/netproxy"
	"github.com/chanq/chanq/internal/testdb/pgtest"
)

func TestMain(m *testing.M) {
	// These tests wait; they do not work. One minute of a silent network should pass
	// once for all of them.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long to wait for what must come.
const patience = time.Minute

// rig is a database behind a proxy.
type rig struct {
	*testing.T
	proxy *netproxy.Proxy
	near  *sql.DB // through the proxy
	truth *sql.DB // beside it
}

// onEach runs a test on each kind of server.
func onEach(t *testing.T, test func(*rig)) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *rig{"PostgreSQL": postgres, "SQLServerStandIn": standIn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(start(t))
		})
	}
}

func postgres(t *testing.T) *rig {
	config := pgtest.Config(t)
	network, address := "tcp", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	if strings.HasPrefix(config.Host, "/") {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
	}
	r := &rig{T: t, proxy: netproxy.Start(t, network, address), truth: stdlib.OpenDB(*config)}
	near := config.Copy()
	near.Host, near.Port = "127.0.0.1", uint16(r.proxy.Addr().Port)
	near.TLSConfig, near.Fallbacks = nil, nil
	r.near = stdlib.OpenDB(*near)
	return r.closing()
}

// standIn has go-mssqldb as it is: it looks at no context while it waits for a
// server's greeting, or for room to write.
func standIn(t *testing.T) *rig { return standInWith(t, url.Values{}) }

// standInWithDeadlines has go-mssqldb give up a read or write after a while.
func standInWithDeadlines(t *testing.T) *rig {
	return standInWith(t, url.Values{"connection timeout": {"5"}})
}

func standInWith(t *testing.T, options url.Values) *rig {
	dsn, err := url.Parse(mssqltest.Start(t, mssqltest.Options{Clock: engine.RealClock{}}).DSN())
	require.NoError(t, err)
	r := &rig{T: t, proxy: netproxy.Start(t, "tcp", dsn.Host)}
	r.truth, err = sql.Open("sqlserver", dsn.String())
	require.NoError(t, err)
	dsn.Host = r.proxy.Addr().String()
	query := dsn.Query()
	for name := range options {
		query.Set(name, options.Get(name))
	}
	dsn.RawQuery = query.Encode()
	r.near, err = sql.Open("sqlserver", dsn.String())
	require.NoError(t, err)
	return r.closing()
}

func (r *rig) closing() *rig {
	r.Cleanup(func() {
		r.proxy.Set(netproxy.Conditions{})
		r.proxy.Close()
		require.NoError(r, r.near.Close())
		require.NoError(r, r.truth.Close())
	})
	return r
}

// queues makes a queue and opens it on both sides.
func (r *rig) queues(name string, hooks chanq.Hooks) (near, truth *chanq.Queue[string]) {
	r.Helper()
	require.NoError(r, chanq.Migrate(r.Context(), r.truth, name, chanq.Config{}))
	truth, err := chanq.Open[string](r.Context(), r.truth, name, chanq.Config{MaxAttempts: 1000})
	require.NoError(r, err)
	near, err = chanq.Open[string](r.Context(), r.near, name, chanq.Config{MaxAttempts: 1000, Hooks: hooks})
	require.NoError(r, err)
	return near, truth
}

// send stores a message over the direct connection.
func (r *rig) send(q *chanq.Queue[string], body string) chanq.ID {
	r.Helper()
	p, err := q.Producer(chanq.ProducerConfig{})
	require.NoError(r, err)
	receipt, err := p.Send(r.soon(), chanq.Message[string]{Body: body})
	require.NoError(r, err)
	require.NoError(r, p.Close(r.soon()))
	return receipt.ID
}

// take receives a lease.
func (r *rig) take(c *chanq.Consumer[string]) *chanq.Lease[string] {
	r.Helper()
	select {
	case l, open := <-c.C():
		require.True(r, open, "the channel closed: %v", c.Err())
		return l
	case <-time.After(patience):
		require.Fail(r, "nothing is delivered")
	}
	return nil
}

func (r *rig) eventually(what string, is func() bool) {
	r.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !is(); <-tick.C {
		require.True(r, time.Now().Before(deadline), "it never came to this: %s", what)
	}
}

// soon is a context for calls that must return.
func (r *rig) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.Cleanup(cancel)
	return ctx
}

// changes collects the events of the Availability hook.
type changes struct {
	mu     sync.Mutex
	events []chanq.AvailabilityEvent
}

func (c *changes) add(e chanq.AvailabilityEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// of tells the changes of one part, in order: "down up".
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
