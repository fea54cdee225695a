package tds

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rawHandler answers every session with one function and records the requests.
type rawHandler struct {
	run func(context.Context, *Request, Results) error

	mu       sync.Mutex
	requests []*Request
}

func (h *rawHandler) Login(context.Context, Login) (Session, error) { return rawSession{h}, nil }

func (h *rawHandler) seen() []*Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests
}

type rawSession struct{ h *rawHandler }

func (s rawSession) Run(ctx context.Context, r *Request, w Results) error {
	s.h.mu.Lock()
	s.h.requests = append(s.h.requests, r)
	s.h.mu.Unlock()
	if s.h.run == nil {
		return nil
	}
	return s.h.run(ctx, r, w)
}

func (rawSession) Close() {}

func serveRaw(t testing.TB, h Handler, options Options) *Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := Serve(ln, h, options)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// rawClient sends messages that no driver sends.
type rawClient struct {
	t    testing.TB
	conn net.Conn
	in   *messageReader
}

// dialRaw connects without greeting.
func dialRaw(t testing.TB, s *Server) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return &rawClient{t: t, conn: conn, in: newMessageReader(conn, 1<<20)}
}

// loginRaw connects and logs in.
func loginRaw(t testing.TB, s *Server) *rawClient {
	t.Helper()
	c := dialRaw(t, s)
	c.greet()
	c.send(packetLogin, login7Message(tds74, 0))
	require.Equal(t, []uint16{0}, c.reply().done)
	return c
}

func (c *rawClient) greet() {
	c.t.Helper()
	require.Equal(c.t, encryptNotSupported, c.prelogin(encryptNotSupported))
}

// prelogin sends an encryption option and returns the server's option.
func (c *rawClient) prelogin(says encryption) encryption {
	c.t.Helper()
	c.send(packetPrelogin, appendPrelogin(nil, says))
	msg, err := c.in.read()
	require.NoError(c.t, err)
	said, err := parsePrelogin(msg.payload)
	require.NoError(c.t, err)
	return said
}

// packet returns one packet with its header.
func packet(packetType, status byte, payload []byte) []byte {
	b := []byte{packetType, status}
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)+headerBytes))
	return append(append(b, 0, 0, 1, 0), payload...)
}

func (c *rawClient) write(packets ...[]byte) {
	c.t.Helper()
	_, err := c.conn.Write(bytes.Join(packets, nil))
	require.NoError(c.t, err)
}

func (c *rawClient) send(packetType byte, payload []byte) {
	c.t.Helper()
	c.write(packet(packetType, statusEOM, payload))
}

// reply is the content of a reply, by token.
type reply struct {
	done     []uint16  // status of each DONE, DONEPROC and DONEINPROC
	final    byte      // the last token
	commands []Command // those that are not zero
	errors   []int32
	class    byte // of the last error
	env      []byte
}

// reply reads one answer that has no columns in it.
func (c *rawClient) reply() reply {
	c.t.Helper()
	msg, err := c.in.read()
	require.NoError(c.t, err)
	require.Equal(c.t, byte(packetReply), msg.packetType)
	var r reply
	for d := (&decoder{b: msg.payload}); !d.empty(); {
		switch r.final = d.u8(); r.final {
		case tokenDone, tokenDoneProc, tokenDoneInProc:
			r.done = append(r.done, d.u16())
			if command := Command(d.u16()); command != 0 {
				r.commands = append(r.commands, command)
			}
			d.u64()
		case tokenError, tokenInfo, tokenEnvChange, tokenLoginAck:
			body := d.bytes(int(d.u16()))
			switch r.final {
			case tokenError:
				r.errors = append(r.errors, int32(binary.LittleEndian.Uint32(body)))
				r.class = body[5]
			case tokenEnvChange:
				r.env = append(r.env, body[0])
			}
		case tokenReturnStatus:
			d.u32()
		default:
			require.Fail(c.t, "unexpected token", "0x%02x", r.final)
		}
		require.NoError(c.t, d.err)
	}
	return r
}

// requireClosed checks that the server has closed the connection.
func (c *rawClient) requireClosed() {
	c.t.Helper()
	_, err := c.in.read()
	require.Error(c.t, err)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "the connection is still open")
}

// login7Message returns a LOGIN7 without strings.
func login7Message(version uint32, flags2 byte) []byte {
	b := make([]byte, loginFixedBytes)
	binary.LittleEndian.PutUint32(b, loginFixedBytes)
	binary.LittleEndian.PutUint32(b[4:], version)
	b[25] = flags2
	return b
}

// headers returns ALL_HEADERS with a transaction descriptor, followed by rest.
func headers(rest ...byte) []byte {
	b := []byte{22, 0, 0, 0, 18, 0, 0, 0, 2, 0}
	return append(append(b, make([]byte, 12)...), rest...)
}

func batch(text string) []byte { return appendUTF16(headers(), text) }

// procedure returns a call without parameters.
func procedure(name string) []byte { return append(appendUSVarChar(nil, name), 0, 0) }
