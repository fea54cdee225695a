package chanq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

// browseAll pages through a state, two at a time.
func browseAll(t *testing.T, q *chanq.Queue[string], s chanq.State) (ids []chanq.ID) {
	t.Helper()
	var from chanq.Place
	for {
		list, next, err := q.Browse(t.Context(), s, from, 2)
		require.NoError(t, err)
		for _, e := range list {
			require.Equal(t, s, e.State)
			require.Equal(t, 4, e.Size, "the length of the body as it is stored")
			require.Nil(t, e.Body)
			ids = append(ids, e.ID)
		}
		if next == "" {
			return ids
		}
		from = next
	}
}

func TestABrowsePagesThroughAStateThatLiesAmongOthers(t *testing.T) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		t.Run(kind.String(), func(t *testing.T) {
			q := browsed(t, chanq.Config{Kind: kind})
			leases := testdb.Lease(t, q, 5, time.Hour)
			require.NoError(t, leases[1].Release())
			require.NoError(t, leases[3].DeadLetter(context.Canceled))
			for _, s := range []chanq.State{chanq.StateReady, chanq.StateLeased, chanq.StateDead, chanq.StateScheduled, chanq.StateDone} {
				peeked, err := q.Peek(t.Context(), s, 1000)
				require.NoError(t, err)
				var want []chanq.ID
				for _, e := range peeked {
					want = append(want, e.ID)
				}
				require.Equal(t, want, browseAll(t, q, s), s)
			}
		})
	}
}

// browsed is a queue with twelve messages of as many keys.
func browsed(t *testing.T, cfg chanq.Config) *chanq.Queue[string] {
	t.Helper()
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, chanq.Migrate(t.Context(), db, "mail", cfg))
	q, err := chanq.Open[string](t.Context(), db, "mail", cfg)
	require.NoError(t, err)
	p, err := q.Producer(chanq.ProducerConfig{})
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

func TestABrowseRefusesWhatIsNoPlace(t *testing.T) {
	q := browsed(t, chanq.Config{})
	for _, place := range []chanq.Place{"x", "0.1", "0.-1." + chanq.Place(chanq.NewID().String()), "9.1." + chanq.Place(chanq.NewID().String()), "0.1.x", "0.1.x.y"} {
		_, _, err := q.Browse(t.Context(), chanq.StateReady, place, 10)
		require.ErrorContains(t, err, "must be", place)
	}
	_, _, err := q.Browse(t.Context(), "odd", "", 10)
	require.ErrorContains(t, err, "state")
	_, _, err = q.Browse(t.Context(), chanq.StateReady, "", 1001)
	require.ErrorContains(t, err, "n is 1001")
}
