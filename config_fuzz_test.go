package chanq

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

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
	f.Add(int64(1<<40), int64(time.Hour), int64(time.Second), int64(time.Millisecond), int64(512), int64(1000), strings.Repeat("n", 201))
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g int64, name string) {
		a, b, d, e = int64(int(a)), int64(int(b)), int64(int(d)), int64(int(e)) // where an int has 32 bits
		hour, ms := int64(time.Hour), int64(time.Millisecond)
		queue, err := Config{Spec: Spec{MaxAttempts: int(a), MaxBody: int(b)}, StatementTimeout: time.Duration(g)}.withDefaults()
		requireFields(t, err,
			field{"Spec.MaxAttempts", a, UnlimitedAttempts, 1_000_000, func() int64 { return int64(queue.MaxAttempts) }},
			field{"Spec.MaxBody", b, 1, 32 << 20, func() int64 { return int64(queue.MaxBody) }},
			field{"Config.StatementTimeout", g, ms, hour, func() int64 { return int64(queue.StatementTimeout) }})

		for _, dialect := range []sqlbatch.Dialect{sqlserver.Dialect, postgres.Dialect, sqlite.Dialect} {
			p, err := ProducerConfig{BatchRows: int(a), BatchBytes: int(b), Linger: time.Duration(c), InFlight: int(d), BufferBytes: int(e)}.withDefaults(dialect)
			requireFields(t, err,
				field{"ProducerConfig.BatchRows", a, 1, 512, func() int64 { return int64(p.BatchRows) }},
				field{"ProducerConfig.BatchBytes", b, 1, 32 << 20, func() int64 { return int64(p.BatchBytes) }},
				field{"ProducerConfig.Linger", c, int64(time.Microsecond), int64(time.Minute), func() int64 { return int64(p.Linger) }},
				field{"ProducerConfig.InFlight", d, 1, 64, func() int64 { return int64(p.InFlight) }},
				field{"ProducerConfig.BufferBytes", e, 1, 1 << 40, func() int64 { return int64(p.BufferBytes) }})
		}

		given := ConsumerConfig{
			Name: name, Prefetch: int(a), PrefetchBytes: int(b), LeaseFor: time.Duration(c), MaxExtend: time.Duration(d),
			PollEvery: time.Duration(g),
		}
		consumer, err := given.withDefaults()
		requireFields(t, withoutLines(err, "Name"),
			field{"ConsumerConfig.Prefetch", a, 1, 100_000, func() int64 { return int64(consumer.Prefetch) }},
			field{"ConsumerConfig.PrefetchBytes", b, 1, 1 << 40, func() int64 { return int64(consumer.PrefetchBytes) }},
			field{"ConsumerConfig.LeaseFor", c, 100 * ms, 24 * hour, func() int64 { return int64(consumer.LeaseFor) }},
			field{"ConsumerConfig.MaxExtend", d, 100 * ms, int64(sqlbatch.MaxDelay), func() int64 { return int64(consumer.MaxExtend) }},
			field{"ConsumerConfig.PollEvery", g, ms, hour, func() int64 { return int64(consumer.PollEvery) }})
		says := func(name string) bool { return err != nil && strings.Contains(err.Error(), "ConsumerConfig."+name+" ") }
		require.Equal(t, len(name) > 200 || !utf8.ValidString(name) || strings.ContainsRune(name, 0), says("Name"), fmt.Sprint(err))
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
