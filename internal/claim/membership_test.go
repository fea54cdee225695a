package claim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
)

func TestAMembershipThatEndedBeginsAgainWithAnotherID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ids := base.Now(), byte(1)
		newID := func() [16]byte { ids++; return [16]byte{ids} }
		m := claim.NewMembership([16]byte{1})
		_, _, lasts := m.Current()
		require.False(t, lasts, "before the first heartbeat")

		require.Equal(t, [16]byte{1}, m.Next(newID))
		require.Equal(t, [16]byte{1}, m.Next(newID), "a heartbeat that failed is repeated")
		requireJoined(t, m, began+10*time.Second, true, true)
		first, ends, lasts := m.Current()
		require.True(t, lasts)
		require.Equal(t, began+10*time.Second, ends)

		time.Sleep(9 * time.Second)
		require.Equal(t, [16]byte{1}, m.Next(newID))
		requireJoined(t, m, began+19*time.Second, false, true)
		requireJoined(t, m, began+15*time.Second, false, true) // a late answer does not shorten it
		term, ends, lasts := m.Current()
		require.True(t, lasts)
		require.Equal(t, first, term)
		require.Equal(t, began+19*time.Second, ends)

		time.Sleep(10 * time.Second)
		_, _, lasts = m.Current()
		require.False(t, lasts)
		requireJoined(t, m, began+28*time.Second, false, false) // what it owned is lost
		require.Equal(t, [16]byte{2}, m.Next(newID))
		require.Equal(t, [16]byte{2}, m.Next(newID))
		_, _, lasts = m.Current()
		require.False(t, lasts)
		requireJoined(t, m, began+29*time.Second, true, true)
		term, _, lasts = m.Current()
		require.True(t, lasts)
		require.NotEqual(t, first, term)
		require.Equal(t, [16]byte{2}, term.ID)
	})
}

func TestAMembershipWhoseFirstAnswerIsLateHasNotLasted(t *testing.T) {
	m := claim.NewMembership([16]byte{1})
	requireJoined(t, m, base.Now(), true, false)
	require.Equal(t, [16]byte{2}, m.Next(func() [16]byte { return [16]byte{2} }))
}

func requireJoined(t *testing.T, m *claim.Membership, ends time.Duration, begins, lasts bool) {
	t.Helper()
	b, l := m.Joined(ends)
	require.Equal(t, [2]bool{begins, lasts}, [2]bool{b, l})
}
