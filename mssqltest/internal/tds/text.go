package tds

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// appendUTF16 appends s as UTF-16, little-endian; invalid UTF-8 becomes U+FFFD.
func appendUTF16(b []byte, s string) []byte {
	for _, r := range s {
		if r < 0x10000 {
			b = append(b, byte(r), byte(r>>8))
			continue
		}
		hi, lo := utf16.EncodeRune(r)
		b = append(b, byte(hi), byte(hi>>8), byte(lo), byte(lo>>8))
	}
	return b
}

// utf16Units counts the UTF-16 units of s.
func utf16Units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r >= 0x10000 {
			n++
		}
	}
	return n
}

// truncateUnits cuts s to at most n UTF-16 units.
func truncateUnits(s string, n int) string {
	for i, r := range s {
		if n--; r >= 0x10000 {
			n--
		}
		if n < 0 {
			return s[:i]
		}
	}
	return s
}

// decodeUTF16 reads little-endian UTF-16 of even length; a lone surrogate
// becomes U+FFFD.
func decodeUTF16(b []byte) string {
	n := len(b) / 2
	out := make([]byte, 0, n)
	for i := 0; i < n; i++ {
		u := rune(binary.LittleEndian.Uint16(b[2*i:]))
		switch {
		case u < utf8.RuneSelf:
			out = append(out, byte(u))
			continue
		case utf16.IsSurrogate(u):
			low := rune(utf8.RuneError)
			if i+1 < n {
				low = rune(binary.LittleEndian.Uint16(b[2*i+2:]))
			}
			if u = utf16.DecodeRune(u, low); u != utf8.RuneError {
				i++
			}
		}
		out = utf8.AppendRune(out, u)
	}
	return string(out)
}

// collation is SQL_Latin1_General_CP1_CI_AS, the default of an English installation: char and varchar are sent in code
// page 1252.
var collation = [5]byte{0x09, 0x04, 0xd0, 0x00, 0x34}

// cp1252High is code page 1252 from 0x80 to 0x9F; other bytes are their own code points. The five bytes without a
// character map to the control characters of the same number, as in Windows.
var cp1252High = [32]rune{
	0x20ac, 0x81, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
	0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d, 0x017d, 0x8f,
	0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
	0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d, 0x017e, 0x0178,
}

func decodeCP1252(b []byte) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		r := rune(c)
		if c >= 0x80 && c < 0xa0 {
			r = cp1252High[c-0x80]
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// appendCP1252 appends s in code page 1252, with "?" for missing characters, as a server does.
func appendCP1252(b []byte, s string) []byte {
	for _, r := range s {
		b = append(b, cp1252Byte(r))
	}
	return b
}

func cp1252Byte(r rune) byte {
	if r < 0x80 || r >= 0xa0 && r <= 0xff {
		return byte(r)
	}
	for i, high := range cp1252High {
		if r == high {
			return byte(0x80 + i)
		}
	}
	return '?'
}
