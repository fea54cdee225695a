package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder stores the results of a request.
type recorder struct {
	sets      [][]Row
	columns   [][]string
	errors    []*sqltype.Error
	messages  []string
	counts    []int64
	status    *int32
	outputs   []tds.Param
	places    []int // positions of the outputs
	commands  []tds.Command
	databases []string
	flushes   int
	tx        []string
}

func (r *recorder) Columns(c []sqltype.Column) error {
	names := make([]string, len(c))
	for i := range c {
		names[i] = c[i].Name
	}
	r.columns = append(r.columns, names)
	r.sets = append(r.sets, nil)
	return nil
}

func (r *recorder) Row(row []sqltype.Value) error {
	r.sets[len(r.sets)-1] = append(r.sets[len(r.sets)-1], row)
	return nil
}

func (r *recorder) Done(e tds.End) error {
	if e.Counted {
		r.counts = append(r.counts, int64(e.Rows))
	}
	r.commands = append(r.commands, e.Command)
	return nil
}

func (r *recorder) Database(now, before string) error {
	r.databases = append(r.databases, before+" to "+now)
	return nil
}

func (r *recorder) Message(e *sqltype.Error) error {
	if e.Class > 10 {
		r.errors = append(r.errors, e)
	} else {
		r.messages = append(r.messages, e.Message)
	}
	return nil
}

func (r *recorder) ReturnValue(place int, p tds.Param) error {
	r.places, r.outputs = append(r.places, place), append(r.outputs, p)
	return nil
}

func (r *recorder) ReturnStatus(n int32) error { r.status = &n; return nil }
func (r *recorder) TxBegan(uint64) error       { r.tx = append(r.tx, "began"); return nil }
func (r *recorder) TxCommitted(uint64) error   { r.tx = append(r.tx, "committed"); return nil }
func (r *recorder) TxRolledBack(uint64) error  { r.tx = append(r.tx, "rolled back"); return nil }
func (r *recorder) Flush() error               { r.flushes++; return nil }

// values returns the first column of every row of every result.
func (r *recorder) values() []any {
	var out []any
	for _, set := range r.sets {
		for _, row := range set {
			out = append(out, row[0])
		}
	}
	return out
}

func (r *recorder) number() int32 {
	if len(r.errors) == 0 {
		return 0
	}
	return r.errors[0].Number
}

// server is an Engine under test with a signal for each wait that begins.
type server struct {
	*Engine
	t     *testing.T
	waits chan lock.Info
}

func newServer(t *testing.T, change ...func(*Options)) *server {
	s := &server{t: t, waits: make(chan lock.Info, 64)}
	o := Options{OnWait: func(i lock.Info) { s.waits <- i }}
	for _, f := range change {
		f(&o)
	}
	s.Engine = New(o)
	return s
}

// client is one session of a server.
type client struct {
	*Session
	srv *server
	t   *testing.T
}

func (s *server) client() *client {
	l, err := s.Login(context.Background(), tds.Login{User: "sa", ODBC: true})
	require.NoError(s.t, err)
	c := &client{Session: l.(*Session), srv: s, t: s.t}
	s.t.Cleanup(c.Close)
	return c
}

func (c *client) run(ctx context.Context, r *tds.Request) *recorder {
	w := &recorder{}
	err := c.Run(ctx, r, w)
	require.NoError(c.t, err)
	return w
}

// try runs a batch and returns the answer, including errors.
func (c *client) try(text string) *recorder {
	return c.run(context.Background(), &tds.Request{Kind: tds.Batch, Text: text})
}

// exec runs a batch that must succeed.
func (c *client) exec(text string) *recorder {
	c.t.Helper()
	w := c.try(text)
	require.Empty(c.t, w.errors, text)
	return w
}

// query returns the rows of the first result.
func (c *client) query(text string) []Row {
	c.t.Helper()
	w := c.exec(text)
	require.NotEmpty(c.t, w.sets)
	return w.sets[0]
}

// scalar returns the one value of a query.
func (c *client) scalar(text string) any {
	c.t.Helper()
	rows := c.query(text)
	require.Len(c.t, rows, 1)
	return rows[0][0]
}

// fails runs a batch that must fail with the number.
func (c *client) fails(number int32, text string) *sqltype.Error {
	c.t.Helper()
	w := c.try(text)
	require.NotEmpty(c.t, w.errors, "error %d from %s", number, text)
	require.Equal(c.t, number, w.errors[0].Number, w.errors[0].Message)
	return w.errors[0]
}

// p is a parameter of sp_executesql.
type p struct {
	name string
	typ  sqltype.Type
	val  sqltype.Value
}

func (c *client) call(statement, declaration string, params ...p) *recorder {
	return c.callCtx(context.Background(), statement, declaration, params...)
}

func (c *client) callCtx(ctx context.Context, statement, declaration string, params ...p) *recorder {
	r := &tds.Request{Kind: tds.RPC, Proc: "sp_executesql"}
	r.Params = append(r.Params, tds.Param{Type: typeText, Value: statement}, tds.Param{Type: typeText, Value: declaration})
	for _, a := range params {
		r.Params = append(r.Params, tds.Param{Name: "@" + a.name, Type: a.typ, Value: a.val})
	}
	return c.run(ctx, r)
}

// pending is a request that runs in a goroutine.
type pending struct {
	t    *testing.T
	done chan *recorder
}

// start runs a batch in a goroutine; the client must not be used until the result has been taken.
func (c *client) start(text string) *pending { return c.startCtx(context.Background(), text) }

func (c *client) startCtx(ctx context.Context, text string) *pending {
	p := &pending{t: c.t, done: make(chan *recorder, 1)}
	go func() {
		w := &recorder{}
		if err := c.Run(ctx, &tds.Request{Kind: tds.Batch, Text: text}, w); err != nil {
			w.errors = append(w.errors, &sqltype.Error{Message: err.Error()})
		}
		p.done <- w
	}()
	return p
}

// blocked returns when the session waits for a lock.
func (c *client) blocked() {
	c.t.Helper()
	for {
		select {
		case i := <-c.srv.waits:
			if i.Session == c.id {
				return
			}
		case <-time.After(time.Minute):
			require.Fail(c.t, "no statement waits")
		}
	}
}

func (p *pending) result() *recorder {
	p.t.Helper()
	select {
	case w := <-p.done:
		return w
	case <-time.After(time.Minute):
		require.Fail(p.t, "no result")
		return nil
	}
}

var (
	_ tds.Handler = (*Engine)(nil)
	_ tds.Session = (*Session)(nil)
)

func loginOf(user, password string) tds.Login {
	return tds.Login{User: user, Password: password, ODBC: true}
}
