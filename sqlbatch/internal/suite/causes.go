package suite

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var causes = []test{
	{"TheDeadAreGroupedByCauseAndFingerprint", groups},
	{"GroupsComeAPageAtATime", groupPages},
	{"TheDeathsOfTheLastHourAreListed", deaths},
	{"AWalkGoesAlongAGroupOrAlongAll", walks},
	{"BodiesAreThoseOfTheMessagesThatAreMeant", bodies},
}

// killAll dead-letters messages of these groups, message 1 of the first at second 1, and so on.
func (w *world) killAll(groups ...sqlbatch.Group) {
	w.Helper()
	for i, g := range groups {
		n := byte(i + 1)
		w.leased(n)
		w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: w.items(n)[0], Cause: g.Cause, Fingerprint: g.Fingerprint, Error: fmt.Sprintf("error %d", n)}}))
		w.exec("UPDATE chanq_orders__dead SET ended_at = %s WHERE %s", w.at(int64(n)), w.is(n))
	}
}

const (
	rejected       = sqlbatch.CauseRejected
	expired        = sqlbatch.CauseExpired
	killed         = sqlbatch.CauseKilled
	fp       int64 = 1 << 56 // the smallest fingerprint that chanq makes
)

func of(cause sqlbatch.Cause, fingerprint int64) sqlbatch.Group {
	return sqlbatch.Group{Cause: cause, Fingerprint: fingerprint}
}

func groups(w *world) {
	require.Empty(w, w.run(w.Causes(sqlbatch.Group{}, 10, 10)))
	w.killAll(of(rejected, fp+7), of(expired, 0), of(rejected, fp+5), of(rejected, fp+7), of(rejected, 0),
		of(killed, fp+5), of(rejected, fp+7), of(expired, 0))
	group := func(cause sqlbatch.Cause, fingerprint any, messages, first, last int) []any {
		id := ID(byte(last))
		return list(int(cause), fingerprint, messages, first*1000, last*1000, string(id[:]), fmt.Sprintf("error %d", last))
	}
	require.ElementsMatch(w, [][]any{
		group(rejected, nil, 1, 5, 5), group(rejected, fp+5, 1, 3, 3), group(rejected, fp+7, 3, 1, 7), group(expired, nil, 2, 2, 8), group(killed, fp+5, 1, 6, 6),
	}, w.run(w.Causes(sqlbatch.Group{}, 10, 10)))
	require.Contains(w, w.run(w.Causes(sqlbatch.Group{}, 10, 2)), group(rejected, fp+7, 2, 1, 7), "counts end at the limit")
}

// groupPages starts a page behind each group.
func groupPages(w *world) {
	all := []sqlbatch.Group{of(rejected, 0), of(rejected, fp+5), of(rejected, fp+7), of(expired, 0), of(killed, fp+5)}
	w.killAll(all...)
	whole := w.run(w.Causes(sqlbatch.Group{}, 100, 1))
	require.Len(w, whole, len(all))
	for size := 1; size <= len(all); size++ {
		var paged [][]any
		for after := (sqlbatch.Group{}); ; {
			page := w.run(w.Causes(after, size, 1))
			require.LessOrEqual(w, len(page), size)
			paged = append(paged, page...)
			require.LessOrEqual(w, len(paged), len(all))
			if len(page) < size {
				break
			}
			last := page[len(page)-1]
			after = sqlbatch.Group{Cause: sqlbatch.Cause(last[0].(int64))}
			if last[1] != nil {
				after.Fingerprint = last[1].(int64)
			}
		}
		require.Equal(w, whole, paged, "pages of %d", size)
	}
}

func deaths(w *world) {
	w.killAll(of(rejected, fp+7), of(rejected, fp+7), of(rejected, 0), of(rejected, fp+7), of(expired, 0), of(expired, 0))
	for n, minutes := range map[byte]int64{1: 3, 2: 3, 3: 3, 4: 50, 5: 59, 6: 61} { // 30 s later: a test may take some
		w.exec("UPDATE chanq_orders__dead SET ended_at = %s WHERE %s", w.at(w.now()/1000-60*minutes-30+int64(n)), w.is(n))
	}
	a, bare := list(int(rejected), fp+7, 3), list(int(rejected), nil, 3)
	require.Equal(w, [][]any{bare, a, a, list(int(rejected), fp+7, 50), list(int(expired), nil, 59)}, w.run(w.Deaths(10)))
	require.Equal(w, [][]any{bare, a, a}, w.run(w.Deaths(3)), "the last ones")
}

func walks(w *world) {
	a, bare, b := of(rejected, fp+7), of(rejected, 0), of(expired, fp+7)
	w.killAll(a, bare, a, b, a, bare, a)
	w.exec("UPDATE chanq_orders__dead SET ended_at = %s WHERE %s OR %s", w.at(4), w.is(3), w.is(5)) // both at the time when 4 ended
	for _, walk := range []struct {
		of   *sqlbatch.Group
		want []byte
	}{{nil, []byte{1, 2, 3, 4, 5, 6, 7}}, {&a, []byte{1, 3, 5, 7}}, {&bare, []byte{2, 6}}, {&b, []byte{4}}, {&sqlbatch.Group{Cause: killed}, nil}} {
		require.Equal(w, walk.want, Numbers(w.run(w.Walk(walk.of, 10, sqlbatch.Window{}))))
		var got []byte
		for win := (sqlbatch.Window{Before: 7000}); ; {
			rows := w.run(w.Walk(walk.of, 1, win))
			if len(rows) == 0 {
				break
			}
			require.Len(w, rows, 1)
			got = append(got, Numbers(rows)...)
			win.After, win.AfterID = rows[0][1].(int64), IDOf(rows[0][0])
		}
		for len(walk.want) > 0 && walk.want[len(walk.want)-1] == 7 {
			walk.want = walk.want[:len(walk.want)-1] // it ended at the bound
		}
		require.Equal(w, walk.want, got)
	}
	w.send(sqlbatch.Row{ID: ID(9), Type: "kind"})
	w.claim(1)
	w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: w.items(9)[0], Cause: killed}}))
	require.Equal(w, "kind", w.run(w.Walk(&sqlbatch.Group{Cause: killed}, 1, sqlbatch.Window{}))[0][2])
}

func bodies(w *world) {
	w.deadLetter(sqlbatch.Row{ID: ID(4), Headers: []byte("h4"), Body: []byte("b4")})
	w.send(sqlbatch.Row{ID: ID(1), Headers: []byte("h1"), Body: []byte("b1")}, sqlbatch.Row{ID: ID(2), Body: []byte("b2")}, sqlbatch.Row{ID: ID(3), Body: []byte("b3")})
	one, two, four := ID(1), ID(2), ID(4)
	require.ElementsMatch(w, [][]any{{string(one[:]), "h1", "b1"}, {string(two[:]), nil, "b2"}}, w.run(w.Bodies(sqlbatch.Leased, ids(1, 2, 4, 9))))
	require.Equal(w, [][]any{{string(four[:]), "h4", "b4"}}, w.run(w.Bodies(sqlbatch.Dead, ids(1, 2, 4, 9))))
}
