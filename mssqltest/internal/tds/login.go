package tds

import (
	"encoding/binary"
	"slices"
)

// tds74 is the protocol version of this package.
const tds74 = 0x74000004

// login7 is the content of a LOGIN7 message (MS-TDS 2.2.6.4).
type login7 struct {
	login      Login
	version    uint32
	packetSize int
	integrated bool // Windows authentication, which the emulator does not support
}

// loginFixedBytes is the length of LOGIN7 before its strings.
const loginFixedBytes = 94

func parseLogin7(b []byte) (login7, error) {
	var l login7
	if len(b) < loginFixedBytes {
		return l, malformedf("LOGIN7 of %d bytes", len(b))
	}
	if n := binary.LittleEndian.Uint32(b); uint64(n) != uint64(len(b)) {
		return l, malformedf("LOGIN7 of %d bytes says %d", len(b), n)
	}
	const flags2ODBC, flags2Integrated = 0x02, 0x80
	l.version = binary.LittleEndian.Uint32(b[4:])
	l.packetSize = int(binary.LittleEndian.Uint32(b[8:]))
	l.login.ODBC = b[25]&flags2ODBC != 0
	l.integrated = b[25]&flags2Integrated != 0

	var err error
	for _, field := range []struct {
		at      int // of the field's offset and length
		to      *string
		mangled bool
	}{
		{at: 36, to: &l.login.HostName},
		{at: 40, to: &l.login.User},
		{at: 44, to: &l.login.Password, mangled: true},
		{at: 48, to: &l.login.AppName},
		{at: 68, to: &l.login.Database},
	} {
		offset, units := binary.LittleEndian.Uint16(b[field.at:]), binary.LittleEndian.Uint16(b[field.at+2:])
		var text []byte
		if text, err = take(b, int(offset), 2*int(units)); err != nil {
			return l, err
		}
		if field.mangled {
			text = unmangle(text)
		}
		*field.to = decodeUTF16(text)
	}
	return l, nil
}

// unmangle decodes a password: each byte's halves were swapped, then bits flipped.
func unmangle(b []byte) []byte {
	b = slices.Clone(b)
	for i, c := range b {
		c ^= 0xa5
		b[i] = c<<4 | c>>4
	}
	return b
}

// grantPacketSize returns the packet size that the server agrees to.
func grantPacketSize(asked int, encrypted bool) int {
	limit := maxPacketBytes
	if encrypted {
		limit = maxTLSPacketBytes
	}
	if asked == 0 {
		asked = defaultPacket
	}
	return min(max(asked, minPacketBytes), limit)
}

func appendLoginAck(b []byte) []byte {
	const interfaceSQL = 1
	return sized(b, tokenLoginAck, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(append(b, interfaceSQL), tds74)
		b = appendBVarChar(b, "Microsoft SQL Server")
		return append(b, serverVersion[:4]...)
	})
}
