// Package suite has the tests that all dialects of sqlbatch share: the list of statements, golden
// files, what statements must do in any database, and that packed values are read back unchanged.
package suite

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

type test struct {
	name string
	do   func(*world)
}

// Run tests the effect of every statement, each test in a separate database. Locks, plans and
// permissions differ between engines, and are tested with each engine. How chanq uses the
// statements is tested in prove.
func Run(t *testing.T, e testdb.Engine) {
	e.Require(t)
	run := func(names sqlbatch.Names, tests []test) {
		queue := e.Dialect.Queue(names)
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				testdb.Run(t, e, func(w *testdb.World) {
					if names.Slots > 0 && e.PlainOnly {
						t.Skip("this dialect has no ordered queues")
					}
					testdb.MigrateTables(t, e.Dialect, w.Tables(), names)
					test.do(&world{w, queue})
				})
			})
		}
	}
	run(Orders, slices.Concat(storing, claiming, settling, histories, operating, causes, consumers, sampling))
	if HasOrdered(e.Dialect) {
		run(Ordered, slices.Concat(ordered, reading, orderedHistories))
	} else {
		t.Run("OrderedQueues", func(t *testing.T) { t.Skip("no ordered queues on this engine yet") })
	}
}

var consumers = []test{
	{"ConsumersComeStayAndGo", consumersComeAndGo},
	{"AJoinForgetsWhoIsLongGone", consumersAreForgotten},
	{"ALeasedMessageHasItsHoldersName", holders},
}

// ConsumerNames returns the names in the result of Consumers.
func ConsumerNames(t require.TestingT, rows [][]any) (names []string) {
	for _, row := range rows {
		require.Len(t, row, 7)
		require.Len(t, row[0], 16)
		names = append(names, row[1].(string))
	}
	return names
}

func (w *world) consumers() []string { return ConsumerNames(w, w.run(w.Consumers())) }

func (w *world) join(n byte, name string, d time.Duration) {
	w.Helper()
	require.Empty(w, w.run(w.Join(sqlbatch.Consumer{ID: ID(n), Name: name, Host: "höst", Process: 7, For: d})))
}

func consumersComeAndGo(w *world) {
	require.Empty(w, w.consumers())
	w.join(2, "first", time.Hour)
	w.shift("chanq__consumers.since", -time.Second, "1 = 1")
	w.join(1, "second", time.Minute)
	row := w.run(w.Consumers())[0]
	two := ID(2)
	require.Equal(w, list(string(two[:]), "first", "höst", 7), row[:4])
	require.Equal(w, row[4].(int64)+1000+time.Hour.Milliseconds(), row[5])
	require.Equal(w, row[4].(int64)+1000, row[6], "it was heard when it came")
	require.Equal(w, []string{"first", "second"}, w.consumers())
	other := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "other"})
	require.Empty(w, w.run(other.Consumers()), "of another queue")

	w.join(2, "first", 2*time.Hour)
	again := w.run(w.Consumers())[0]
	require.Equal(w, row[4], again[4], "it came when it came first")
	require.Greater(w, again[5], row[5])
	w.shift("chanq__consumers.heard_at", -time.Minute, "name = 'first'")
	require.Less(w, w.run(w.Consumers())[0][6], again[6], "until is no sign of life")
	w.join(2, "first", time.Minute)
	require.GreaterOrEqual(w, w.run(w.Consumers())[0][6], again[6], "it is heard again")
	w.exec("UPDATE chanq__consumers SET heard_at = NULL WHERE name = 'first'")
	require.GreaterOrEqual(w, w.run(w.Consumers())[0][6], again[6], "a program of version 2 is heard")
	w.join(1, "second", 0)
	require.Equal(w, []string{"first", "second"}, w.consumers(), "it said that it stays for longer")
	w.shift("chanq__consumers.until", -time.Hour, "name = 'second'")
	require.Equal(w, []string{"first"}, w.consumers(), "its time is over")
	w.run(w.Leave(two))
	require.Empty(w, w.consumers())
}

func consumersAreForgotten(w *world) {
	other := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "other"})
	w.join(1, "a", time.Minute)
	for i, name := range []string{"b", "c", "d"} {
		w.run(other.Join(sqlbatch.Consumer{ID: ID(byte(10 + i)), Name: name, For: time.Minute}))
	}
	w.shift("chanq__consumers.until", -25*time.Hour, "name IN ('a', 'b')")
	w.shift("chanq__consumers.until", -23*time.Hour, "name = 'c'")
	require.Empty(w, w.consumers(), "a is gone")
	w.join(2, "e", time.Minute)
	w.join(1, "a", time.Minute)
	var left int
	require.NoError(w, w.DB.QueryRow("SELECT COUNT(*) FROM chanq__consumers").Scan(&left))
	require.Equal(w, 4, left, "b was gone for more than a day, of whatever queue")
	require.ElementsMatch(w, []string{"a", "e"}, w.consumers(), "a is back")
}

func holders(w *world) {
	w.leased(1)
	require.Equal(w, []any{string(Consumer[:]), nil}, w.get(1).of("leased_by", "holder"))
	w.run(w.Join(sqlbatch.Consumer{ID: Consumer, Name: "né", Host: "h", For: time.Minute}))
	require.Equal(w, "né", w.get(1)["holder"])
	require.Equal(w, w.run(w.Get(ID(1))), w.shown(sqlbatch.Leased, 1, nil))
	w.run(w.Leave(Consumer))
	require.Nil(w, w.get(1)["holder"])
}
