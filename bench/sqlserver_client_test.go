package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// BenchmarkSQLServerClient measures what statements for SQL Server cost the client: an operation builds and sends one, and reads an answer
// that was recorded. It compares the statements with the alternatives of docs/internals/decisions.md: four named parameters per row, as in
// earlier versions; names for the parameters; and a handle from sp_prepare in place of the text.
func BenchmarkSQLServerClient(b *testing.B) {
	dsn, stop, err := startEmulator()
	require.NoError(b, err)
	b.Cleanup(func() { _ = stop() })
	connector, err := mssql.NewConnector(dsn)
	require.NoError(b, err)
	tape := &tape{}
	connector.Dialer = tape
	db := sql.OpenDB(connector)
	b.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(b.Context())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	_, err = conn.ExecContext(b.Context(), "sp_executesql", "SET NOCOUNT ON")
	require.NoError(b, err)
	tape.replay = true

	run := func(name string, messages int, build func() sqlbatch.Statement) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			tape.sent = 0
			cpu := measure.CPUTime()
			for range b.N {
				st := build()
				if _, err := conn.ExecContext(context.Background(), st.Text, st.Args...); err != nil {
					b.Fatal(err)
				}
			}
			n := float64(b.N * messages)
			b.ReportMetric(float64(measure.CPUTime()-cpu)/n, "cpu-ns/msg")
			b.ReportMetric(float64(tape.sent)/n, "B/msg")
		})
	}
	q := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	for _, n := range []int{1, 16, 512} {
		rows := make([]sqlbatch.Row, n)
		for i := range rows {
			rows[i] = sqlbatch.Row{ID: chanq.NewID(), Body: make([]byte, 100)}
		}
		enqueue := func() sqlbatch.Statement { return q.Enqueue(rows) }
		run(fmt.Sprintf("enqueue=%d/form=chosen", n), n, enqueue)
		run(fmt.Sprintf("enqueue=%d/form=former", n), n, formerEnqueue(q, rows))
		run(fmt.Sprintf("enqueue=%d/form=names", n), n, func() sqlbatch.Statement { return withNames(enqueue()) })
		run(fmt.Sprintf("enqueue=%d/form=handle", n), n, func() sqlbatch.Statement { return withHandle(enqueue()) })
	}
	claim := func() sqlbatch.Statement { return q.Claim(sqlbatch.ClaimParams{Rows: 1, Lease: time.Minute}) }
	run("claim=1/form=chosen", 1, claim)
	run("claim=1/form=handle", 1, func() sqlbatch.Statement { return withHandle(claim()) })
}

// withHandle is a statement after sp_prepare.
func withHandle(st sqlbatch.Statement) sqlbatch.Statement {
	return sqlbatch.Statement{Text: "sp_execute", Args: append([]any{int32(1)}, st.Args[2:]...)}
}

func namesOf(letter string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(letter, i))
	}
	return names
}

var bodyNames = namesOf("b", 2100)

func withNames(st sqlbatch.Statement) sqlbatch.Statement {
	for i, value := range st.Args[2:] {
		st.Args[2+i] = sql.Named(bodyNames[i], value)
	}
	return st
}

// formerEnqueue sends four parameters per row: ID, priority, delay, time to live and type; key; headers; body.
func formerEnqueue(q sqlbatch.Queue, rows []sqlbatch.Row) func() sqlbatch.Statement {
	text, _, _ := strings.Cut(q.Enqueue(rows[:1]).Args[0].(string), "(VALUES")
	var values, declared []string
	for i := range rows {
		values = append(values, fmt.Sprintf("(@m%[1]d, @k%[1]d, @h%[1]d, @b%[1]d)", i))
		declared = append(declared, fmt.Sprintf("@m%[1]d varbinary(133), @k%[1]d varbinary(200), @h%[1]d varbinary(max), @b%[1]d varbinary(max)", i))
	}
	text += "(VALUES " + strings.Join(values, ", ")
	declaration := strings.Join(declared, ", ")
	m, k, h := namesOf("m", len(rows)), namesOf("k", len(rows)), namesOf("h", len(rows))
	none := []byte(nil)
	return func() sqlbatch.Statement {
		args := append(make([]any, 0, 2+4*len(rows)), text, declaration)
		for i, row := range rows {
			mark := append(append(make([]byte, 0, 33), row.ID[:]...), make([]byte, 17)...)
			args = append(args, sql.Named(m[i], mark), sql.Named(k[i], none), sql.Named(h[i], none), sql.Named(bodyNames[i], row.Body))
		}
		return sqlbatch.Statement{Text: "sp_executesql", Args: args}
	}
}

// tape dials a server, and counts what the client sends. From replay on, each message gets the last answer before that.
type tape struct {
	replay bool
	sent   int
	answer []byte
}

func (t *tape) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &tapeConn{Conn: conn, tape: t}, err
}

type tapeConn struct {
	net.Conn
	*tape
	left []byte
}

func (c *tapeConn) Write(packet []byte) (int, error) {
	c.sent += len(packet)
	if !c.replay {
		c.answer = nil
		return c.Conn.Write(packet)
	}
	if packet[1]&1 > 0 { // the last one of a message
		c.left = slices.Clone(c.answer)
	}
	return len(packet), nil
}

func (c *tapeConn) Read(b []byte) (n int, err error) {
	if !c.replay {
		n, err = c.Conn.Read(b)
		c.answer = append(c.answer, b[:n]...)
		return n, err
	}
	n = copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}
