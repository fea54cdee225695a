package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/mssqltest/memnet"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// shapes are rows by the columns that they have in addition to ID and body.
var shapes = func() (shapes []sqlbatch.Row) {
	for bits := range 8 {
		var row sqlbatch.Row
		if bits&1 > 0 {
			row.Type = "order.paid"
		}
		if bits&2 > 0 {
			row.Key = "k"
		}
		if bits&4 > 0 {
			row.Headers = []byte("{}")
		}
		shapes = append(shapes, row)
	}
	return shapes
}()

// batchOf returns n rows of which the last has the columns of a shape.
func batchOf(n int, shape sqlbatch.Row) []sqlbatch.Row { return append(makeRows(n-1, 0), shape) }

func TestEnqueueRespectsTheParameterLimit(t *testing.T) {
	for _, n := range kinds {
		q, rows := sqlserver.Dialect.Queue(n), batchOf(sqlserver.Dialect.Traits().EnqueueRows, shapes[7])
		require.Equal(t, 2050, len(q.Enqueue(rows).Args)-2)
		require.Equal(t, 2050, len(q.EnqueueNew(rows).Args)-2, "2,098 are accepted")
		if n.Slots == 0 {
			rows[0].OnDuplicate = sqlbatch.Debounce
			require.Equal(t, 2051, len(q.EnqueueOver(rows).Args)-2)
		}
	}
}

// A server plans each text. A queue has at most 160 texts of its enqueues: ten sizes, eight shapes, for messages that are known to be new and
// for others. An ordered queue has half of that. Rows of EnqueueOver have 20 more, of one shape.
func TestEnqueuesHaveTenSizesOfEightShapes(t *testing.T) {
	for kind, names := range kinds {
		q, texts := sqlserver.Dialect.Queue(names), map[serverText]bool{}
		for _, shape := range shapes {
			for i := range 2*9 + 1 {
				n := 1<<(i/2) + i%2 // 1, 2, 2, 3, 4, 5, 8, 9 … 512
				rows := batchOf(n, shape)
				plain, fresh := q.Enqueue(rows), q.EnqueueNew(rows)
				texts[textOf(t, plain)], texts[textOf(t, fresh)] = true, true
				slots := strings.Count(plain.Args[1].(string), ",@b")
				require.GreaterOrEqual(t, slots, n)
				require.Less(t, slots, 2*n, "the smallest size that holds %d rows", n)
			}
		}
		require.Len(t, texts, map[string]int{"plain": 160, "ordered": 80}[kind])
		if kind == "ordered" {
			continue
		}
		clear(texts)
		for _, shape := range shapes {
			for i := range 10 {
				for _, shape.OnDuplicate = range []sqlbatch.OnDuplicate{sqlbatch.KeepQueued, sqlbatch.Replace, sqlbatch.Debounce} {
					texts[textOf(t, q.EnqueueOver(batchOf(1<<i, shape)))] = true
				}
			}
		}
		require.Len(t, texts, 20)
	}
}

// TestAnEnqueueNamesTheColumnsThatItsRowsHave: what no row of a batch has is neither in the text nor a parameter.
func TestAnEnqueueNamesTheColumnsThatItsRowsHave(t *testing.T) {
	q := sqlserver.Dialect.Queue(suite.Orders)
	optional := []string{"priority", "expires_at", "[type]", "dedup_key", "headers"}
	mark := []string{"priority", "expires_at", "[type]"}
	for _, c := range []struct {
		row        sqlbatch.Row
		named      []string
		parameters string // of each row
	}{
		{sqlbatch.Row{Body: []byte("b")}, nil, "b"},
		{sqlbatch.Row{Priority: sqlbatch.PriorityLow}, mark, "mb"},
		{sqlbatch.Row{Delay: 1}, mark, "mb"},
		{sqlbatch.Row{TTL: 1}, mark, "mb"},
		{sqlbatch.Row{Type: "t"}, mark, "mb"},
		{sqlbatch.Row{Key: "k"}, []string{"dedup_key"}, "kb"},
		{sqlbatch.Row{Headers: []byte{}}, []string{"headers"}, "hb"},
		{sqlbatch.Row{Type: "t", Key: "k", Headers: []byte("{}")}, optional, "mkhb"},
	} {
		for fresh, build := range []func([]sqlbatch.Row) sqlbatch.Statement{q.Enqueue, q.EnqueueNew} {
			st := build(batchOf(3, c.row))
			_, list, _ := strings.Cut(st.Args[0].(string), "INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (")
			list, _, _ = strings.Cut(list, ")")
			var named []string
			for _, column := range optional {
				if slices.Contains(strings.Split(list, ", "), column) {
					named = append(named, column)
				}
			}
			require.Equal(t, c.named, named, "%+v", c.row)
			require.Len(t, st.Args, 2+1+4*len(c.parameters), "text, declaration, list of IDs, and four rows")
			for i := range 4 {
				for _, parameter := range c.parameters {
					require.Contains(t, st.Args[1], fmt.Sprintf(",@%c%d ", parameter, i))
				}
			}
			probes, insert, _ := strings.Cut(st.Args[0].(string), "INSERT INTO [dbo].[chanq_orders]")
			require.Equal(t, fresh == 1 && c.row.Key != "", strings.Contains(probes, "e.dedup_key"), "only keys are looked for")
			require.NotContains(t, insert, "[dbo].[chanq_orders]", "the server would copy the rows, with their bodies, before it inserts into the table that it reads")
		}
	}
}

// TestTheBytesOfAMessage states what a client sends, headers of packets included, for messages with bodies of 100 bytes.
func TestTheBytesOfAMessage(t *testing.T) {
	q := newQueue(t, mssqltest.Options{})
	connector, err := mssql.NewConnector(q.DSN())
	require.NoError(t, err)
	wire := &counted{}
	connector.Dialer = wire
	db := sql.OpenDB(connector)
	defer db.Close()
	// bytesOf returns what the client sends for a statement.
	bytesOf := func(st sqlbatch.Statement, rows int) int {
		require.NoError(t, db.Ping())
		before := wire.sent
		got, err := suite.Rows(t.Context(), db, st)
		require.NoError(t, err)
		require.Len(t, got, rows)
		return wire.sent - before
	}
	for _, c := range []struct {
		what  string
		row   sqlbatch.Row
		rows  int
		bytes int // per message
	}{
		{"1 message", sqlbatch.Row{}, 1, 1212},
		{"16 messages", sqlbatch.Row{}, 16, 249},
		{"512 messages", sqlbatch.Row{}, 512, 196},
		{"512 with headers of 50 bytes", sqlbatch.Row{Headers: make([]byte, 50)}, 512, 306},
		{"512 with a type and a priority", sqlbatch.Row{Type: "order.paid", Priority: 1}, 512, 285},
		{"512 with a dedup key", sqlbatch.Row{Key: "k"}, 512, 320},
		{"512 with all", sqlbatch.Row{Type: "order.paid", Key: "k", Headers: make([]byte, 50)}, 512, 520},
	} {
		rows := make([]sqlbatch.Row, c.rows)
		for i := range rows {
			rows[i] = c.row
			rows[i].ID, rows[i].Body = newID(), make([]byte, 100)
			if c.row.Key != "" {
				rows[i].Key = fmt.Sprintf("%x", rows[i].ID)
			}
		}
		st := q.Enqueue(rows)
		if c.row.Key != "" {
			st = q.EnqueueNew(rows)
		}
		bytes := bytesOf(st, len(rows)*min(len(c.row.Key), 1)) / c.rows
		t.Logf("%s: %d bytes per message, %d of them text and declaration", c.what, bytes, 2*(len(st.Args[0].(string))+len(st.Args[1].(string)))/c.rows)
		require.LessOrEqual(t, bytes, c.bytes, c.what)
	}
	claim := bytesOf(q.Claim(claimTen), claimTen.Rows)
	t.Logf("a claim: %d bytes", claim)
	require.LessOrEqual(t, claim, 10_900)
}

// counted counts what a client sends.
type counted struct {
	memnet.Dialer
	sent int
}

type countedConn struct {
	net.Conn
	dialer *counted
}

func (d *counted) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	return countedConn{conn, d}, err
}

func (c countedConn) Write(b []byte) (int, error) {
	c.dialer.sent += len(b)
	return c.Conn.Write(b)
}

// TestTwoSendersThatFindAKeyFreeStoreOneMessage: both look for the key before one of them stores it.
func TestTwoSendersThatFindAKeyFreeStoreOneMessage(t *testing.T) {
	eachSetting(t, func(t *testing.T, ctx context.Context, q *queue, orders *chanq.Queue[int]) {
		const senders = 2
		var mu sync.Mutex
		looked, all := map[int]bool{}, make(chan struct{})
		q.SetHooks(mssqltest.Hooks{Before: func(_ context.Context, st mssqltest.Statement) error {
			if !strings.Contains(st.Text, "@new") || !strings.HasPrefix(strings.Split(st.Text, "\n")[st.Line-1], "INSERT INTO [dbo]") {
				return nil
			}
			mu.Lock()
			if looked[st.Session] = true; len(looked) == senders {
				q.SetHooks(mssqltest.Hooks{})
				close(all)
			}
			mu.Unlock()
			select {
			case <-all:
			case <-ctx.Done():
			}
			return nil
		}})
		receipts := make(chan chanq.Receipt, senders)
		for range senders {
			p, err := orders.Producer(ctx, chanq.ProducerConfig{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = p.Close(ctx) })
			go func() {
				receipt, err := p.Send(ctx, keyed("k"))
				if err != nil {
					t.Errorf("send: %v", err)
				}
				receipts <- receipt
			}()
		}
		a, b := <-receipts, <-receipts
		require.Len(t, looked, senders)
		require.NotEqual(t, a.Duplicate, b.Duplicate)
		require.Equal(t, a.ID, b.ID)
		require.Equal(t, [][]any{{int64(1)}}, q.rows(sqlbatch.Statement{Text: "SELECT COUNT_BIG(*) FROM dbo.chanq_orders"}))
	})
}

// TestASendThatWaitsForAKeyDoesNotHoldTheLockOfSenders: reads of the queue find their watermark meanwhile.
func TestASendThatWaitsForAKeyDoesNotHoldTheLockOfSenders(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newOrdered(t, 1, mssqltest.Options{Clock: mssqltest.Stopped()})
	row := func() []sqlbatch.Row { return []sqlbatch.Row{{ID: newID(), Key: "k", Body: []byte{1}}} }
	tx := begin(t, ctx, q.queue)
	stored, err := suite.Rows(ctx, tx, q.InTx().EnqueueNew(row()))
	require.NoError(t, err)
	require.Len(t, stored, 1)
	second := make(chan int, 1)
	go func() {
		stored, err := suite.Rows(ctx, q.DB(), q.EnqueueNew(row()))
		if err == nil {
			second <- len(stored)
		}
	}()
	require.Eventually(t, func() bool { return len(waiting(q.queue)) == 1 }, testdb.Patience, time.Millisecond, "for the key")
	for _, l := range q.Locks() {
		require.Empty(t, l.App)
	}
	require.NoError(t, tx.Commit())
	require.Zero(t, <-second)
}
