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
	"github.com/chanq/chanq/prove/testdb/faultdb"
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

// Messages of one key among many others: what a list reads does not depend on how few messages it returns.
func TestAListByKeyReadsManyMessagesAtOnce(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := testdb.Admin(w.Queue("line", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}))
		const many = 30_000
		_, err := w.DB.Exec(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO chanq_line (id, due_at, slot, order_key, body) SELECT CAST(printf('%%016d', i) AS BLOB), 900000000000, i %% 64, iif(i %% 10000 = 9999, 'rare', 'key ' || (i %% 1000)), x'00' FROM n`, many))
		require.NoError(t, err)
		statements, found, looked := 0, 0, 0
		w.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if op.Kind == faultdb.Query {
				statements++
			}
			return f
		})
		defer w.Faults.Inject(nil)
		for next := chanqadmin.PageToken(""); ; {
			page, err := q.List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady, Key: "rare"}, chanqadmin.List{After: next, Limit: 1})
			require.NoError(t, err)
			found, looked = found+len(page.Entries), looked+page.Looked
			if next = page.Next; next == "" {
				break
			}
		}
		require.Equal(t, 3, found)
		require.LessOrEqual(t, statements, 2*(many/10_000+3+1))
		require.GreaterOrEqual(t, looked, many)
	})
}

// A part of a body, of any message, costs no more than the part.
func TestAMessageIsReadInParts(t *testing.T) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		q := filled(t, chanq.Config{Spec: chanq.Spec{Kind: kind}})
		admin := testdb.Admin(q)
		leases := testdb.Lease(t, q, 2, time.Hour)
		require.NoError(t, leases[1].Nack(chanq.DeadLetter(context.Canceled)))
		for _, l := range leases {
			whole, err := admin.Get(t.Context(), l.ID)
			require.NoError(t, err)
			for _, c := range []struct {
				from, n int
				part    string
			}{{0, 100, string(whole.Body)}, {0, 2, string(whole.Body[:2])}, {2, 1, string(whole.Body[2:3])}, {4, 5, ""}, {0, 0, ""}} {
				part, err := admin.GetPart(t.Context(), l.ID, c.from, c.n)
				require.NoError(t, err)
				require.Equal(t, c.part, string(part.Body))
				want := whole
				part.Body, want.Body = nil, nil
				require.Equal(t, want, part)
			}
		}
		_, err := admin.GetPart(t.Context(), leases[0].ID, -1, 0)
		require.ErrorContains(t, err, "must be from 0")
		_, err = admin.GetPart(t.Context(), chanq.NewID(), 0, 0)
		require.ErrorIs(t, err, chanq.ErrNotFound)
	}
}
