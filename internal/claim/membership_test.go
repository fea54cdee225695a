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
	require.True(t, m.Joined(10))
	first, ends, lasts := m.Current()
	require.True(t, lasts)
	require.EqualValues(t, 10, ends)

	now = 9
	require.Equal(t, [16]byte{1}, m.Next(newID))
	require.False(t, m.Joined(19))
	require.False(t, m.Joined(15), "a late answer does not shorten it")
	term, ends, lasts := m.Current()
	require.True(t, lasts)
	require.Equal(t, first, term)
	require.EqualValues(t, 19, ends)

	now = 19
	_, _, lasts = m.Current()
	require.False(t, lasts)
	require.Equal(t, [16]byte{2}, m.Next(newID))
	require.Equal(t, [16]byte{2}, m.Next(newID))
	_, _, lasts = m.Current()
	require.False(t, lasts)
	require.True(t, m.Joined(29))
	term, _, lasts = m.Current()
	require.True(t, lasts)
	require.NotEqual(t, first, term)
	require.Equal(t, [16]byte{2}, term.ID)
}
