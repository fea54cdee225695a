package sqlserver_test

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/prove/testdb/tsqlcheck"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestListsEndBelow8000Bytes(t *testing.T) {
	traits, q := sqlserver.Dialect.Traits(), sqlserver.Dialect.Queue(suite.Orders)
	for name, s := range map[string]sqlbatch.Statement{
		"ack":         q.Ack(make([]sqlbatch.Item, traits.AckItems)),
		"archive":     q.Archive(make([]sqlbatch.Item, traits.AckItems)),
		"extend":      q.Extend(suite.Consumer, make([]sqlbatch.Item, traits.AckItems), time.Minute),
		"nack":        q.Nack(make([]sqlbatch.NackItem, traits.NackItems)),
		"release":     q.Release(suite.Releases(make([]sqlbatch.Item, traits.AckItems))),
		"dead-letter": q.DeadLetter(make([]sqlbatch.DeadLetterItem, traits.DeadLetterItems)),
		"find":        q.Find(make([][16]byte, traits.FindIDs), make([]string, traits.FindIDs)),
		"cancel":      q.Cancel(make([][16]byte, traits.FindIDs)),
		"run-now":     q.RunNow(make([][16]byte, traits.FindIDs)),
		"look":        q.Look(make([][16]byte, traits.FindIDs)),
		"redrive":     q.Redrive(0, make([][16]byte, traits.FindIDs), sqlbatch.Window{}),
	} {
		for i, d := range strings.Split(s.Args[1].(string), ", ") {
			if strings.HasSuffix(d, "varbinary(8000)") {
				require.Less(t, len(s.Args[2+i].(sql.NamedArg).Value.([]byte)), 8000, "%s: %s", name, d)
			}
		}
		require.Contains(t, s.Args[0], "(380)", "%s counts up to 399", name)
	}
	for _, n := range []int{traits.AckItems, traits.NackItems, traits.DeadLetterItems, traits.FindIDs} {
		require.LessOrEqual(t, n, 400, "as many as the statements count")
		require.Greater(t, n, 180)
	}
}

func TestClaimIsBounded(t *testing.T) {
	q := sqlserver.Dialect.Queue(suite.Orders)
	require.LessOrEqual(t, sqlserver.Dialect.Traits().ClaimRows, 1000)
	s := q.Claim(sqlbatch.ClaimParams{Rows: 5000, Lease: time.Second})
	require.Equal(t, int32(1000), s.Args[2].(sql.NamedArg).Value)
}

func TestConsumerNamesFitTheirColumns(t *testing.T) {
	s := sqlserver.Dialect.Queue(suite.Orders).Join(sqlbatch.Consumer{Name: strings.Repeat("😀", 150), Host: "h\xff"})
	require.Len(t, utf16.Encode([]rune(s.Args[3].(sql.NamedArg).Value.(string))), 200)
	require.Equal(t, "h\uFFFD", s.Args[4].(sql.NamedArg).Value)
}

func TestWindowsCoverTheCalendar(t *testing.T) {
	q := sqlserver.Dialect.Queue(suite.Orders)
	day := int64(24 * time.Hour / time.Millisecond)
	require.Equal(t, []any{
		sql.Named("after_days", int32(-719162)), sql.Named("after_ms", int32(0)), sql.Named("after_id", make([]byte, 16)), // the year 1
		sql.Named("before_days", int32(2932896)), sql.Named("before_ms", int32(day-1)),
	}, q.Purge(sqlbatch.Dead, 1, sqlbatch.Window{}).Args[3:], "9999-12-31T23:59:59.999")
	require.Equal(t, []any{
		sql.Named("after_days", int32(20000)), sql.Named("after_ms", int32(7)), sql.Named("after_id", make([]byte, 16)),
		sql.Named("before_days", int32(20001)), sql.Named("before_ms", int32(8)),
	}, q.Redrive(1, nil, sqlbatch.Window{After: 20000*day + 7, Before: 20001*day + 8}).Args[3:])
	require.Equal(t, sql.Named("mark", int64(5)<<sqlbatch.FenceBits), q.Purge(sqlbatch.Leased, 1, sqlbatch.Window{Before: 5}).Args[9])
	require.Equal(t, sql.Named("mark", int64(math.MaxInt64)), q.Purge(sqlbatch.Leased, 1, sqlbatch.Window{}).Args[9])
}

func TestLeasesOfMonthsFitAnInt(t *testing.T) {
	s := sqlserver.Dialect.Queue(suite.Orders).Claim(sqlbatch.ClaimParams{Rows: 1, Lease: 90*24*time.Hour + 1500*time.Microsecond})
	require.Equal(t, sql.Named("lease_days", int32(90)), s.Args[3])
	require.Equal(t, sql.Named("lease_ms", int32(2)), s.Args[4], "rounded up")
}

// One plan per statement: whatever the values, a queue sends these pairs of text and declaration, of which 160 are enqueues.
func TestTextsDoNotDependOnValues(t *testing.T) {
	q := sqlserver.Dialect.Queue(suite.Orders)
	known, kinds := map[serverText]bool{}, map[string]string{}
	note := func(t require.TestingT, s sqlbatch.Statement) {
		require.Equal(t, "sp_executesql", s.Text)
		text := serverText{text: s.Args[0].(string)}
		if len(s.Args) > 1 {
			text.declaration = s.Args[1].(string)
		}
		known[text] = true
		for i, a := range s.Args[min(2, len(s.Args)):] {
			named, ok := a.(sql.NamedArg)
			if !ok {
				named.Value = a
			}
			place := fmt.Sprintf("%s|%s|%d", text.text, named.Name, i)
			kind := fmt.Sprintf("%T", named.Value)
			require.Contains(t, []string{kind, ""}, kinds[place], "parameter %d, @%s, changes its type", i, named.Name)
			kinds[place] = kind
		}
	}
	for _, s := range suite.Calls(q, "a") {
		note(t, s)
	}
	for n := 1; n <= 512; n *= 2 {
		for _, shape := range shapes {
			note(t, q.Enqueue(batchOf(n, shape)))
			note(t, q.EnqueueNew(batchOf(n, shape)))
		}
	}
	const all = 64 + 160
	require.Equal(t, all, len(known))

	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 235).Draw(t, "n")
		size := rapid.SampledFrom([]int{0, 1, 100, 7999, 8000, 8001}).Draw(t, "size")
		ms := time.Duration(rapid.IntRange(0, 1e9).Draw(t, "ms")) * time.Millisecond
		text := strings.Repeat("x", size)
		rows := make([]sqlbatch.Row, n)
		items, nacks := make([]sqlbatch.Item, n), make([]sqlbatch.NackItem, n)
		deadLetters := make([]sqlbatch.DeadLetterItem, n)
		ids, keys := make([][16]byte, n), make([]string, n)
		for i := range n {
			rows[i] = sqlbatch.Row{Priority: int8(i%4 - 1), Delay: ms, Body: []byte(text)}
			if i%2 == 0 {
				rows[i].Key, rows[i].Headers = text[:min(size, sqlbatch.MaxKey)], []byte(text)
				rows[i].Type = text[:min(size, sqlbatch.MaxType)]
			}
			nacks[i] = sqlbatch.NackItem{Delay: ms, Error: text}
			deadLetters[i].Error = text
			keys[i] = rows[i].Key
		}
		for _, s := range []sqlbatch.Statement{
			q.Enqueue(rows), q.EnqueueNew(rows), q.Find(ids, keys), q.Find(nil, nil),
			q.Claim(sqlbatch.ClaimParams{Rows: n, Lease: ms, Salt: int64(n), Inline: n, Heads: suite.HeadsAt(0, int64(ms), math.MaxInt64)}),
			q.Rescue(sqlbatch.RescueParams{Priority: 2, From: sqlbatch.Head{Due: int64(ms)}, MaxCrashes: n}), q.Contents(sqlbatch.Item{Fence: int64(n)}),
			q.Ack(items), q.Archive(items), q.Nack(nacks), q.Release(suite.Releases(items)), q.DeadLetter(deadLetters), q.Extend(suite.Consumer, items, ms),
			q.Ack(nil), q.Nack(nil), q.DeadLetter(nil),
			q.Record(n, sqlbatch.DefaultPolicy), q.Stats(n), q.NextDue(suite.HeadsAt(int64(ms))), q.Rescan(), q.Cancel(ids), q.RunNow(ids), q.Redrive(n, nil, sqlbatch.Window{Before: int64(n)}), q.Redrive(n, ids, sqlbatch.Window{}), q.Trim(sqlbatch.Done, ms, n, int64(n)), q.Get(ids[0]),
			q.Look(ids), q.Join(sqlbatch.Consumer{Name: text, Process: n, For: ms}), q.Purge(sqlbatch.Dead, n, sqlbatch.Window{After: int64(n)}),
		} {
			note(t, s)
		}
		require.Equal(t, all, len(known))
	})
}

func TestNamesOfAnyLengthFit(t *testing.T) {
	longest := sqlbatch.Names{Schema: strings.Repeat("]", 63), Queue: strings.Repeat("q", sqlbatch.MaxName)}
	require.NoError(t, sqlbatch.CheckNames(longest))
	for name, call := range suite.Calls(sqlserver.Dialect.Queue(longest), "a") {
		requireNamesFit(t, name, textOf(t, call).text)
	}
	for _, text := range sqlserver.Dialect.Migrations(longest)[0].Statements {
		requireNamesFit(t, "migration", text)
	}
}

func requireNamesFit(t *testing.T, name, text string) {
	for start, end := range tsqlcheck.TokensOf(text) {
		if token := text[start:end]; strings.HasPrefix(token, "[") {
			require.LessOrEqual(t, len(strings.ReplaceAll(token[1:end-start-1], "]]", "]")), 128, "%s: %s", name, token)
		}
	}
}

func TestObjectsOfTwoQueuesDiffer(t *testing.T) {
	created := func(queue string) map[string]bool {
		names := map[string]bool{}
		for _, text := range sqlserver.Dialect.Migrations(sqlbatch.Names{Queue: queue})[0].Statements {
			for start, end := range tsqlcheck.TokensOf(text) {
				if token := text[start:end]; strings.HasPrefix(token, "[") && token != "[dbo]" && token != "[type]" && !strings.Contains(token, "chanq__queues") && !strings.Contains(token, "chanq__consumers") && !strings.Contains(token, "chanq__samples") && token != "[chanq__log]" {
					names[token] = true
				}
			}
		}
		return names
	}
	a := created("a")
	for _, queue := range []string{"b", "a_key", "a_ready", "a_id", "a_ended", "a_enqueued_at", "a_dead_key", "a_leased", "a_priority", "a_at"} {
		for name := range created(queue) {
			require.NotContains(t, a, name, "of queue %s", queue)
		}
	}
}

func TestMigrationsCheckBeforeTheyCreate(t *testing.T) {
	migrations := sqlserver.Dialect.Migrations(suite.Orders)
	require.Equal(t, sqlbatch.Version, migrations[len(migrations)-1].Number)
	for _, m := range migrations {
		for _, text := range m.Statements {
			text = strings.TrimPrefix(text, "SET QUOTED_IDENTIFIER ON;\n")
			if strings.HasPrefix(text, "INSERT ") {
				require.Contains(t, text, "WHERE NOT EXISTS", text)
				continue
			}
			require.True(t, strings.HasPrefix(text, "IF "), text)
			require.Equal(t, strings.Count(text, "CREATE ")+strings.Count(text, "THROW ")+strings.Count(text, "UPDATE ")+min(1, strings.Count(text, " ADD ")), strings.Count(text, "IF "), text)
		}
	}
}
