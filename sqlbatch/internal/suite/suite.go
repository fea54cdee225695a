// Package suite is what the tests of all engines of sqlbatch share: the list of
// statements, golden files, what statements must do whatever the database, and that
// what is packed is what is read.
package suite

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

type test struct {
	name string
	do   func(*world)
}

// Database is an empty one.
type Database struct {
	DB        *sql.DB
	Tables    *sql.DB // where tables can be made and dropped
	PlainOnly bool    // there are no ordered queues by way of DB
}

// Play runs a test: as it is, or in a bubble of testing/synctest.
type Play func(*testing.T, func(*testing.T))

// Run tests what every statement does, one by one: each test has a database of its
// own. Locks, plans and rights are the engines' own, and tested beside them; what
// chanq makes of the statements is tested in prove.
//
// open makes an empty database, which is gone when its test ends.
func Run(t *testing.T, d sqlbatch.Dialect, play Play, open func(*testing.T) Database) {
	run := func(names sqlbatch.Names, tests []test) {
		queue := d.Queue(names)
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				play(t, func(t *testing.T) {
					at := open(t)
					if names.Slots > 0 && at.PlainOnly {
						t.Skip("there are no ordered queues there")
					}
					w := &world{T: t, dialect: d, db: at.DB, tables: at.Tables, Queue: queue}
					Migrate(t, d, w.tables, names)
					test.do(w)
				})
			})
		}
	}
	run(Orders, slices.Concat(storing, claiming, settling, operating, members, sampling))
	if HasOrdered(d) {
		run(Ordered, ordered)
	} else {
		t.Run("OrderedQueues", func(t *testing.T) { t.Skip("no ordered queues on this engine yet") })
	}
}

var members = []test{
	{"MembersComeStayAndGo", membersComeAndGo},
	{"AJoinForgetsWhoIsLongGone", membersAreForgotten},
	{"ALeasedMessageHasItsHoldersName", holders},
}

func (w *world) members() (names []string) {
	w.Helper()
	for _, row := range w.run(w.Members()) {
		require.Len(w, row, 6)
		require.Len(w, row[0], 16)
		names = append(names, row[1].(string))
	}
	return names
}

func (w *world) join(n byte, name string, d time.Duration) {
	w.Helper()
	require.Empty(w, w.run(w.Join(sqlbatch.Member{ID: id(n), Name: name, Host: "höst", Process: 7, For: d})))
}

func membersComeAndGo(w *world) {
	require.Empty(w, w.members())
	w.join(2, "first", time.Hour)
	w.shift("chanq_members.since", -time.Second, "1 = 1")
	w.join(1, "second", time.Minute)
	row := w.run(w.Members())[0]
	two := id(2)
	require.Equal(w, list(string(two[:]), "first", "höst", 7), row[:4])
	require.Equal(w, row[4].(int64)+1000+time.Hour.Milliseconds(), row[5])
	require.Equal(w, []string{"first", "second"}, w.members())
	other := w.dialect.Queue(sqlbatch.Names{Queue: "other"})
	require.Empty(w, w.run(other.Members()), "of another queue")

	w.join(2, "first", 2*time.Hour)
	again := w.run(w.Members())[0]
	require.Equal(w, row[4], again[4], "it came when it came first")
	require.Greater(w, again[5], row[5])
	w.join(1, "second", 0)
	require.Equal(w, []string{"first", "second"}, w.members(), "it said that it stays for longer")
	w.shift("chanq_members.until", -time.Hour, "name = 'second'")
	require.Equal(w, []string{"first"}, w.members(), "its time is over")
	w.run(w.Leave(two))
	require.Empty(w, w.members())
}

func membersAreForgotten(w *world) {
	other := w.dialect.Queue(sqlbatch.Names{Queue: "other"})
	w.join(1, "a", time.Minute)
	for i, name := range []string{"b", "c", "d"} {
		w.run(other.Join(sqlbatch.Member{ID: id(byte(10 + i)), Name: name, For: time.Minute}))
	}
	w.shift("chanq_members.until", -25*time.Hour, "name IN ('a', 'b')")
	w.shift("chanq_members.until", -23*time.Hour, "name = 'c'")
	require.Empty(w, w.members(), "a is gone")
	w.join(2, "e", time.Minute)
	w.join(1, "a", time.Minute)
	var left int
	require.NoError(w, w.db.QueryRow("SELECT COUNT(*) FROM chanq_members").Scan(&left))
	require.Equal(w, 4, left, "b was gone for more than a day, of whatever queue")
	require.ElementsMatch(w, []string{"a", "e"}, w.members(), "a is back")
}

func holders(w *world) {
	w.leased(1)
	require.Equal(w, []any{string(member[:]), nil}, w.get(1).of("leased_by", "holder"))
	w.run(w.Join(sqlbatch.Member{ID: member, Name: "né", Host: "h", For: time.Minute}))
	require.Equal(w, "né", w.get(1)["holder"])
	require.Equal(w, w.run(w.Get(id(1))), w.run(w.Peek(sqlbatch.Leased, 1, nil)))
	w.run(w.Leave(member))
	require.Nil(w, w.get(1)["holder"])
}
