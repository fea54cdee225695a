package chanqcodec_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcodec"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines are the three databases; PostgreSQL in the long tier.
var engines = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.Postgres}

type order struct{ Customer, Note string }

var ada = order{"Ada", strings.Repeat("tea ", 100)}

// keyOf returns a key.
func keyOf(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// sealed returns a codec that seals JSON with the key current, and opens all keys that are named by one letter each.
func sealed(t testing.TB, current, all string) chanq.Codec {
	t.Helper()
	keys := chanqcodec.Keys{Current: current, Secrets: map[string][]byte{}}
	for i := range all {
		keys.Secrets[all[i:i+1]] = keyOf(all[i])
	}
	c, err := chanqcodec.Seal(nil, keys)
	require.NoError(t, err)
	return c
}

// raw is a codec whose bodies are bytes.
type raw struct{}

func (raw) Encode(body any) ([]byte, error) { return body.([]byte), nil }
func (raw) Decode(data []byte, body any) error {
	*body.(*[]byte) = data
	return nil
}

func encode(t testing.TB, c chanq.Codec, body any) []byte {
	t.Helper()
	data, err := c.Encode(body)
	require.NoError(t, err)
	return data
}

// decode returns an order.
func decode(t testing.TB, c chanq.Codec, data []byte) (o order) {
	t.Helper()
	require.NoError(t, c.Decode(data, &o))
	return o
}

// First all programs can read the new bodies, then they write them. Messages of each step are in the queue.
func TestBothAreSwitchedOnInARunningSystem(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		to, err := chanqcodec.Seal(chanqcodec.Gzip(nil, 100), chanqcodec.Keys{Current: "a", Secrets: map[string][]byte{"a": keyOf('a')}})
		require.NoError(w, err)
		q := testdb.QueueOf[order](w, "orders", chanq.Config{History: chanq.HistoryOff})
		for _, c := range []chanq.Codec{nil, chanqcodec.Pair(nil, to), to} {
			q = opened(w, c)
			testdb.Send(w, q, chanq.Msg(ada))
		}
		stored, err := testdb.Peek(w.Soon(), q, chanqadmin.StateReady, 3)
		require.NoError(w, err)
		for step, e := range stored {
			require.Equal(w, step < 2, strings.Contains(string(e.Body), "Ada"), "step %d", step)
			require.Equal(w, step < 2, len(e.Body) > 400, "step %d: %d bytes", step, len(e.Body))
		}
		c := testdb.Start(w, opened(w, chanqcodec.Pair(nil, to)), chanq.ConsumerConfig{})
		for range 3 {
			l := testdb.Receive(w, c.C(), "an order")
			require.Equal(w, ada, l.Body)
			require.NoError(w, l.Ack())
		}
	})
}

// A key is added, becomes the current one, and the old one is removed, too early for one message.
func TestKeysAreRotated(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		testdb.QueueOf[order](w, "orders", chanq.Config{History: chanq.HistoryOff})
		read := func(q *chanq.Queue[order], n int) {
			w.Helper()
			c := testdb.Start(w, q, chanq.ConsumerConfig{})
			for range n {
				l := testdb.Receive(w, c.C(), "an order")
				require.Equal(w, ada, l.Body)
				require.NoError(w, l.Ack())
			}
			w.Eventually("all are acked or dead", func() bool { s, err := testdb.Admin(q).Stats(w.Soon()); return err == nil && s.Ready+s.Leased == 0 })
			c.Stop()
			require.NoError(w, c.Shutdown(w.Soon()))
		}
		testdb.Send(w, opened(w, sealed(w, "a", "a")), chanq.Msg(ada))
		testdb.Send(w, opened(w, sealed(w, "b", "ab")), chanq.Msg(ada))
		read(opened(w, sealed(w, "a", "ab")), 2)
		testdb.Send(w, opened(w, sealed(w, "a", "ab")), chanq.Msg(ada))
		testdb.Send(w, opened(w, sealed(w, "b", "b")), chanq.Msg(ada))
		q := opened(w, sealed(w, "b", "b"))
		read(q, 1)
		dead, err := testdb.Peek(w.Soon(), q, chanqadmin.StateDead, 2)
		require.NoError(w, err)
		require.Len(w, dead, 1)
		require.Equal(w, chanq.CauseUndecodable, dead[0].Cause)
		require.Contains(w, dead[0].LastError, `the body is encrypted with the key "a", which this program lacks: add it to Keys.Secrets, and redrive`)

		_, err = testdb.Admin(q).Redrive(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead, All: true}, chanqadmin.Change{})
		require.NoError(w, err)
		read(opened(w, sealed(w, "b", "ab")), 1)
	})
}

// opened opens the queue of a program with a codec.
func opened(w *testdb.World, c chanq.Codec) *chanq.Queue[order] {
	w.Helper()
	q, err := chanq.Open[order](w.Soon(), w.DB, "orders", chanq.Config{History: chanq.HistoryOff, Codec: c})
	require.NoError(w, err)
	return q
}

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	for want, keys := range map[string]chanqcodec.Keys{
		`Keys.Current is "": must be one of Keys.Secrets`:      {},
		`Keys.Current is "b": must be one of Keys.Secrets`:     {Current: "b", Secrets: map[string][]byte{"a": keyOf(1)}},
		`Keys.Secrets: the key "a" is 16 bytes: must be 32`:    {Current: "a", Secrets: map[string][]byte{"a": make([]byte, 16)}},
		`Keys.Secrets: the ID "": must be 1 to 100 bytes`:      {Current: "", Secrets: map[string][]byte{"": keyOf(1)}},
		strings.Repeat("x", 101) + `": must be 1 to 100 bytes`: {Current: "a", Secrets: map[string][]byte{strings.Repeat("x", 101): keyOf(1)}},
	} {
		_, err := chanqcodec.Seal(nil, keys)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\x01", "the key is secret")
	}
	longest := chanqcodec.Keys{Current: strings.Repeat("x", 100), Secrets: map[string][]byte{strings.Repeat("x", 100): keyOf(1)}}
	c, err := chanqcodec.Seal(nil, longest)
	require.NoError(t, err)
	require.Equal(t, ada, decode(t, c, encode(t, c, ada)))
}

func TestASealedBodyThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	body := encode(t, sealed(t, "a", "a"), ada)
	refused := func(c chanq.Codec, data []byte, want string) {
		t.Helper()
		require.ErrorContains(t, c.Decode(data, new(order)), want)
	}
	refused(sealed(t, "b", "b"), body, `the body is encrypted with the key "a", which this program lacks`)
	other, err := chanqcodec.Seal(nil, chanqcodec.Keys{Current: "a", Secrets: map[string][]byte{"a": keyOf('b')}})
	require.NoError(t, err)
	refused(other, body, `encrypted with the key "a": this program has another key of this ID`)
	for n := 4; n < len(body); n++ {
		require.Error(t, sealed(t, "a", "a").Decode(body[:n], new(order)), "cut to %d bytes", n)
	}
	refused(sealed(t, "a", "a"), body[:4], "was cut")
	refused(sealed(t, "a", "a"), body[:5], "was cut")
	for i := range body {
		changed := bytes.Clone(body)
		changed[i] ^= 1
		require.Error(t, sealed(t, "a", "a").Decode(changed, new(order)), "byte %d", i)
	}
	require.NotEqual(t, body, encode(t, sealed(t, "a", "a"), ada), "each body has its own nonce")
}

func TestShortBodiesAreNotCompressed(t *testing.T) {
	t.Parallel()
	c := chanqcodec.Gzip(raw{}, 100)
	short, random := bytes.Repeat([]byte("a"), 99), []byte(hex.EncodeToString(keyOf(7)))
	require.Equal(t, short, encode(t, c, short))
	require.Less(t, len(encode(t, c, append(short, 'a'))), 50)
	require.Equal(t, random[:10], encode(t, chanqcodec.Gzip(raw{}, 0), random[:10]), "it would get longer")

	// A body of the inner codec that looks like a compressed one is read as it was.
	like := append(encode(t, c, append(short, 'a')), "more"...)
	for _, least := range []int{0, 1000} {
		c := chanqcodec.Gzip(raw{}, least)
		var back []byte
		require.NoError(t, c.Decode(encode(t, c, like), &back))
		require.Equal(t, like, back)
	}
}

func TestACompressedBodyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := chanqcodec.Gzip(nil, 0)
	body := encode(t, c, ada)
	for n := 4; n < len(body); n++ {
		require.ErrorContains(t, c.Decode(body[:n], new(order)), "the body is compressed, and was cut or changed", "cut to %d bytes", n)
	}
	require.ErrorContains(t, c.Decode(append(bytes.Clone(body), 'x'), new(order)), "was cut or changed")
	require.Equal(t, ada, decode(t, c, body), "a reader that has failed is used again")
}

func TestASmallBodyCannotFillTheMemory(t *testing.T) {
	t.Parallel()
	c := chanqcodec.Gzip(raw{}, 0)
	largest := make([]byte, chanqcodec.MaxBody)
	body := encode(t, c, largest)
	require.Less(t, len(body), 1<<20)
	var back []byte
	require.NoError(t, c.Decode(body, &back))
	require.Len(t, back, chanqcodec.MaxBody)

	_, err := c.Encode(append(largest, 0))
	require.ErrorIs(t, err, chanq.ErrTooLarge)
	require.ErrorContains(t, err, "before its compression the body is 33554433 bytes: must be at most 33554432")
	var bomb bytes.Buffer
	bomb.Write(body[:4])
	w := gzip.NewWriter(&bomb)
	for range 5 {
		_, err := w.Write(largest)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	err = c.Decode(bomb.Bytes(), &back)
	require.ErrorIs(t, err, chanq.ErrTooLarge)
	require.ErrorContains(t, err, "the body is compressed, and has more than 33554432 bytes")
	require.ErrorIs(t, c.Decode(bomb.Bytes()[:bomb.Len()-10], &back), chanq.ErrTooLarge, "what is behind the limit is not read")
}

// Bodies that earlier versions have written are in queues.
func TestBodiesOfEarlierVersionsAreRead(t *testing.T) {
	t.Parallel()
	long := order{"Ada", strings.Repeat("a", 88)}
	for stored, want := range map[string]order{
		`7b22437573746f6d6572223a22416461227d`: {Customer: "Ada"}, // JSON
		`8c637a311f8b08000000000000ffaa56722e2d2ec9cf4d2d52b252724c4954d251f2cb2f4955b2524aa41150aa05040000ffff2edc102a74000000`:       long,
		`8c637331016b29ed72c3e94860d90953871b712ff1a1ad8cda21c75ae1b27762b601a9a8f0cfbcf8bc40c017c468171a6accff2b2acedddbd38f33aa27fe`: {Customer: "Ada"},
	} {
		data, err := hex.DecodeString(stored)
		require.NoError(t, err)
		c, err := chanqcodec.Seal(chanqcodec.Gzip(nil, 0), chanqcodec.Keys{Current: "k", Secrets: map[string][]byte{"k": keyOf(1)}})
		require.NoError(t, err)
		require.Equal(t, want, decode(t, c, data))
	}
}

func TestTheErrorsOfTheInnerCodecAreReturned(t *testing.T) {
	t.Parallel()
	for _, c := range []chanq.Codec{chanqcodec.Gzip(nil, 0), sealed(t, "a", "a"), chanqcodec.Pair(nil, nil)} {
		_, err := c.Encode(func() {})
		require.Error(t, err)
		require.Error(t, c.Decode([]byte("{"), new(order)))
		require.Error(t, c.Decode(encode(t, c, "text"), new(order)))
	}
}

func FuzzDecode(f *testing.F) {
	seal, err := chanqcodec.Seal(chanqcodec.Gzip(raw{}, 10), chanqcodec.Keys{Current: "k", Secrets: map[string][]byte{"k": keyOf(1)}})
	require.NoError(f, err)
	f.Add([]byte(nil))
	f.Add([]byte("{}"))
	f.Add(encode(f, seal, []byte("tea")))
	f.Add(encode(f, chanqcodec.Gzip(raw{}, 0), bytes.Repeat([]byte("tea"), 100)))
	f.Add([]byte("\x8ccs1"))
	f.Add([]byte("\x8ccs1\xff"))
	f.Add([]byte("\x8ccz1\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, c := range map[string]chanq.Codec{"gzip": chanqcodec.Gzip(raw{}, 10), "seal": seal} {
			var body []byte
			if err := c.Decode(data, &body); err == nil && !bytes.HasPrefix(data, []byte("\x8cc")) {
				require.Equal(t, data, body, "%s: a body without a marker is passed on", name)
			}
			require.LessOrEqual(t, len(body), chanqcodec.MaxBody)
			require.NoError(t, c.Decode(encode(t, c, data), &body))
			require.True(t, bytes.Equal(data, body), "%s: any body comes back", name)
		}
	})
}

func BenchmarkCodecs(b *testing.B) {
	var text strings.Builder // JSON with few repetitions, as bodies have
	for i := range 40 {
		fmt.Fprintf(&text, "%x ", sha256.Sum256([]byte{byte(i)}))
	}
	o := order{"Ada", text.String()[:1000] + strings.Repeat("tea for two and two for tea, ", 100)[:2000]}
	seal := sealed(b, "a", "a")
	for name, c := range map[string]chanq.Codec{"json": chanq.JSON, "gzip": chanqcodec.Gzip(nil, 0), "seal": seal} {
		data := encode(b, c, o)
		b.Run("codec="+name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(data)), "B/body")
			for b.Loop() {
				encode(b, c, o)
			}
		})
		b.Run("codec="+name+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decode(b, c, data)
			}
		})
	}
}
