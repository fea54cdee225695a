package tds

import "encoding/binary"

// decoder reads one message's payload. After the first error every read returns zero, so that a caller checks once per
// structure. Results never alias the payload, except those of bytes.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = malformedf(format, args...)
		d.b = nil
	}
}

func (d *decoder) empty() bool { return len(d.b) == 0 }

// bytes returns the next n bytes, aliasing the payload; nil if there are fewer.
func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail("%d bytes wanted, %d left", n, len(d.b))
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// bVarChar reads a string with a one-byte length in UTF-16 units.
func (d *decoder) bVarChar() string { return decodeUTF16(d.bytes(2 * int(d.u8()))) }

// bVarByteText reads a string with a one-byte length in bytes.
func (d *decoder) bVarByteText() string {
	n := int(d.u8())
	if n%2 != 0 {
		d.fail("UTF-16 text of %d bytes", n)
	}
	return decodeUTF16(d.bytes(n))
}

// usVarChar reads a string with a two-byte length in UTF-16 units.
func (d *decoder) usVarChar() string { return decodeUTF16(d.bytes(2 * int(d.u16()))) }

// take returns the n bytes of b at offset; nil and an error if they are not inside b.
func take(b []byte, offset, n int) ([]byte, error) {
	if offset < 0 || n < 0 || offset > len(b) || n > len(b)-offset {
		return nil, malformedf("%d bytes at %d of %d", n, offset, len(b))
	}
	return b[offset : offset+n], nil
}
