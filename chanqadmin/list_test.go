package chanqadmin_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

// listAll pages through a state, two at a time.
func listAll(t *testing.T, q *chanqadmin.Queue, s chanqadmin.State, bodies bool) (ids []chanq.ID) {
	t.Helper()
	for page := (chanqadmin.Page{}); ; {
		require.Less(t, len(ids), 100, "the list does not end")
		var err error
		page, err = q.List(t.Context(), chanqadmin.Select{State: s}, chanqadmin.List{After: page.Next, Limit: 2, Bodies: bodies})
		require.NoError(t, err)
		for _, e := range page.Entries {
			require.Equal(t, s, e.State)
			require.Equal(t, 4, e.Size, "the length of the body as it is stored")
			require.Equal(t, bodies, e.Body != nil)
			ids = append(ids, e.ID)
		}
		if page.Next == "" {
			return ids
		}
	}
}

func TestAListPagesThroughAStateAmongOthers(t *testing.T) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			q := filled(t, chanq.Config{Spec: chanq.Spec{Kind: kind}})
			leases := testdb.Lease(t, q, 5, time.Hour)
			require.NoError(t, leases[1].Release())
			require.NoError(t, leases[3].Nack(chanq.DeadLetter(context.Canceled)))
			for _, s := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateScheduled, chanqadmin.StateDone} {
				peeked, err := testdb.Peek(t.Context(), q, s, 1000)
				require.NoError(t, err)
				var want []chanq.ID
				for _, e := range peeked {
					want = append(want, e.ID)
				}
				require.Equal(t, want, listAll(t, testdb.Admin(q), s, false), s)
				require.Equal(t, want, listAll(t, testdb.Admin(q), s, true), s)
			}
		})
	}
}

// filled creates a queue with twelve messages, each with its own key.
func filled(t *testing.T, cfg chanq.Config) *chanq.Queue[string] {
	t.Helper()
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", cfg))
	q, err := chanq.Open[string](t.Context(), db, "mail", cfg)
	require.NoError(t, err)
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	for i := range 12 {
		m := chanq.Message[string]{Body: fmt.Sprintf("b%03d", i)}
		if cfg.Kind == chanq.KindOrdered {
			m.Key = m.Body
		}
		_, err := p.Send(t.Context(), m)
		require.NoError(t, err)
	}
	require.NoError(t, p.Close(t.Context()))
	return q
}

func TestAListRefusesWhatIsNoPageToken(t *testing.T) {
	q := testdb.Admin(filled(t, chanq.Config{}))
	id := chanqadmin.PageToken(chanq.NewID().String())
	for _, token := range []chanqadmin.PageToken{"x", "ready.0.1", "0.1." + id, "ready.0.-1." + id, "ready.9.1." + id, "ready.0.1.x", "ready.0.1.x.y", "dead.0.1." + id} {
		_, err := q.List(t.Context(), chanqadmin.Select{State: chanqadmin.StateReady}, chanqadmin.List{After: token})
		require.ErrorContains(t, err, "must be", token)
	}
	_, err := q.List(t.Context(), chanqadmin.Select{State: "odd"}, chanqadmin.List{})
	require.ErrorContains(t, err, "state")
	for _, limit := range []int{-1, 1001} {
		_, err = q.List(t.Context(), chanqadmin.Select{State: chanqadmin.StateReady}, chanqadmin.List{Limit: limit})
		require.ErrorContains(t, err, fmt.Sprintf("List.Limit is %d: must be from 1 to 1000", limit))
	}
}

// Another program may store a body as TEXT in SQLite. Its size is counted in bytes, not in characters before the first NUL.
func TestTheSizeOfABodyThatIsTextIsThatOfItsBytes(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := w.Queue("mail", chanq.Config{})
		_, err := w.DB.Exec(`INSERT INTO chanq_mail (body) VALUES ('é' || CAST(x'0062636465' AS TEXT))`)
		require.NoError(t, err)
		for _, bodies := range []bool{false, true} {
			page, err := testdb.Admin(q).List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady}, chanqadmin.List{Bodies: bodies})
			require.NoError(t, err)
			require.Len(t, page.Entries, 1)
			require.Equal(t, 7, page.Entries[0].Size)
		}
	})
}
