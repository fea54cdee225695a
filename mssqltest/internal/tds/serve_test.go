package tds_test

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an expected event.
const patience = time.Minute

// tick is how often a test checks for an expected event.
const tick = time.Millisecond

// fakeHandler is a Handler whose sessions answer with a function of the test.
type fakeHandler struct {
	admit func(tds.Login) error
	run   func(context.Context, *tds.Request, tds.Results) error

	mu     sync.Mutex
	logins []tds.Login
	opened int
	closed int
}

func (h *fakeHandler) Login(_ context.Context, l tds.Login) (tds.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logins = append(h.logins, l)
	if h.admit != nil {
		if err := h.admit(l); err != nil {
			return nil, err
		}
	}
	h.opened++
	return fakeSession{h}, nil
}

func (h *fakeHandler) counts() (opened, closed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened, h.closed
}

type fakeSession struct{ h *fakeHandler }

func (s fakeSession) Run(ctx context.Context, r *tds.Request, w tds.Results) error {
	return s.h.run(ctx, r, w)
}

func (s fakeSession) Close() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.h.closed++
}

// serve starts a server on loopback that is closed at the end of the test.
func serve(t testing.TB, h *fakeHandler, options tds.Options) *tds.Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := tds.Serve(ln, h, options)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		opened, closed := h.counts()
		require.Equal(t, opened, closed, "every session is closed")
	})
	return s
}

// open connects the driver to s; more are further settings of its DSN.
func open(t testing.TB, s *tds.Server, more ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlserver", dsn(s, more...))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// dsn requests no encryption and one attempt to connect, unless more has other options.
func dsn(s *tds.Server, more ...string) string {
	query := url.Values{"database": {"chanq"}, "encrypt": {"disable"}}
	for _, setting := range more {
		key, value, _ := strings.Cut(setting, "=")
		query.Set(key, value)
	}
	u := url.URL{Scheme: "sqlserver", User: url.UserPassword("sa", "päss word€"), Host: s.Addr().String(), RawQuery: query.Encode()}
	return u.String()
}

// within returns a context for quick operations.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// answer runs the functions in order, each writing a part of an answer.
func answer(parts ...func(tds.Results) error) func(context.Context, *tds.Request, tds.Results) error {
	return func(_ context.Context, _ *tds.Request, w tds.Results) error {
		for _, part := range parts {
			if err := part(w); err != nil {
				return err
			}
		}
		return nil
	}
}

func columns(c ...sqltype.Column) func(tds.Results) error {
	return func(w tds.Results) error { return w.Columns(c) }
}

func row(v ...sqltype.Value) func(tds.Results) error {
	return func(w tds.Results) error { return w.Row(v) }
}

func counted(n uint64) func(tds.Results) error {
	return func(w tds.Results) error { return w.Done(tds.End{Rows: n, Counted: true}) }
}

func message(e sqltype.Error) func(tds.Results) error {
	return func(w tds.Results) error { return w.Message(&e) }
}

// echo answers a procedure call with one row: the values of its parameters from the given one on, in columns of their
// types.
func echo(from int) func(context.Context, *tds.Request, tds.Results) error {
	return func(_ context.Context, r *tds.Request, w tds.Results) error {
		var cols []sqltype.Column
		var values []sqltype.Value
		for _, p := range r.Params[from:] {
			cols = append(cols, sqltype.Column{Name: strings.TrimPrefix(p.Name, "@"), Type: p.Type, Nullable: true})
			values = append(values, p.Value)
		}
		return answer(columns(cols...), row(values...), func(w tds.Results) error { return w.Done(tds.End{Rows: 1, Counted: true, InProc: true}) })(nil, r, w)
	}
}

// nothing answers as for a statement without rows or count.
func nothing(_ context.Context, _ *tds.Request, w tds.Results) error { return w.Done(tds.End{}) }

func intColumn(name string) sqltype.Column {
	return sqltype.Column{Name: name, Type: sqltype.Type{Kind: sqltype.Int}, Nullable: true}
}

// mssqlError returns the driver's error inside err.
func mssqlError(t testing.TB, err error) mssql.Error {
	t.Helper()
	var e mssql.Error
	require.ErrorAs(t, err, &e)
	return e
}
