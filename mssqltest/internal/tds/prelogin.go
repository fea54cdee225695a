package tds

import "encoding/binary"

// Options of PRELOGIN (MS-TDS 2.2.6.5).
const (
	preloginVersion    = 0
	preloginEncryption = 1
	preloginInstance   = 2
	preloginThread     = 3
	preloginMARS       = 4
	preloginEnd        = 0xff
)

// encryption is the encryption option of one side of a PRELOGIN.
type encryption byte

const (
	encryptOff          encryption = 0
	encryptOn           encryption = 1
	encryptNotSupported encryption = 2
	encryptRequired     encryption = 3
)

// serverVersion is 16.0.1000: SQL Server 2022, as released.
var serverVersion = [6]byte{16, 0, 0x03, 0xe8, 0, 0}

// parsePrelogin returns the encryption option of the client.
func parsePrelogin(b []byte) (encryption, error) {
	said := encryptNotSupported
	for at := 0; ; at += 5 {
		option, err := take(b, at, 1)
		if err != nil {
			return 0, err
		}
		if option[0] == preloginEnd {
			return said, nil
		}
		place, err := take(b, at+1, 4)
		if err != nil {
			return 0, err
		}
		value, err := take(b, int(binary.BigEndian.Uint16(place)), int(binary.BigEndian.Uint16(place[2:])))
		if err != nil {
			return 0, err
		}
		if option[0] != preloginEncryption {
			continue
		}
		if len(value) != 1 {
			return 0, malformedf("encryption option of %d bytes", len(value))
		}
		said = encryption(value[0])
	}
}

// agreeEncryption returns the server's answer to the client's option. Without a certificate nothing is encrypted. With
// one, the login is encrypted, and the rest of the connection if the client requests it: the server does not force it.
func agreeEncryption(client encryption, haveTLS bool) encryption {
	switch {
	case !haveTLS || client == encryptNotSupported:
		return encryptNotSupported
	case client == encryptOff:
		return encryptOff
	default:
		return encryptOn
	}
}

func appendPrelogin(b []byte, answer encryption) []byte {
	options := []struct {
		id    byte
		value []byte
	}{
		{preloginVersion, serverVersion[:]},
		{preloginEncryption, []byte{byte(answer)}},
		{preloginInstance, []byte{0}},
		{preloginThread, nil},
		{preloginMARS, []byte{0}},
	}
	offset := 5*len(options) + 1
	for _, o := range options {
		b = append(b, o.id)
		b = binary.BigEndian.AppendUint16(b, uint16(offset))
		b = binary.BigEndian.AppendUint16(b, uint16(len(o.value)))
		offset += len(o.value)
	}
	b = append(b, preloginEnd)
	for _, o := range options {
		b = append(b, o.value...)
	}
	return b
}
