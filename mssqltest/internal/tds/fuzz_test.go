package tds

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/golang-sql/civil"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// driverMessages returns the messages that the driver sends to log in and for one operation of each kind.
func driverMessages(t testing.TB) []message {
	t.Helper()
	s := serveRaw(t, &rawHandler{run: func(_ context.Context, r *Request, w Results) error {
		if r.Tx.Op == TxBegin {
			return w.TxBegan(1)
		}
		return nil
	}}, Options{})
	dialer := &recordingDialer{}
	connector, err := mssql.NewConnector("sqlserver://user:secret@" + s.Addr().String() + "?database=chanq&app+name=fuzz&encrypt=disable")
	require.NoError(t, err)
	connector.Dialer = dialer
	db := sql.OpenDB(connector)
	defer func() { require.NoError(t, db.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	exec := func(query string, args ...any) {
		_, err := db.ExecContext(ctx, query, args...)
		require.NoError(t, err)
	}
	exec("select N'å€😀'")
	now := time.Date(2024, 2, 29, 1, 2, 3, 4500, time.FixedZone("", 3600))
	exec("select @p1", 1, int32(2), int16(3), byte(4), true, 1.5, float32(2.5), "text", []byte("bytes"), now,
		mssql.VarChar("v"), mssql.NVarCharMax("max"), mssql.NChar("n"), mssql.DateTime1(now), civil.DateOf(now), civil.TimeOf(now),
		civil.DateTimeOf(now), mssql.UniqueIdentifier{1}, nil, []byte(nil), "", []byte{}, make([]byte, 9000))
	exec("sp_executesql", "select @n", "@n int", sql.Named("n", 1))
	out := int64(1)
	exec("dbo.proc", sql.Named("out", sql.Out{Dest: &out}))
	for range 2 {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSnapshot})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		tx, err = db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
	}

	var messages []message
	for r := newMessageReader(bytes.NewReader(dialer.bytes()), 1<<20); ; {
		msg, err := r.read()
		if err != nil {
			require.GreaterOrEqual(t, len(messages), 10)
			return messages
		}
		msg.payload = bytes.Clone(msg.payload)
		messages = append(messages, msg)
	}
}

// recordingDialer records the data that its connections send.
type recordingDialer struct {
	mu   sync.Mutex
	sent bytes.Buffer
}

func (d *recordingDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	var plain net.Dialer
	conn, err := plain.DialContext(ctx, network, addr)
	return recordedConn{conn, d}, err
}

func (d *recordingDialer) bytes() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent.Bytes()
}

type recordedConn struct {
	net.Conn
	d *recordingDialer
}

func (c recordedConn) Write(b []byte) (int, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.sent.Write(b)
	return c.Conn.Write(b)
}

func FuzzPrelogin(f *testing.F) {
	f.Add(appendPrelogin(nil, encryptOn))
	for _, msg := range driverMessages(f) {
		if msg.packetType == packetPrelogin {
			f.Add(msg.payload)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		said, err := parsePrelogin(b)
		if err == nil {
			again, err := parsePrelogin(appendPrelogin(nil, said))
			require.NoError(t, err)
			require.Equal(t, said, again)
		}
	})
}

func FuzzLogin7(f *testing.F) {
	f.Add(login7Message(tds74, 0))
	for _, msg := range driverMessages(f) {
		if msg.packetType == packetLogin {
			f.Add(msg.payload)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLogin7(b)
		if err != nil {
			return
		}
		for _, s := range []string{l.login.User, l.login.Password, l.login.Database, l.login.AppName, l.login.HostName} {
			require.LessOrEqual(t, utf16Units(s), len(b)/2)
		}
		size := grantPacketSize(l.packetSize, false)
		require.True(t, size >= minPacketBytes && size <= maxPacketBytes)
	})
}

// FuzzRequest checks that no request breaks the parser, and that a decoded value can be encoded again: it is a value of
// its type.
func FuzzRequest(f *testing.F) {
	for _, msg := range driverMessages(f) {
		f.Add(msg.packetType, msg.payload)
	}
	f.Fuzz(func(t *testing.T, packetType byte, b []byte) {
		call, err := newCall(message{packetType: packetType, status: statusEOM, payload: b})
		if err != nil || call.refused != nil {
			return
		}
		require.NotEmpty(t, call.requests)
		for _, r := range call.requests {
			for _, p := range r.Params {
				requireWritable(t, p.Type, p.Value)
			}
		}
	})
}

// requireWritable checks that v can be written as t and is read back the same.
func requireWritable(t *testing.T, typ sqltype.Type, v sqltype.Value) {
	t.Helper()
	first, err := appendValue(appendTypeInfo(nil, typ), typ, v)
	require.NoError(t, err)
	d := &decoder{b: first}
	w := d.typeInfo()
	again, err := appendValue(appendTypeInfo(nil, w.t), w.t, d.value(w))
	require.NoError(t, d.err)
	require.NoError(t, err)
	require.Equal(t, first, again)
}

func FuzzMessage(f *testing.F) {
	f.Add(packet(packetBatch, statusEOM, batch("select 1")))
	f.Add(append(packet(packetBatch, 0, batch("select ")), packet(packetBatch, statusEOM, []byte{'1', 0})...))
	f.Add(packet(packetAttention, statusEOM, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newMessageReader(bytes.NewReader(b), 4096)
		read := 0
		for {
			msg, err := r.read()
			if err != nil {
				break
			}
			require.LessOrEqual(t, len(msg.payload), 4096)
			read += msg.wireBytes
		}
		require.LessOrEqual(t, read, len(b))
	})
}
