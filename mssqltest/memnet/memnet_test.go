package memnet_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/chanq/chanq/mssqltest/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns both ends of a connection.
func connect(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l := memnet.Listen()
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	client, err := memnet.Dial(t.Context(), l.Addr().String())
	require.NoError(t, err)
	server, err = l.Accept()
	require.NoError(t, err)
	return client, server
}

func TestConnPassesTheSuiteOfNet(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		l := memnet.Listen()
		c1, err = memnet.Dial(context.Background(), l.Addr().String())
		if err != nil {
			return nil, nil, nil, err
		}
		c2, err = l.Accept()
		return c1, c2, func() { _, _, _ = c1.Close(), c2.Close(), l.Close() }, err
	})
}

func TestDataWrittenBeforeCloseIsRead(t *testing.T) {
	client, server := connect(t)
	_, err := client.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	got, err := io.ReadAll(server)
	require.NoError(t, err)
	require.Equal(t, "last words", string(got))
	_, err = server.Write([]byte("answer"))
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestCloseWriteLeavesTheOtherDirectionOpen(t *testing.T) {
	client, server := connect(t)
	require.NoError(t, client.(*memnet.Conn).CloseWrite())
	_, err := server.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = server.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, server.Close())
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
	_, err = client.Write([]byte("more"))
	require.Error(t, err)
}

func TestAResetLosesWhatIsUnderWay(t *testing.T) {
	client, server := connect(t)
	_, err := client.Write([]byte("lost"))
	require.NoError(t, err)
	require.NoError(t, client.(*memnet.Conn).SetLinger(0))
	require.NoError(t, client.Close())
	n, err := server.Read(make([]byte, 8))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Zero(t, n)
}

// A bubble's clock advances only while all its goroutines wait durably: if a wait of this network were not durable,
// these tests would hang.
func TestWaitsAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connect(t)
		began := time.Now()
		require.NoError(t, server.SetReadDeadline(began.Add(time.Hour)))
		_, err := server.Read(make([]byte, 1))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, time.Hour, time.Since(began))

		// The other end does not read: a large write waits for its deadline.
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(time.Hour)))
		large := make([]byte, 1<<20)
		n, err := client.Write(large)
		require.ErrorAs(t, err, &timeout)
		require.Positive(t, n)
		require.Less(t, n, len(large))
		require.Equal(t, 2*time.Hour, time.Since(began))
	})
}

func TestDialIsRefused(t *testing.T) {
	l := memnet.Listen()
	address := l.Addr().String()
	require.True(t, memnet.Has(address))
	waiting, err := memnet.Dial(t.Context(), address)
	require.NoError(t, err)
	require.NoError(t, l.Close())

	_, err = waiting.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET, "it was not accepted")
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.False(t, memnet.Has(address))
	_, err = memnet.Dial(t.Context(), address)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestDialWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.Listen()
		defer func() { require.NoError(t, l.Close()) }()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			if _, err := memnet.Dial(ctx, l.Addr().String()); err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				break
			}
		}
		require.Equal(t, time.Minute, time.Since(began))
	})
}
