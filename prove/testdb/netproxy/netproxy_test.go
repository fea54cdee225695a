package netproxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/mssqltest/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// echo starts a server that sends back all data, and returns its address.
func echo(t *testing.T, network, address string) string {
	ln, err := net.Listen(network, address)
	require.NoError(t, err)
	return serveEcho(t, ln)
}

func serveEcho(t *testing.T, ln net.Listener) string {
	var work sync.WaitGroup
	stop, cancel := context.WithCancel(context.Background())
	work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer context.AfterFunc(stop, func() { c.Close() })()
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		ln.Close()
		work.Wait()
	})
	return ln.Addr().String()
}

func dial(t *testing.T, p *Proxy) net.Conn {
	c, err := net.Dial("tcp", p.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

func ask(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
	answer(t, c, text)
}

func answer(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// silent checks that nothing arrives: a read fails at a deadline far beyond what the loopback takes.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
}

func TestForwardsOverTCPAndUnix(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "socket")
		}
		p := Start(t, network, echo(t, network, address))
		c := dial(t, p)
		ask(t, c, "hello")
		large := bytes.Repeat([]byte("0123456789"), 100_000)
		var work sync.WaitGroup
		work.Go(func() {
			_, err := c.Write(large)
			require.NoError(t, err)
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
		})
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		work.Wait()
		require.True(t, bytes.Equal(large, got), "in order, and to the end")
		require.Eventually(t, func() bool { return p.Open() == 0 }, patience, time.Millisecond, "an ended connection is forgotten")
	}
}

// inBubble runs a test with a connection through a proxy in an in-memory network, where waits are exact.
func inBubble(t *testing.T, f func(t *testing.T, p *Proxy, c net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		p := Start(t, memnet.Network, serveEcho(t, memnet.Listen()))
		c, err := memnet.Dial(t.Context(), p.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		f(t, p, c)
	})
}

func TestLatencyIsAddedBothWays(t *testing.T) { inBubble(t, latency) }

func latency(t *testing.T, p *Proxy, c net.Conn) {
	ask(t, c, "first")
	p.Set(Conditions{Latency: 150 * time.Millisecond})
	began := time.Now()
	ask(t, c, "slow")
	require.Equal(t, 300*time.Millisecond, time.Since(began))
	// Data in progress shares the wait: ten pieces, fewer than a direction holds, do not take ten times as long.
	began = time.Now()
	var work sync.WaitGroup
	work.Go(func() {
		for range 10 {
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
		}
	})
	answer(t, c, string(bytes.Repeat([]byte("x"), 10)))
	work.Wait()
	require.Equal(t, 300*time.Millisecond, time.Since(began))
}

func TestBandwidthIsBounded(t *testing.T) { inBubble(t, bandwidth) }

func bandwidth(t *testing.T, p *Proxy, c net.Conn) {
	ask(t, c, "first")
	p.Set(Conditions{BytesPerSecond: 64 << 10})
	began := time.Now()
	ask(t, c, string(make([]byte, 32<<10)))
	require.GreaterOrEqual(t, time.Since(began), 450*time.Millisecond)
}

func TestResetReachesTheClient(t *testing.T) {
	p := Start(t, "tcp", echo(t, "tcp", "127.0.0.1:0"))
	c := dial(t, p)
	ask(t, c, "hello")
	require.Equal(t, 1, p.Reset())
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	ask(t, dial(t, p), "a new one works")
}

func TestResetAtAPieceLosesIt(t *testing.T) {
	p := Start(t, "tcp", echo(t, "tcp", "127.0.0.1:0"))
	first, second := dial(t, p), dial(t, p)
	ask(t, first, "hello")
	ask(t, second, "hello")
	p.ResetAt(func(piece Piece) bool { return piece.Direction == ToClient && piece.Bytes == 5 })
	_, err := first.Write([]byte("12345"))
	require.NoError(t, err)
	_, err = first.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET, "before its answer")
	ask(t, second, "spared")
	p.ResetAt(nil)
	ask(t, second, "12345")
}

func TestHalfOpenHoldsOneDirection(t *testing.T) {
	p := Start(t, "tcp", echo(t, "tcp", "127.0.0.1:0"))
	c := dial(t, p)
	ask(t, c, "hello")
	var held Conditions
	held.Hold[ToClient] = true
	p.Set(held)
	arrived := make(chan struct{})
	var once sync.Once
	p.ResetAt(func(piece Piece) bool {
		if piece.Direction == ToServer {
			once.Do(func() { close(arrived) })
		}
		return false
	})
	_, err := c.Write([]byte("held"))
	require.NoError(t, err)
	select {
	case <-arrived: // the server's side of the connection works
	case <-time.After(patience):
		require.Fail(t, "no data reaches the server")
	}
	silent(t, c)
	p.Set(Conditions{})
	answer(t, c, "held")
}

func TestABlackHoleAcceptsAndSendsNothingUntilItEnds(t *testing.T) {
	p := Start(t, "tcp", echo(t, "tcp", "127.0.0.1:0"))
	old := dial(t, p)
	ask(t, old, "hello")
	p.Set(Silence)
	young := dial(t, p)
	for _, c := range []net.Conn{old, young} {
		_, err := c.Write([]byte("anyone?"))
		require.NoError(t, err)
	}
	silent(t, old)
	silent(t, young)
	p.Set(Conditions{})
	answer(t, old, "anyone?")
	answer(t, young, "anyone?")
}

func TestForgottenConnectionsStaySilentAndNewOnesWork(t *testing.T) {
	p := Start(t, "tcp", echo(t, "tcp", "127.0.0.1:0"))
	old := dial(t, p)
	ask(t, old, "hello")
	p.Set(Silence)
	_, err := old.Write([]byte("anyone?"))
	require.NoError(t, err)
	require.Equal(t, 1, p.Forget())
	p.Set(Conditions{})
	silent(t, old)
	ask(t, dial(t, p), "new")
	require.Equal(t, 2, p.Reset())
	_, err = old.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestOneConnectionIsFrozenAndTheOthersAreNot(t *testing.T) {
	p := Start(t, "tcp", echo(t, "tcp", "127.0.0.1:0"))
	_, ok := p.Freeze(0)
	require.False(t, ok, "there is no connection")
	frozen, other := dial(t, p), net.Conn(nil)
	ask(t, frozen, "first")
	other = dial(t, p)
	ask(t, other, "second")
	thaw, ok := p.Freeze(2) // counted cyclically
	require.True(t, ok)
	again, _ := p.Freeze(0)
	_, err := frozen.Write([]byte("held"))
	require.NoError(t, err)
	silent(t, frozen)
	ask(t, other, "not held")
	thaw()
	thaw()
	silent(t, frozen) // it was frozen twice
	again()
	require.NoError(t, frozen.SetDeadline(time.Now().Add(patience)))
	answer(t, frozen, "held")
}

// A client that gives up cannot withdraw what it has sent.
func TestDataOfAFrozenConnectionArrivesAfterItsEnd(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	p := Start(t, "tcp", ln.Addr().String())
	client := dial(t, p)
	server, err := ln.Accept()
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, server.SetDeadline(time.Now().Add(patience)))
	thaw, _ := p.Freeze(0)
	_, err = client.Write([]byte("late"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	silent(t, server)
	thaw()
	require.NoError(t, server.SetDeadline(time.Now().Add(patience)))
	got, err := io.ReadAll(server)
	require.NoError(t, err)
	require.Equal(t, "late", string(got))
}

func TestTheEndOfAConnectionIsAlsoHeld(t *testing.T) {
	p := Start(t, "tcp", echo(t, "tcp", "127.0.0.1:0"))
	c := dial(t, p)
	ask(t, c, "hello")
	p.Set(Silence)
	require.NoError(t, c.Close())
	require.Never(t, func() bool { return p.Open() != 1 }, 200*time.Millisecond, 10*time.Millisecond, "the server is not informed")
	p.Set(Conditions{})
	require.Eventually(t, func() bool { return p.Open() == 0 }, patience, time.Millisecond)
}

func TestWithoutAServerTheClientIsCut(t *testing.T) {
	p := Start(t, "unix", filepath.Join(t.TempDir(), "nothing"))
	p.Set(Silence) // after the client has connected
	c := dial(t, p)
	p.Set(Conditions{})
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}
