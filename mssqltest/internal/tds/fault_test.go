package tds_test

import (
	"context"
	"database/sql"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// once is a hook that acts on the first request with that text.
func once(text string, a tds.Action) func(*tds.Conn, *tds.Request) tds.Action {
	var done atomic.Bool
	return func(_ *tds.Conn, r *tds.Request) tds.Action {
		if r.Text == text && done.CompareAndSwap(false, true) {
			return a
		}
		return tds.Action{}
	}
}

func TestAResetBeforeARequestLosesItAndOneAfterLosesItsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		options  tds.Options
		executed int
	}{
		"before": {tds.Options{Before: once("write it", tds.Action{Fault: tds.Reset})}, 0},
		"after":  {tds.Options{After: once("write it", tds.Action{Fault: tds.Reset})}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var rec recorder
			s := serve(t, &fakeHandler{run: transactional(&rec)}, c.options)
			db := open(t, s, "disableretry=true")
			_, err := db.ExecContext(within(t), "write it")
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.Len(t, rec.take(), c.executed)
			_, err = db.ExecContext(within(t), "write it")
			require.NoError(t, err)
			require.Len(t, rec.take(), 1)
		})
	}
}

func TestAHungConnectionAnswersNothingUntilItIsKilled(t *testing.T) {
	hung, observed := make(chan struct{}), make(chan tds.Exchange, 1)
	s := serve(t, &fakeHandler{run: nothing}, tds.Options{
		After: func(*tds.Conn, *tds.Request) tds.Action {
			close(hung)
			return tds.Action{Fault: tds.Hang}
		},
		Observe: func(_ *tds.Conn, e tds.Exchange) { observed <- e },
	})
	db := open(t, s)
	failed := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := db.ExecContext(ctx, "write it")
		failed <- err
	}()
	<-hung
	require.Empty(t, observed)
	s.Conns()[0].Kill()
	require.ErrorIs(t, <-failed, syscall.ECONNRESET)
	e := <-observed
	require.True(t, e.Lost)
	require.Zero(t, e.ResponseBytes)
}

func TestAHungConnectionEndsWhenItsClientLeaves(t *testing.T) {
	hung := make(chan struct{})
	h := &fakeHandler{run: nothing}
	s := serve(t, h, tds.Options{Before: func(*tds.Conn, *tds.Request) tds.Action {
		close(hung)
		return tds.Action{Fault: tds.Hang}
	}})
	client := &leaver{}
	connector, err := mssql.NewConnector(dsn(s))
	require.NoError(t, err)
	connector.Dialer = client
	db := sql.OpenDB(connector)
	defer db.Close()
	failed := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := db.ExecContext(ctx, "write it")
		failed <- err
	}()
	<-hung
	client.leave()
	require.Error(t, <-failed)
	require.Eventually(t, func() bool { return len(s.Conns()) == 0 }, patience, tick)
}

// leaver is a Dialer whose connections end when it leaves.
type leaver struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (l *leaver) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *leaver) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

func TestADelayHoldsTheAnswerAndAnAttentionEndsIt(t *testing.T) {
	cancel := func() {}
	delay := func(text string) func(*tds.Conn, *tds.Request) tds.Action {
		return func(_ *tds.Conn, r *tds.Request) tds.Action {
			if r.Text != text {
				return tds.Action{}
			}
			cancel()
			return tds.Action{Delay: time.Hour}
		}
	}
	s := serve(t, &fakeHandler{run: nothing}, tds.Options{Before: delay("slow one"), After: delay("late one")})
	db := open(t, s)
	for _, text := range []string{"slow one", "late one"} {
		ctx, end := context.WithCancel(within(t))
		defer end()
		cancel = end
		_, err := db.ExecContext(ctx, text)
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := db.ExecContext(within(t), "select 1")
	require.NoError(t, err)
	require.Equal(t, 51, s.Conns()[0].ID())
}

func TestAnInjectedErrorTakesTheRequestsPlaceOrFollowsIt(t *testing.T) {
	busy := sqltype.Error{Number: 40501, State: 1, Class: 17, Message: "The service is currently busy."}
	rows := answer(columns(intColumn("n")), row(int64(1)), counted(1))
	for name, c := range map[string]struct {
		options tds.Options
		rows    int
	}{
		"before": {tds.Options{Before: once("read it", tds.Action{Error: &busy})}, 0},
		"after":  {tds.Options{After: once("read it", tds.Action{Error: &busy})}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
				ran++
				return rows(ctx, r, w)
			}}
			var v any
			db := open(t, serve(t, h, c.options))
			err := queryOne(within(t), db, &v, "read it")
			require.Equal(t, int32(40501), mssqlError(t, err).Number)
			require.Equal(t, c.rows, ran)
			require.Equal(t, c.rows == 1, v == int64(1))
			require.NoError(t, queryOne(within(t), db, &v, "read it"))
		})
	}
}

func TestObserveIsCalledBeforeTheClientGetsItsAnswer(t *testing.T) {
	var mu sync.Mutex
	var seen []tds.Exchange
	var ids []int
	options := tds.Options{Observe: func(c *tds.Conn, e tds.Exchange) {
		mu.Lock()
		defer mu.Unlock()
		seen, ids = append(seen, e), append(ids, c.ID())
	}}
	ctx, cancel := context.WithCancel(within(t))
	h := &fakeHandler{run: func(ctx context.Context, r *tds.Request, w tds.Results) error {
		if r.Text == "wait long" {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		return answer(columns(intColumn("n")), row(int64(1)), row(int64(2)), counted(2))(ctx, r, w)
	}}
	db := open(t, serve(t, h, options))
	var v any
	require.NoError(t, queryOne(within(t), db, &v, "read it"))
	require.Len(t, seen, 1)
	e := seen[0]
	require.Equal(t, []int{51}, ids)
	require.Equal(t, "read it", e.Requests[0].Text)
	require.Equal(t, 2, e.Rows)
	// Header, ALL_HEADERS with the transaction descriptor, text.
	require.Equal(t, 8+22+2*len("read it"), e.RequestBytes)
	require.Equal(t, e.RequestBytes, e.Requests[0].Bytes)
	// Header, ENVCHANGE that acknowledges the reset, COLMETADATA of one column,
	// two rows of an int, DONE.
	require.Equal(t, 8+6+(1+2+4+2+2+1+2)+2*(1+1+4)+13, e.ResponseBytes)
	require.Positive(t, e.Took)
	require.False(t, e.Interrupted)
	require.False(t, e.Lost)

	_, err := db.ExecContext(ctx, "wait long")
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, seen, 2)
	require.True(t, seen[1].Interrupted)
	// Header, ENVCHANGE that acknowledges the reset, DONE; header, DONE that acknowledges the attention.
	require.Equal(t, 8+6+13+8+13, seen[1].ResponseBytes)
}

func TestALostAnswerIsObservedAsLost(t *testing.T) {
	observed := make(chan tds.Exchange, 1)
	options := tds.Options{
		After:   once("write it", tds.Action{Fault: tds.Reset}),
		Observe: func(_ *tds.Conn, e tds.Exchange) { observed <- e },
	}
	db := open(t, serve(t, &fakeHandler{run: nothing}, options))
	_, err := db.ExecContext(within(t), "write it")
	require.Error(t, err)
	require.True(t, (<-observed).Lost)
}
