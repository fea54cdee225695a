package tds

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Packet types (MS-TDS 2.2.3.1.1).
const (
	packetBatch       = 1
	packetRPC         = 3
	packetReply       = 4
	packetAttention   = 6
	packetBulkLoad    = 7
	packetTransaction = 14
	packetLogin       = 16
	packetPrelogin    = 18
)

// Status bits of a packet header (MS-TDS 2.2.3.1.2).
const (
	statusEOM           = 0x01
	statusIgnore        = 0x02
	statusReset         = 0x08
	statusResetSkipTran = 0x10
)

const (
	headerBytes       = 8
	minPacketBytes    = 512
	maxPacketBytes    = 32767
	maxTLSPacketBytes = 16383 // the limit of a server on an encrypted connection
	defaultPacket     = 4096
)

// malformed is an error in the data from the client: it ends the connection.
type malformed struct{ what string }

func (m malformed) Error() string { return "malformed TDS stream: " + m.what }

func malformedf(format string, args ...any) error {
	return malformed{fmt.Sprintf(format, args...)}
}

// message is one message of the client, assembled from its packets.
type message struct {
	packetType byte
	status     byte   // of the first packet, with EOM and IGNORE of the last
	payload    []byte // valid until the next call of read
	wireBytes  int    // payload and headers
}

// messageReader assembles messages from packets. One goroutine uses it.
type messageReader struct {
	r         *bufio.Reader
	maxPacket int           // the negotiated packet size
	maxBytes  int           // of a message's payload
	then      *bufio.Reader // the source of all packets after the next one; nil if from r
	buf       []byte
}

func newMessageReader(r io.Reader, maxBytes int) *messageReader {
	return &messageReader{r: bufio.NewReaderSize(r, maxPacketBytes+1), maxPacket: maxPacketBytes, maxBytes: maxBytes}
}

// read returns the next message. The error is io.EOF at a clean end, a malformed error for a broken header, and
// otherwise the error of the socket.
func (m *messageReader) read() (message, error) {
	var msg message
	// A buffer that grew for one large message is not kept for small ones.
	if cap(m.buf) > 1<<20 {
		m.buf = nil
	}
	m.buf = m.buf[:0]
	for first := true; ; first = false {
		var h [headerBytes]byte
		if _, err := io.ReadFull(m.r, h[:]); err != nil {
			if !first && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return msg, err
		}
		size := int(binary.BigEndian.Uint16(h[2:])) - headerBytes
		switch {
		case size < 0 || size+headerBytes > m.maxPacket:
			return msg, malformedf("packet of %d bytes", size+headerBytes)
		case first:
			msg.packetType, msg.status = h[0], h[1]
		case h[0] != msg.packetType:
			return msg, malformedf("packet of type %d inside a message of type %d", h[0], msg.packetType)
		}
		last := h[1]&statusEOM != 0
		// An empty packet is legal only as the end (an attention consists of one): otherwise a message could continue
		// permanently without reaching its limit.
		if size == 0 && !last {
			return msg, malformed{"empty packet inside a message"}
		}
		if len(m.buf)+size > m.maxBytes {
			return msg, malformedf("message of more than %d bytes", m.maxBytes)
		}
		at := len(m.buf)
		m.buf = grow(m.buf, size)
		if _, err := io.ReadFull(m.r, m.buf[at:]); err != nil {
			return msg, fmt.Errorf("packet body: %w", err)
		}
		msg.wireBytes += size + headerBytes
		if m.then != nil {
			m.r, m.then = m.then, nil
		}
		if last {
			msg.status |= h[1] & (statusEOM | statusIgnore)
			msg.payload = m.buf
			return msg, nil
		}
	}
}

// grow lengthens b by n bytes, which have arbitrary content.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b[:len(b)+n]
	}
	grown := make([]byte, len(b)+n, max(2*cap(b), len(b)+n))
	copy(grown, b)
	return grown
}

// messageWriter cuts a message into packets. Tokens are appended to buf, with a call of boundary after each. One
// goroutine uses it.
type messageWriter struct {
	w          io.Writer
	packetType byte
	spid       uint16
	maxPacket  int

	buf     []byte // not sent yet; ends with a complete token
	kept    int    // leading bytes of buf that discard leaves
	seq     byte
	packets []byte // scratch: packets to be written to w
	sent    int    // bytes of this message written so far, headers included
}

// sendAt is how many bytes are buffered before full packets are written: enough that a result costs few system calls.
const sendAt = 16 << 10

// boundary is called when buf ends with a complete token. It writes the full packets if enough bytes are buffered.
func (m *messageWriter) boundary() error {
	if len(m.buf) < sendAt {
		return nil
	}
	body := m.maxPacket - headerBytes
	return m.write(len(m.buf)/body*body, false)
}

// flush writes all bytes, leaving the message open.
func (m *messageWriter) flush() error { return m.write(len(m.buf), false) }

// finish writes all bytes and ends the message. There must be something to write: a client takes an empty packet at the
// end for the next answer.
func (m *messageWriter) finish() error {
	err := m.write(len(m.buf), true)
	m.seq, m.kept, m.sent = 0, 0, 0
	return err
}

// keep protects the bytes appended so far from a discard.
func (m *messageWriter) keep() { m.kept = len(m.buf) }

// discard drops unsent bytes, except those that were kept and those that share a packet's end with sent bytes: the rest
// of a partly sent token must follow, or the client would lose its position.
func (m *messageWriter) discard() { m.buf = m.buf[:m.kept] }

// total returns the size of the message if it were finished now.
func (m *messageWriter) total() int {
	body := m.maxPacket - headerBytes
	return m.sent + len(m.buf) + (len(m.buf)+body-1)/body*headerBytes
}

// write sends the first n bytes of buf; last marks the last packet as the message's end.
func (m *messageWriter) write(n int, last bool) error {
	if n == 0 {
		return nil
	}
	body := m.maxPacket - headerBytes
	m.packets = m.packets[:0]
	for at := 0; at < n; at += body {
		end := min(at+body, n)
		status := byte(0)
		if last && end == n {
			status = statusEOM
		}
		m.seq++
		m.packets = append(m.packets, m.packetType, status)
		m.packets = binary.BigEndian.AppendUint16(m.packets, uint16(end-at+headerBytes))
		m.packets = binary.BigEndian.AppendUint16(m.packets, m.spid)
		m.packets = append(m.packets, m.seq, 0)
		m.packets = append(m.packets, m.buf[at:end]...)
	}
	_, err := m.w.Write(m.packets)
	m.sent += len(m.packets)
	rest := copy(m.buf, m.buf[n:])
	m.buf, m.kept = m.buf[:rest], rest
	// Buffers that grew for one large answer are not kept for small ones.
	if cap(m.packets) > 1<<20 {
		m.packets = nil
	}
	if cap(m.buf) > 1<<20 {
		m.buf = append([]byte(nil), m.buf...)
	}
	return err
}
