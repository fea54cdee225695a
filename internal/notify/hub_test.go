package notify

import (
	"database/sql"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// woken returns how many of the waiters were woken since the last call.
func woken(waiters ...*Waiter) (n int) {
	for _, w := range waiters {
		select {
		case <-w.Woken():
			n++
		default:
		}
	}
	return n
}

func TestASignalEndsThePausesOfItsQueueAndOfNoOther(t *testing.T) {
	db := &sql.DB{}
	key := Key{DB: db, Schema: "a", Queue: "orders"}
	first, second := key.Wait(), key.Wait()
	others := []*Waiter{Key{DB: db, Schema: "a", Queue: "mails"}.Wait(),
		Key{DB: db, Schema: "b", Queue: "orders"}.Wait(), Key{DB: &sql.DB{}, Schema: "a", Queue: "orders"}.Wait()}
	for range 3 {
		key.Signal()
	}
	require.Equal(t, 2, woken(first, second))
	require.Zero(t, woken(first, second), "signals that were not received count as one")
	require.Zero(t, woken(others...))
	_, hurried := first.Heard()
	require.False(t, hurried)

	first.Close()
	key.Wake()
	require.Zero(t, woken(first))
	require.Equal(t, 1, woken(second))
	_, hurried = second.Heard()
	require.True(t, hurried)
	_, hurried = second.Heard()
	require.False(t, hurried, "once for each Wake")
	for _, w := range append(others, second) {
		w.Close()
	}
	require.Empty(t, hub.waiters, "queues without a consumer are forgotten")
}

func TestTheLowestPlacesAreKeptUntilTheyAreHeard(t *testing.T) {
	key := Key{DB: &sql.DB{}, Queue: "orders"}
	w := key.Wait()
	defer w.Close()
	key.Lower(headsAt(5, math.MaxInt64, 7, 9))
	key.Lower(headsAt(6, 3, 7, 1))
	require.Zero(t, woken(w), "Lower wakes no consumer")
	places, hurried := w.Heard()
	require.Equal(t, headsAt(5, 3, 7, 1), places)
	require.False(t, hurried)
	places, _ = w.Heard()
	require.Equal(t, NoPlace, places)
}

// headsAt returns the heads with these times.
func headsAt(due ...int64) (heads sqlbatch.Heads) {
	for i := range due {
		heads[i].Due = due[i]
	}
	return heads
}
