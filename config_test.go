package chanq

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/text"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// field is one field of a config with the bounds from its comment. 0 always means its default.
type field struct {
	name             string
	given, low, high int64
	become           func() int64
}

func (f field) wrong() bool { return f.given != 0 && (f.given < f.low || f.given > f.high) }

// requireFields: the error names every wrong field and no other. Without an error each field has
// the given value or a default within its bounds.
func requireFields(t *testing.T, err error, fields ...field) {
	t.Helper()
	for _, f := range fields {
		if err != nil {
			require.Equal(t, f.wrong(), strings.Contains(err.Error(), f.name+" is "), "%s: %v", f.name, err)
			continue
		}
		require.False(t, f.wrong(), "%s is %d and was accepted", f.name, f.given)
		switch got := f.become(); {
		case f.given != 0:
			require.Equal(t, f.given, got, f.name)
		default:
			require.True(t, got >= f.low && got <= f.high || got == 0, "%s becomes %d", f.name, got)
		}
	}
}

// FuzzConfig: no config panics, and the error names the wrong fields.
func FuzzConfig(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), "")
	f.Add(int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), "\xff")
	f.Add(int64(1), int64(1), int64(1), int64(1), int64(1), int64(1), "host/1")
	f.Add(int64(1<<40), int64(time.Hour), int64(time.Second), int64(time.Millisecond), int64(512), int64(1000),
		strings.Repeat("n", 201))
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g int64, name string) {
		a, b, d, e = int64(int(a)), int64(int(b)), int64(int(d)), int64(int(e)) // where an int has 32 bits
		hour, ms := int64(time.Hour), int64(time.Millisecond)
		queue, err := Config{Spec: Spec{MaxAttempts: int(a), MaxBody: int(b)},
			StatementTimeout: time.Duration(g)}.withDefaults()
		requireFields(t, err,
			field{"Spec.MaxAttempts", a, UnlimitedAttempts, 1_000_000,
				func() int64 { return int64(queue.MaxAttempts) }},
			field{"Spec.MaxBody", b, 1, 32 << 20, func() int64 { return int64(queue.MaxBody) }},
			field{"Config.StatementTimeout", g, ms, hour, func() int64 { return int64(queue.StatementTimeout) }})

		for _, dialect := range []sqlbatch.Dialect{sqlserver.Dialect, postgres.Dialect, sqlite.Dialect} {
			p, err := ProducerConfig{BatchRows: int(a), BatchBytes: int(b), Linger: time.Duration(c), InFlight: int(d),
				BufferBytes: int(e)}.withDefaults(dialect)
			requireFields(t, err,
				field{"ProducerConfig.BatchRows", a, 1, 512, func() int64 { return int64(p.BatchRows) }},
				field{"ProducerConfig.BatchBytes", b, 1, 32 << 20, func() int64 { return int64(p.BatchBytes) }},
				field{"ProducerConfig.Linger", c, int64(time.Microsecond), int64(time.Minute),
					func() int64 { return int64(p.Linger) }},
				field{"ProducerConfig.InFlight", d, 1, 64, func() int64 { return int64(p.InFlight) }},
				field{"ProducerConfig.BufferBytes", e, 1, 1 << 40, func() int64 { return int64(p.BufferBytes) }})
		}

		given := ConsumerConfig{
			Name: name, Prefetch: int(a), PrefetchBytes: int(b), LeaseFor: time.Duration(c),
			MaxExtend: time.Duration(d),
			PollEvery: time.Duration(g),
		}
		consumer, err := given.withDefaults()
		requireFields(t, withoutLines(err, "Name"),
			field{"ConsumerConfig.Prefetch", a, 1, 100_000, func() int64 { return int64(consumer.Prefetch) }},
			field{"ConsumerConfig.PrefetchBytes", b, 1, 1 << 40, func() int64 { return int64(consumer.PrefetchBytes) }},
			field{"ConsumerConfig.LeaseFor", c, 100 * ms, 24 * hour, func() int64 { return int64(consumer.LeaseFor) }},
			field{"ConsumerConfig.MaxExtend", d, 100 * ms, int64(sqlbatch.MaxDelay),
				func() int64 { return int64(consumer.MaxExtend) }},
			field{"ConsumerConfig.PollEvery", g, ms, hour, func() int64 { return int64(consumer.PollEvery) }})
		says := func(name string) bool {
			return err != nil &&
				strings.Contains(err.Error(), "ConsumerConfig."+name+" ")
		}
		require.Equal(t, len(name) > 200 || !utf8.ValidString(name) || strings.ContainsRune(name, 0), says("Name"),
			fmt.Sprint(err))
		require.NotNil(t, consumer.Backoff)
	})
}

// withoutLines returns err without the lines about these fields, which are checked separately, or
// nil if no line is left.
func withoutLines(err error, fields ...string) error {
	if err == nil {
		return nil
	}
	var left []string
	for line := range strings.Lines(err.Error()) {
		keep := true
		for _, f := range fields {
			keep = keep && !strings.HasPrefix(line, "ConsumerConfig."+f+" ")
		}
		if keep {
			left = append(left, line)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(left, ""))
}

// FuzzHeaders: accepted headers are decoded unchanged, and any stored bytes are decoded without a
// panic.
func FuzzHeaders(f *testing.F) {
	f.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", "", []byte(`{"a":"b"}`))
	f.Add("\x00", "<&>\u2028", "é", "😀", []byte(`{"a":1}`))
	f.Add("\xff", "a", "\xfe", "b", []byte("null"))
	f.Add("k", strings.Repeat("v", maxHeaderBytes), "k", "", []byte(`[{}]`))
	f.Add("k", "v", "k", "", []byte("{\x00}\x00"))
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string, stored []byte) {
		given := map[string]string{k1: v1, k2: v2}
		valid := true
		for k, v := range given {
			valid = valid && utf8.ValidString(k) && utf8.ValidString(v)
		}
		data, err := encodeHeaders(given)
		if err != nil {
			require.True(t, !valid || len(k1)+len(v1)+len(k2)+len(v2) > maxHeaderBytes/6-20,
				"JSON writes a byte in six at most: %v", err)
		} else {
			require.True(t, valid, "text that JSON would change is refused")
			require.LessOrEqual(t, len(data), maxHeaderBytes)
			got, err := decodeHeaders(data)
			require.NoError(t, err)
			require.Equal(t, given, got)
		}

		read, err := decodeHeaders(stored)
		var want map[string]string
		decoded, wrong := text.UTF8(stored)
		if len(stored) > 0 && (wrong != nil || json.Unmarshal(decoded, &want) != nil) {
			require.ErrorContains(t, err, "headers")
			require.Nil(t, read)
			return
		}
		require.NoError(t, err)
		require.True(t, maps.Equal(want, read))
	})
}

// The reference has the numbers of the comments, and those must be the code's.
func TestTheDocumentedLimitsAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile("docs/reference/configuration.md")
	require.NoError(t, err)
	for field, limit := range map[string]int{
		"MaxBody":                 sqlbatch.MaxBody >> 20,
		"Headers":                 maxHeaders,
		"DedupKey":                sqlbatch.MaxKey,
		"Key":                     sqlbatch.MaxOrderKey,
		"Type":                    sqlbatch.MaxType,
		"MaxAttempts":             mostAttempts,
		"MaxKeys":                 mostKeys,
		"MaxCrashes":              mostCrashes,
		"Label":                   maxLabel,
		"Name":                    sqlbatch.MaxConsumerText,
		"Slots":                   sqlbatch.MaxSlots,
		"Prefetch":                DefaultPrefetch,
		"PrefetchBytes":           DefaultPrefetchBytes >> 20,
		"BufferBytes":             DefaultBufferBytes >> 20,
		"Linger":                  int(DefaultLinger.Milliseconds()),
		"DrainFor":                int(DefaultDrainFor.Seconds()),
		"BatchRows`, `BatchBytes": DefaultBatchRows,
		"LeaseFor":                int(minLease.Milliseconds()),
	} {
		_, item, found := strings.Cut(string(text), "\n- **`"+field+"`** (")
		require.True(t, found, field)
		item, _, _ = strings.Cut(item, "\n- ")
		limits, _, _ := strings.Cut(item, "): ")
		require.Regexp(t, fmt.Sprintf(`(^|[^0-9,])(%s|%d)([^0-9,]|,? |$)`, grouped(limit), limit), limits, field)
	}
	require.Contains(t, string(text), "| settles that wait | 2 × `Prefetch`, at least "+
		""+grouped(consume.LeastBacklog)+" |")

	defaults, err := ConsumerConfig{}.withDefaults()
	require.NoError(t, err)
	for page, sentence := range map[string]string{
		"README.md":            fmt.Sprintf("redelivered about %.0f s later", defaults.LeaseFor.Seconds()),
		"docs/guides/order.md": fmt.Sprintf("With %s blocked keys", grouped(claim.BlockedMost)),
	} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Contains(t, strings.Join(strings.Fields(string(text)), " "), sentence, page)
	}
}

// grouped formats a number as documents do: 10,000.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return grouped(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

func TestASpecIsCheckedWhole(t *testing.T) {
	full, err := Spec{Kind: KindOrdered}.complete()
	require.NoError(t, err)
	require.Equal(t, Spec{KindOrdered, 64, UnlimitedKeys, DeadKeyOpens, 20, 1 << 20, RetainNone, RetainAll}, full)
	full, err = Spec{}.complete()
	require.NoError(t, err)
	require.Equal(t, Spec{Kind: KindPlain, MaxAttempts: 20, MaxBody: 1 << 20, Retain: RetainNone,
		RetainDead: RetainAll}, full)

	_, err = Spec{Slots: 1, MaxKeys: 2, DeadKey: DeadKeyHolds}.complete()
	for _, field := range []string{"Spec.Slots is set", "Spec.MaxKeys is set", "Spec.DeadKey is set"} {
		require.ErrorContains(t, err, field, "of a plain queue")
	}
	_, err = Spec{Kind: KindOrdered, Slots: 8, MaxKeys: 7}.complete()
	require.ErrorContains(t, err, "Spec.MaxKeys is 7: must be UnlimitedKeys or at least Slots, which is 8")
	_, err = Spec{Kind: KindOrdered, DeadKey: DeadKeyHolds, RetainDead: time.Hour}.complete()
	require.ErrorContains(t, err, "Spec.RetainDead is 1h0m0s: must be RetainAll")
	for says, s := range map[string]Spec{
		"Spec.Kind is 3":              {Kind: 3},
		"Spec.Slots is 1025":          {Slots: 1025},
		"Spec.Slots is -1":            {Slots: -1},
		"Spec.MaxKeys is -2":          {MaxKeys: -2},
		"Spec.MaxKeys is 1000001":     {MaxKeys: 1_000_001},
		"Spec.DeadKey is 3":           {DeadKey: 3},
		"Spec.MaxAttempts is -2":      {MaxAttempts: -2},
		"Spec.MaxAttempts is 1000001": {MaxAttempts: 1_000_001},
		"Spec.MaxBody is -1":          {MaxBody: -1},
		"Spec.Retain is -2ns":         {Retain: -2},
		"Spec.RetainDead is 1ns":      {RetainDead: 1},
	} {
		_, err := Config{Spec: s}.withDefaults()
		require.ErrorContains(t, err, says)
	}
	c, err := Config{Spec: Spec{Retain: time.Millisecond + 1}}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 2*time.Millisecond, c.Retain, "as it is stored")
}

// TestASpecIsStoredWhole converts each field to its stored form and back.
func TestASpecIsStoredWhole(t *testing.T) {
	for _, s := range []Spec{
		{KindOrdered, 8, UnlimitedKeys, DeadKeyOpens, UnlimitedAttempts, 1, RetainNone, RetainAll},
		{KindOrdered, 1, 9, DeadKeyHolds, 3, 2, time.Hour, RetainAll},
		{Kind: KindPlain, MaxAttempts: 3, MaxBody: 2, Retain: time.Hour, RetainDead: time.Minute},
	} {
		require.Equal(t, s, specOf(s.Slots, s.policy()))
		require.NoError(t, s.differs(s, false))
	}
}

// coded is an error of SQLite.
type coded int

func (c coded) Error() string { return "no such table" }
func (c coded) Code() int     { return int(c) }

// SQLite answers with these errors while another process creates the tables.
func TestTablesThatAreBeingCreatedAreReadAgain(t *testing.T) {
	for _, test := range []struct {
		err   error
		calls int
	}{{&sqlbatch.RunError{Err: coded(1)}, 2}, {coded(17), 2}, {errors.New("no answer"), 1}} {
		q, err := newQueue("migrate", &sql.DB{}, "orders", Config{Dialect: DialectSQLite})
		require.NoError(t, err)
		calls := 0
		_, err = schema{q, func(sqlbatch.Statement, func(*sql.Rows) error) error {
			if calls++; calls < 2 {
				return test.err
			}
			return nil
		}}.unlocked()
		require.Equal(t, test.calls, calls)
		require.Equal(t, calls < 2, err != nil)
	}
}

func TestALabelTakesThePlaceOfTheName(t *testing.T) {
	var mu sync.Mutex
	var told []string
	note := func(queue string) { mu.Lock(); defer mu.Unlock(); told = append(told, queue) }
	q := openTestQueue[string](t, Config{Label: "orders/east", Hooks: Hooks{
		Sent:    func(e SentEvent) { note(e.Queue) },
		Claimed: func(e ClaimedEvent) { note(e.Queue) },
		Settled: func(e SettledEvent) { note(e.Queue) },
		Dead:    func(e DeadEvent) { note(e.Queue) },
		Handled: func(e HandledEvent) { note(e.Queue) },
	}})
	require.Equal(t, []string{"orders", "orders/east"}, []string{q.Name(), q.Label()})
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.SendBatch(soon(t), make([]Message[string], 2)...)
	require.NoError(t, err)
	_, err = p.Send(soon(t), Message[string]{Key: "k"})
	var op *OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "orders/east", op.Queue)
	c := testConsumer(t, q, ConsumerConfig{})
	require.NoError(t, c.Handle(1, func(_ context.Context, l *Lease[string]) error {
		require.Equal(t, "orders/east", l.Queue)
		if len(c.C()) == 0 {
			c.Stop()
		}
		return DeadLetter(errors.New("no"))
	}))
	require.NoError(t, c.Flush(soon(t)))
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = q.Cancel(ended, NewID())
	require.ErrorAs(t, err, &op)
	require.Equal(t, "orders/east", op.Queue)
	_, err = q.Consume(t.Context(), ConsumerConfig{Prefetch: -1})
	require.ErrorContains(t, err, "chanq: consume orders/east: ")
	mu.Lock()
	defer mu.Unlock()
	require.GreaterOrEqual(t, len(told), 5)
	for _, queue := range told {
		require.Equal(t, "orders/east", queue)
	}
}

func TestALabelIsChecked(t *testing.T) {
	db := openSQLite(t)
	for _, label := range []string{"a\nb", "\xff", strings.Repeat("x", 257)} {
		require.ErrorContains(t, Migrate(t.Context(), db, "orders", Config{Label: label}), "Config.Label", "%q", label)
	}
	require.NoError(t, Migrate(t.Context(), db, "orders", Config{Label: strings.Repeat("x", 256)}))
}

// TestADatabaseThatDoesNotAnswerIsUnavailable: a database that answers that the queue does not exist is
// available.
func TestADatabaseThatDoesNotAnswerIsUnavailable(t *testing.T) {
	db := openSQLite(t)
	_, err := Open[string](t.Context(), db, "orders", Config{})
	require.ErrorIs(t, err, ErrNoSchema)
	require.NotErrorIs(t, err, ErrUnavailable)
	require.NoError(t, Migrate(t.Context(), db, "orders", Config{}))
	_, err = Open[string](t.Context(), db, "orders", Config{Spec: Spec{Kind: KindOrdered}})
	require.ErrorIs(t, err, ErrSpec)
	require.NotErrorIs(t, err, ErrUnavailable)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = Open[string](ended, db, "orders", Config{})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	_, err = StoredConfig(ended, db, "orders", Config{})
	require.ErrorIs(t, err, ErrUnavailable)
}

// TestTheShardOfAMessageNeverChanges: programs in other languages compute the same shard, and messages are stored
// by it.
func TestTheShardOfAMessageNeverChanges(t *testing.T) {
	id := ID{14: 1, 15: 2} // 258
	for i, m := range []Message[string]{
		{}, {Key: "ada"}, {DedupKey: "ada"}, {Key: "ada", DedupKey: "grace", ID: id}, {ID: id},
		{DedupKey: "grace", ID: id},
	} {
		require.Equal(t, []int{-1, 52, 52, 52, 58, 3}[i], ShardOf(m, 100), "%+v", m)
	}
	require.Equal(t, 0, ShardOf(Message[string]{Key: "ada"}, 1))
	require.Equal(t, 0, ShardOf(Message[string]{Key: "ada"}, 0))
	for index := range 7 {
		q := &queue{cfg: Config{Shard: ShardMark{Index: index, Count: 7}}}
		for range 100 {
			require.Equal(t, index, ShardOf(Message[string]{ID: q.newID()}, 7))
		}
	}
}
