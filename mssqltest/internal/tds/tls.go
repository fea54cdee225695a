package tds

import (
	"crypto/tls"
	"encoding/binary"
	"net"
)

// secure runs the TLS handshake, whose records are sent inside PRELOGIN messages, and returns the connection on which
// records are then sent without them.
func secure(conn net.Conn, in *messageReader, out *messageWriter, config *tls.Config) (*tls.Conn, error) {
	config = config.Clone()
	// TDS 7 supports TLS up to 1.2. With 1.3 the server might have records to send (session tickets) when the client has
	// already unwrapped its side.
	config.MaxVersion = tls.VersionTLS12
	if config.MinVersion > config.MaxVersion {
		config.MinVersion = config.MaxVersion
	}
	wrapped := &handshakeConn{Conn: conn, in: in, out: out}
	secured := tls.Server(wrapped, config)
	if err := secured.Handshake(); err != nil {
		return nil, err
	}
	if err := wrapped.flush(); err != nil {
		return nil, err
	}
	wrapped.bare = true
	return secured, nil
}

// handshakeConn carries TLS records in PRELOGIN messages until bare is set. One flight of the server is one message: a
// client reads each to its end.
type handshakeConn struct {
	net.Conn
	in   *messageReader
	out  *messageWriter
	rest []byte // of the client's message
	bare bool
	left int // remaining bytes of the bare record that is being read
}

func (h *handshakeConn) Read(b []byte) (int, error) {
	if h.bare {
		return h.readRecord(b)
	}
	if err := h.flush(); err != nil {
		return 0, err
	}
	for len(h.rest) == 0 {
		msg, err := h.in.read()
		if err != nil {
			return 0, err
		}
		if msg.packetType != packetPrelogin || len(msg.payload) == 0 {
			return 0, malformedf("message of type %d, %d bytes inside a TLS handshake", msg.packetType, len(msg.payload))
		}
		h.rest = msg.payload
	}
	n := copy(b, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

// readRecord reads only to the end of a record: if only the login is encrypted, no record follows. It reads from the
// buffer, which might have data from after the client's last message.
func (h *handshakeConn) readRecord(b []byte) (int, error) {
	const header = 5
	if h.left == 0 {
		opening, err := h.in.r.Peek(header)
		if err != nil {
			return 0, err
		}
		h.left = header + int(binary.BigEndian.Uint16(opening[3:]))
	}
	n, err := h.in.r.Read(b[:min(len(b), h.left)])
	h.left -= n
	return n, err
}

func (h *handshakeConn) Write(b []byte) (int, error) {
	if h.bare {
		return h.Conn.Write(b)
	}
	h.out.buf = append(h.out.buf, b...)
	return len(b), nil
}

func (h *handshakeConn) flush() error {
	if len(h.out.buf) == 0 {
		return nil
	}
	return h.out.finish()
}
