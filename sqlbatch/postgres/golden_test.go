package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

func TestGolden(t *testing.T) { suite.Golden(t, postgres.Dialect) }

func TestTextsDoNotDependOnTheCountOfRows(t *testing.T) {
	q := postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	require.Equal(t, q.Enqueue(make([]sqlbatch.Row, 1)).Text, q.Enqueue(make([]sqlbatch.Row, 1000)).Text)
	require.Equal(t, q.Ack(make([]sqlbatch.Item, 1)).Text, q.Ack(make([]sqlbatch.Item, 1000)).Text)
	require.Equal(t, q.Nack(make([]sqlbatch.NackItem, 1)).Text, q.Nack(make([]sqlbatch.NackItem, 1000)).Text)
}

// Rows are locked in one order, whatever the order in which a caller passes its leases.
func TestSettlesNameLeasesInIDOrder(t *testing.T) {
	q := postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	a, b := sqlbatch.Item{ID: [16]byte{1}, Fence: 5}, sqlbatch.Item{ID: [16]byte{2}, Fence: 3}
	given := []sqlbatch.Item{b, a}

	require.Equal(t, q.Ack([]sqlbatch.Item{a, b}), q.Ack(given))
	require.Equal(t, q.Archive([]sqlbatch.Item{a, b}), q.Archive(given))
	require.Equal(t, q.Extend(suite.Consumer, []sqlbatch.Item{a, b}, time.Second), q.Extend(suite.Consumer, given, time.Second))
	require.Equal(t,
		q.Nack([]sqlbatch.NackItem{{Item: a, Error: "a"}, {Item: b, Delay: 1}}),
		q.Nack([]sqlbatch.NackItem{{Item: b, Delay: 1}, {Item: a, Error: "a"}}))
	require.Equal(t, q.Release(suite.Releases([]sqlbatch.Item{a, b})), q.Release(suite.Releases(given)))
	require.Equal(t,
		q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: a, Error: "a"}, {Item: b}}),
		q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: b}, {Item: a, Error: "a"}}))
	require.Equal(t, q.Cancel([][16]byte{a.ID, b.ID}), q.Cancel([][16]byte{b.ID, a.ID}))
	require.Equal(t,
		q.EnqueueNew([]sqlbatch.Row{{ID: b.ID, Key: "a"}, {ID: a.ID, Key: "b"}}),
		q.EnqueueNew([]sqlbatch.Row{{ID: a.ID, Key: "b"}, {ID: b.ID, Key: "a"}}), "by key: that is what they may wait for")
	require.Equal(t, []sqlbatch.Item{b, a}, given, "the caller's list is unchanged")
}

// PostgreSQL would silently cut off a longer name, and several tables of one queue, or of two, would have the same
// name.
func TestNamesOfLongQueuesFitAndDiffer(t *testing.T) {
	long := strings.Repeat("q", sqlbatch.MaxName)
	seen := map[string]bool{}
	for _, queue := range []string{"q", long, long[1:] + "r", "q_dead", "q_dead_ended"} {
		for _, m := range postgres.Dialect.Migrations(sqlbatch.Names{Queue: queue}) {
			for _, text := range m.Statements[3 : len(m.Statements)-6] { // the others are for the tables of all queues
				if at := strings.Index(text, "CREATE"); at >= 0 {
					name, _, _ := strings.Cut(text[at:], " (")
					require.False(t, seen[name], name)
					seen[name] = true
				}
				for i, part := range strings.Split(text, `"`) {
					if i%2 == 1 {
						require.LessOrEqual(t, len(part), 63)
					}
				}
			}
		}
	}
	require.Len(t, seen, 5*10)
	for _, m := range postgres.Dialect.Migrations(sqlbatch.Names{Queue: long, Slots: 64}) {
		for i, part := range strings.Split(strings.Join(m.Statements, " "), `"`) {
			if i%2 == 1 {
				require.LessOrEqual(t, len(part), 63, part)
			}
		}
	}
}
