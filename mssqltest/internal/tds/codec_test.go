package tds

import (
	"bytes"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// typedValue is a type and a value of it that the wire can carry exactly.
type typedValue struct {
	t sqltype.Type
	v sqltype.Value
}

func typedValues() *rapid.Generator[typedValue] {
	return rapid.Custom(func(t *rapid.T) typedValue {
		kind := sqltype.Kind(rapid.IntRange(int(sqltype.Bit), int(sqltype.XML)).Draw(t, "kind"))
		typ := sqltype.Type{Kind: kind}
		size := rapid.SampledFrom([]int{1, 7, 4000, 8000, sqltype.Max}).Draw(t, "size")
		day := rapid.IntRange(0, lastDay)
		switch kind {
		case sqltype.Bit:
			return typedValue{typ, rapid.Bool().Draw(t, "v")}
		case sqltype.TinyInt:
			return typedValue{typ, int64(rapid.Uint8().Draw(t, "v"))}
		case sqltype.SmallInt:
			return typedValue{typ, int64(rapid.Int16().Draw(t, "v"))}
		case sqltype.Int:
			return typedValue{typ, int64(rapid.Int32().Draw(t, "v"))}
		case sqltype.BigInt:
			return typedValue{typ, rapid.Int64().Draw(t, "v")}
		case sqltype.Float:
			return typedValue{typ, rapid.Float64().Draw(t, "v")}
		case sqltype.Decimal:
			typ.Precision = rapid.Uint8Range(1, maxPrecision).Draw(t, "precision")
			typ.Scale = rapid.Uint8Range(0, typ.Precision).Draw(t, "scale")
			digits := rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), 1, int(typ.Precision), -1).Draw(t, "digits")
			n, _ := new(big.Int).SetString(digits, 10)
			if rapid.Bool().Draw(t, "negative") {
				n.Neg(n)
			}
			return typedValue{typ, new(big.Rat).SetFrac(n, pow10(typ.Scale))}
		case sqltype.Char, sqltype.VarChar:
			typ.Size = size
			runes := append([]rune("az09~ÀÿÖ"), cp1252High[:]...)
			return typedValue{typ, rapid.StringOfN(rapid.RuneFrom(runes), 0, room(size), -1).Draw(t, "v")}
		case sqltype.NChar, sqltype.NVarChar:
			typ.Size = size
			// A character beyond the BMP takes the space of two.
			return typedValue{typ, rapid.StringOfN(rapid.RuneFrom([]rune("aé€Ж😀")), 0, room(size)/2, -1).Draw(t, "v")}
		case sqltype.XML:
			return typedValue{typ, rapid.String().Draw(t, "v")}
		case sqltype.Binary, sqltype.VarBinary:
			typ.Size = size
			return typedValue{typ, rapid.SliceOfN(rapid.Byte(), 0, room(size)).Draw(t, "v")}
		case sqltype.UniqueIdentifier:
			return typedValue{typ, sqltype.GUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v"))}
		case sqltype.Date:
			return typedValue{typ, joinTime(day.Draw(t, "day"), 0)}
		case sqltype.DateTime:
			ms := rapid.IntRange(0, secondsPerDay*datetimeTicks-1).Draw(t, "tick")*1000 + datetimeTicks/2
			return typedValue{typ, joinTime(rapid.IntRange(dayOf1753, lastDay).Draw(t, "day"), time.Duration(ms/datetimeTicks)*time.Millisecond)}
		case sqltype.SmallDateTime:
			return typedValue{typ, joinTime(dayOf1900+rapid.IntRange(0, 0xffff).Draw(t, "day"), time.Duration(rapid.IntRange(0, 1439).Draw(t, "minute"))*time.Minute)}
		}
		typ.Scale = rapid.Uint8Range(0, 7).Draw(t, "scale")
		step := tick(typ.Scale)
		ofDay := time.Duration(rapid.Int64Range(0, int64(24*time.Hour/step)-1).Draw(t, "clock")) * step
		switch kind {
		case sqltype.Time:
			return typedValue{typ, joinTime(0, ofDay)}
		case sqltype.DateTime2:
			return typedValue{typ, joinTime(day.Draw(t, "day"), ofDay)}
		default:
			zone := time.FixedZone("", rapid.IntRange(-14*60, 14*60).Draw(t, "offset")*60)
			return typedValue{typ, joinTime(day.Draw(t, "day"), ofDay).In(zone)}
		}
	})
}

// room returns how many units of a size a test fills.
func room(size int) int {
	if size == sqltype.Max || size > 40 {
		return 40
	}
	return size
}

func TestEveryValueIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := typedValues().Draw(t, "value")
		if rapid.IntRange(0, 9).Draw(t, "null") == 0 {
			want.v = nil
		}
		require.NoError(t, checkType(want.t))
		b, err := appendValue(appendTypeInfo(nil, want.t), want.t, want.v)
		require.NoError(t, err)
		d := &decoder{b: b}
		w := d.typeInfo()
		got := d.value(w)
		require.NoError(t, d.err)
		require.True(t, d.empty(), "%d bytes left", len(d.b))
		if size := want.t.Size; size*2 > maxShortBytes && (want.t.Kind == sqltype.NChar || want.t.Kind == sqltype.NVarChar) {
			want.t.Size = sqltype.Max // a size that is too long for a declaration is (max)
		}
		require.Equal(t, want.t, w.t)
		if instant, ok := want.v.(time.Time); ok {
			require.Equal(t, instant.Format(time.RFC3339Nano), got.(time.Time).Format(time.RFC3339Nano))
			return
		}
		require.Equal(t, want.v, got)
	})
}

func TestValuesOutOfRangeAreNotWritten(t *testing.T) {
	at := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	}
	for _, c := range []typedValue{
		{sqltype.Type{Kind: sqltype.TinyInt}, int64(-1)},
		{sqltype.Type{Kind: sqltype.TinyInt}, int64(256)},
		{sqltype.Type{Kind: sqltype.SmallInt}, int64(1 << 15)},
		{sqltype.Type{Kind: sqltype.Int}, int64(-1<<31 - 1)},
		{sqltype.Type{Kind: sqltype.Decimal, Precision: 2}, big.NewRat(199, 2)}, // 99.5 rounds to 100
		{sqltype.Type{Kind: sqltype.Date}, at(10000, 1, 1)},
		{sqltype.Type{Kind: sqltype.DateTime2}, at(0, 12, 31)},
		{sqltype.Type{Kind: sqltype.DateTime}, at(1752, 12, 31)},
		{sqltype.Type{Kind: sqltype.SmallDateTime}, at(1899, 12, 31)},
		{sqltype.Type{Kind: sqltype.SmallDateTime}, at(2079, 6, 7)},
		{sqltype.Type{Kind: sqltype.NVarChar, Size: 1}, "😀"},
		{sqltype.Type{Kind: sqltype.Bit}, int64(1)},
		{sqltype.Type{Kind: sqltype.VarBinary, Size: 9}, "text"},
	} {
		b, err := appendValue([]byte("before"), c.t, c.v)
		require.Error(t, err, "%+v", c)
		require.Equal(t, "before", string(b), "nothing is written")
	}
}

func TestLoneSurrogatesAreReplaced(t *testing.T) {
	for text, units := range map[string][]byte{
		"a\ufffd":      {'a', 0, 0x00, 0xd8},
		"\ufffda":      {0x00, 0xdc, 'a', 0},
		"\ufffd\u20ac": {0x3d, 0xd8, 0xac, 0x20},
		"\U0001f600b":  {0x3d, 0xd8, 0x00, 0xde, 'b', 0},
	} {
		require.Equal(t, text, decodeUTF16(units))
	}
}

func TestTruncateUnitsNeverSplitsACharacter(t *testing.T) {
	require.Equal(t, "ab", truncateUnits("ab", 2))
	require.Equal(t, "a", truncateUnits("ab", 1))
	require.Equal(t, "a", truncateUnits("a😀", 2))
	require.Equal(t, "a😀", truncateUnits("a😀", 3))
	require.Empty(t, truncateUnits("ab", 0))
}

func TestALongErrorFitsItsToken(t *testing.T) {
	b := appendMessage(nil, strings.Repeat("s", 300), &sqltype.Error{Class: 16, Message: strings.Repeat("é", 100_000), Proc: strings.Repeat("p", 300)})
	d := &decoder{b: b}
	require.Equal(t, uint8(tokenError), d.u8())
	d.bytes(int(d.u16()))
	require.NoError(t, d.err)
	require.True(t, d.empty())
}

func TestARowUsesTheShorterOfItsFormats(t *testing.T) {
	ints := make([]sqltype.Column, 9)
	for i := range ints {
		ints[i] = sqltype.Column{Type: sqltype.Type{Kind: sqltype.TinyInt}, Nullable: true}
	}
	values := make([]sqltype.Value, 9)
	for i := range values {
		values[i] = int64(i)
	}
	for nulls, want := range []byte{tokenRow, tokenRow, tokenRow, tokenNBCRow} { // the bitmap has two bytes
		b, err := appendRow(nil, ints, append(make([]sqltype.Value, nulls), values[nulls:]...))
		require.NoError(t, err)
		require.Equal(t, want, b[0], "%d nulls", nulls)
	}
	long := []sqltype.Column{{Type: sqltype.Type{Kind: sqltype.XML}}}
	b, err := appendRow(nil, long, []sqltype.Value{nil})
	require.NoError(t, err)
	require.Equal(t, []byte{tokenNBCRow, 1}, b)
}

func TestThePacketSizeIsGrantedWithinTheLimits(t *testing.T) {
	for _, c := range []struct {
		asked     int
		encrypted bool
		granted   int
	}{{0, false, 4096}, {1, false, 512}, {512, true, 512}, {8192, true, 8192}, {40_000, false, 32767}, {32767, true, 16383}} {
		require.Equal(t, c.granted, grantPacketSize(c.asked, c.encrypted), "%+v", c)
	}
}

// A client that reads packets of any size receives the same bytes, and an end of message only in the last packet.
func TestTheWriterCutsMessagesThatTheReaderJoins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire bytes.Buffer
		w := &messageWriter{w: &wire, packetType: packetReply, maxPacket: rapid.IntRange(minPacketBytes, maxPacketBytes).Draw(t, "packet")}
		var want []byte
		for range rapid.IntRange(1, 6).Draw(t, "tokens") {
			token := bytes.Repeat([]byte{byte(len(want))}, rapid.IntRange(1, 3*sendAt/2).Draw(t, "token"))
			want = append(want, token...)
			w.buf = append(w.buf, token...)
			require.NoError(t, w.boundary())
			if rapid.Bool().Draw(t, "flush") {
				require.NoError(t, w.flush())
			}
		}
		w.buf, want = append(w.buf, 1), append(want, 1)
		total := w.total()
		require.NoError(t, w.finish())
		require.Equal(t, total, wire.Len())
		r := newMessageReader(&wire, 1<<20)
		r.maxPacket = w.maxPacket
		msg, err := r.read()
		require.NoError(t, err)
		require.Equal(t, want, msg.payload)
		require.Equal(t, total, msg.wireBytes)
		require.Zero(t, wire.Len()+r.r.Buffered())
	})
}

// Microsoft.Data.SqlClient reads a nullable type as nullable, whatever the flag of its column says.
func TestANotNullColumnOfAnOlderTypeIsAnnouncedAsOne(t *testing.T) {
	for _, c := range []struct {
		kind     sqltype.Kind
		value    sqltype.Value
		nullable []byte // type, and a value with its length
		fixed    []byte
		row      []byte // of the fixed form
	}{
		{sqltype.Bit, true, []byte{typeBitN, 1}, []byte{typeBit}, []byte{1}},
		{sqltype.TinyInt, int64(7), []byte{typeIntN, 1}, []byte{typeInt1}, []byte{7}},
		{sqltype.SmallInt, int64(7), []byte{typeIntN, 2}, []byte{typeInt2}, []byte{7, 0}},
		{sqltype.Int, int64(7), []byte{typeIntN, 4}, []byte{typeInt4}, []byte{7, 0, 0, 0}},
		{sqltype.BigInt, int64(7), []byte{typeIntN, 8}, []byte{typeInt8}, []byte{7, 0, 0, 0, 0, 0, 0, 0}},
		{sqltype.Float, 1.0, []byte{typeFloatN, 8}, []byte{typeFloat8}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		{sqltype.DateTime, time.Date(1900, 1, 2, 0, 0, 0, 0, time.UTC), []byte{typeDateTimeN, 8}, []byte{typeDateTime}, []byte{1, 0, 0, 0, 0, 0, 0, 0}},
		{sqltype.SmallDateTime, time.Date(1900, 1, 2, 0, 0, 0, 0, time.UTC), []byte{typeDateTimeN, 4}, []byte{typeDateTime4}, []byte{1, 0, 0, 0}},
		{sqltype.UniqueIdentifier, sqltype.GUID{1}, []byte{typeGUID, 16}, []byte{typeGUID, 16}, append([]byte{16, 1}, make([]byte, 15)...)},
		{sqltype.Date, time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), []byte{typeDateN}, []byte{typeDateN}, []byte{3, 1, 0, 0}},
	} {
		column := sqltype.Column{Type: sqltype.Type{Kind: c.kind}}
		described := func(nullable bool) []byte {
			column.Nullable = nullable
			b, err := appendColumns(nil, []sqltype.Column{column})
			require.NoError(t, err)
			return b[9 : len(b)-1] // behind the count, the user type and the flags, before the name
		}
		require.Equal(t, c.nullable, described(true), c.kind)
		require.Equal(t, c.fixed, described(false), c.kind)
		b, err := appendRow(nil, []sqltype.Column{column}, []sqltype.Value{c.value})
		require.NoError(t, err)
		require.Equal(t, append([]byte{tokenRow}, c.row...), b, c.kind)
		if len(c.fixed) == 1 && c.kind != sqltype.Date {
			_, err = appendRow(nil, []sqltype.Column{column}, []sqltype.Value{nil})
			require.ErrorContains(t, err, "NULL in a column that cannot have one")
		}
	}
}
