package networks

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

// bound is the deadline of a shutdown, and slack how much later it may return on a loaded machine.
// slack is less than go-mssqldb takes to give up a statement, and far less than the statement
// timeout.
const (
	bound   = time.Second
	slack   = 10 * time.Second
	givesUp = 15 * time.Second
)

// silent makes a server stop responding while statements are in progress.
func silent(r *rig) { r.proxy.Set(netproxy.Silence) }

// mute makes a server cut its connections, and accept new ones without a greeting.
func mute(r *rig) {
	r.proxy.Set(netproxy.Silence)
	r.proxy.Reset()
	r.Eventually("the consumer tries to connect", func() bool { return r.proxy.Open() > 0 })
}

// These tests run one after another, so that each can check what it leaves behind.

func TestShutdownIsBoundedWhenTheServerIsSilent(t *testing.T) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) { dies(t, e, silent) })
	}
}

func TestShutdownIsBoundedWhenTheServerDoesNotGreet(t *testing.T) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) { dies(t, e, mute) })
	}
}

func dies(t *testing.T, e testdb.Engine, die func(*rig)) {
	if connect := e.Connect; e.Dialect.Name() == "sqlserver" {
		// go-mssqldb gives up a read or write after a while. By default it checks no context while
		// it waits for a server's greeting or for room to write.
		e.Connect = func(dsn string) (driver.Connector, error) {
			return connect(fmt.Sprintf("%s&connection+timeout=%d", dsn, int(givesUp.Seconds())))
		}
	}
	testdb.Run(t, e, func(w *testdb.World) { shutdown(behindProxy(w), die) })
}

func shutdown(r *rig, die func(*rig)) {
	near, truth := r.queues("work", chanq.Config{})
	for _, body := range []string{"held", "acked"} {
		testdb.Send(r, truth, testdb.Texts(body)...)
	}
	before := goleak.IgnoreCurrent()
	c, err := near.Consume(context.Background(), chanq.ConsumerConfig{})
	require.NoError(r, err)
	// One statement for all messages, larger than a connection accepts before it blocks.
	p, err := near.Producer(context.Background(), chanq.ProducerConfig{BatchBytes: 32 << 20})
	require.NoError(r, err)
	held, acked := testdb.Take(r, c, 1)[0], testdb.Take(r, c, 1)[0]
	_, err = p.Send(r.Soon(), chanq.Message[string]{Body: "connects the producer"})
	require.NoError(r, err)
	testdb.Take(r, c, 1) // also held

	die(r)
	require.NoError(r, acked.Ack())
	var bodies []string
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		bodies = append(bodies, name)
		p.C() <- chanq.Message[string]{Body: name + strings.Repeat(".", 900<<10)}
	}

	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	began := time.Now()
	err = c.Shutdown(ctx)
	require.Less(r, time.Since(began), bound+6*time.Second+slack)
	require.ErrorIs(r, err, context.DeadlineExceeded)
	require.ErrorContains(r, err, "leases not settled: 2, settles not confirmed: 1")

	ctx, cancel = context.WithTimeout(context.Background(), bound)
	defer cancel()
	began = time.Now()
	err = p.Close(ctx)
	require.Less(r, time.Since(began), bound+slack)
	var unsent *chanq.UnsentError[string]
	require.ErrorAs(r, err, &unsent)
	var back []string
	for _, u := range unsent.Unsent {
		back = append(back, u.Message.Body[:1])
		require.False(r, u.Message.ID.IsZero(), "the message can be sent again")
		require.Error(r, u.Err)
	}
	require.ElementsMatch(r, bodies, back)

	var op *chanq.OpError
	require.ErrorAs(r, acked.Wait(r.Soon()), &op)
	require.ErrorIs(r, held.Ack(), chanq.ErrLeaseLost)

	closed := make(chan error, 1)
	go func() { closed <- r.near.Close() }()
	select {
	case err := <-closed:
		require.NoError(r, err)
	case <-time.After(testdb.Patience):
		require.Fail(r, "the *sql.DB does not close")
	}
	// No goroutines of chanq or its driver are left, although the network is still silent and the
	// statement timeout of 30 s has not passed. Goroutines of the proxy and the server for its
	// connections are ignored.
	others := []goleak.Option{before}
	for _, f := range []string{"netproxy.(*link).run", "netproxy.(*link).forward", "netproxy.(*link).forward.func1",
		"mssqltest/internal/tds.(*Conn).serve", "mssqltest/internal/tds.(*Conn).serve.func2"} {
		others = append(others, goleak.IgnoreAnyFunction("github.com/chanq/chanq/prove/testdb/"+f))
	}
	// pgx tries for 15 s to cancel an abandoned statement.
	others = append(others, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
	var left error
	for deadline := time.Now().Add(givesUp + 45*time.Second); time.Now().Before(deadline); {
		if left = goleak.Find(others...); left == nil {
			break
		}
	}
	require.NoError(r, left)
}
