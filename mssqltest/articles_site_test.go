package mssqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-sql/sqlexp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq/mssqltest"
)

// site is a server on which an article's scripts have run. Its context has a
// deadline, so that a statement that blocks permanently fails the test.
type site struct {
	*mssqltest.Server
	t   *testing.T
	ctx context.Context
}

// session runs statements: a connection or a transaction on one.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func newSite(t *testing.T, scripts ...string) *site {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s := &site{Server: mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()}), t: t, ctx: ctx}
	c := s.connect()
	for _, script := range scripts {
		for _, batch := range articleBatches(t, script) {
			s.exec(c, batch)
		}
	}
	return s
}

// connect opens a separate session.
func (s *site) connect() *sql.Conn {
	s.t.Helper()
	c, err := s.DB().Conn(s.ctx)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// begin opens a transaction on a separate session. The session never waits for a lock: a statement that would wait gets
// 1222.
func (s *site) begin() *sql.Tx {
	s.t.Helper()
	c := s.connect()
	s.exec(c, "SET LOCK_TIMEOUT 0")
	tx, err := c.BeginTx(s.ctx, nil)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (s *site) exec(on session, batch string) {
	s.t.Helper()
	_, err := on.ExecContext(s.ctx, batch)
	require.NoError(s.t, err, "%s", batch)
}

// query returns the batch's result sets.
func (s *site) query(on session, batch string) [][][]any {
	s.t.Helper()
	sets, err := s.try(on, batch)
	require.NoError(s.t, err, "%s", batch)
	return sets
}

// column returns a column of the batch's only result set.
func (s *site) column(on session, batch string, column int) []string {
	s.t.Helper()
	sets := s.query(on, batch)
	require.Len(s.t, sets, 1, "%s", batch)
	return columnOf(sets[0], column)
}

func (s *site) try(on session, batch string) ([][][]any, error) {
	rows, err := on.QueryContext(s.ctx, batch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var sets [][][]any
	for {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		set := [][]any{}
		for rows.Next() {
			row := make([]any, len(columns))
			to := make([]any, len(columns))
			for i := range row {
				to[i] = &row[i]
			}
			if err := rows.Scan(to...); err != nil {
				return nil, err
			}
			set = append(set, row)
		}
		if len(columns) > 0 {
			sets = append(sets, set)
		}
		if !rows.NextResultSet() {
			return sets, rows.Err()
		}
	}
}

func columnOf(set [][]any, column int) []string {
	values := make([]string, len(set))
	for i, row := range set {
		if b, ok := row[column].([]byte); ok {
			values[i] = string(b)
		} else {
			values[i] = fmt.Sprint(row[column])
		}
	}
	return values
}

// printed returns the messages that a batch without rows printed, when it has ended.
func (s *site) printed(on session, batch string) ([]string, error) {
	var messages sqlexp.ReturnMessage
	rows, err := on.QueryContext(s.ctx, batch, &messages)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var lines []string
	for {
		switch m := messages.Message(s.ctx).(type) {
		case sqlexp.MsgNotice:
			lines = append(lines, m.Message.String())
		case sqlexp.MsgError:
			return lines, m.Error
		case sqlexp.MsgNextResultSet:
			if !rows.NextResultSet() {
				return lines, s.ctx.Err()
			}
		}
	}
}

// awaitWaiting returns when n statements are in WAITFOR.
func (s *site) awaitWaiting(n int) {
	s.t.Helper()
	for {
		changed := s.Clock().Changed()
		if s.Clock().Waiting() == n {
			return
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			require.FailNow(s.t, "no further statement reached WAITFOR", "%d wait, not %d", s.Clock().Waiting(), n)
		}
	}
}

// drain runs concurrent pollers until total items are delivered, and returns the items.
func (s *site) drain(pollers, total int, take func(*sql.Conn) ([]string, error)) []string {
	s.t.Helper()
	var handed atomic.Int64
	items := make([][]string, pollers)
	group, ctx := errgroup.WithContext(s.ctx)
	for i := range pollers {
		c := s.connect()
		group.Go(func() error {
			for handed.Load() < int64(total) {
				if err := ctx.Err(); err != nil {
					return err
				}
				got, err := take(c)
				if err != nil {
					return err
				}
				handed.Add(int64(len(got)))
				items[i] = append(items[i], got...)
			}
			return nil
		})
	}
	require.NoError(s.t, group.Wait(), "%d of %d were delivered", handed.Load(), total)
	var all []string
	for _, some := range items {
		all = append(all, some...)
	}
	return all
}

// numbers returns "1" to n as text.
func numbers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i + 1)
	}
	return all
}
