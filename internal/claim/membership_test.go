package claim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
)

func TestAMembershipThatEndedBeginsAgainWithAnotherID(t *testing.T) {
	now, ids := time.Duration(0), byte(1)
	newID := func() [16]byte { ids++; return [16]byte{ids} }
	m := claim.NewMembership([16]byte{1}, func() time.Duration { return now })
	_, _, lasts := m.Current()
	require.False(t, lasts, "before the first heartbeat")

	require.Equal(t, [16]byte{1}, m.Next(newID))
	require.Equal(t, [16]byte{1}, m.Next(newID), "a heartbeat that failed is repeated")
	requireJoined(t, m, 10, true, true)
	first, ends, lasts := m.Current()
	require.True(t, lasts)
	require.EqualValues(t, 10, ends)

	now = 9
	require.Equal(t, [16]byte{1}, m.Next(newID))
	requireJoined(t, m, 19, false, true)
	requireJoined(t, m, 15, false, true) // a late answer does not shorten it
	term, ends, lasts := m.Current()
	require.True(t, lasts)
	require.Equal(t, first, term)
	require.EqualValues(t, 19, ends)

	now = 19
	_, _, lasts = m.Current()
	require.False(t, lasts)
	requireJoined(t, m, 28, false, false) // what it owned is lost
	require.Equal(t, [16]byte{2}, m.Next(newID))
	require.Equal(t, [16]byte{2}, m.Next(newID))
	_, _, lasts = m.Current()
	require.False(t, lasts)
	requireJoined(t, m, 29, true, true)
	term, _, lasts = m.Current()
	require.True(t, lasts)
	require.NotEqual(t, first, term)
	require.Equal(t, [16]byte{2}, term.ID)
}

func TestAMembershipWhoseFirstAnswerIsLateHasNotLasted(t *testing.T) {
	m := claim.NewMembership([16]byte{1}, func() time.Duration { return 10 })
	requireJoined(t, m, 10, true, false)
	require.Equal(t, [16]byte{2}, m.Next(func() [16]byte { return [16]byte{2} }))
}

func requireJoined(t *testing.T, m *claim.Membership, ends time.Duration, begins, lasts bool) {
	t.Helper()
	b, l := m.Joined(ends)
	require.Equal(t, [2]bool{begins, lasts}, [2]bool{b, l})
}
