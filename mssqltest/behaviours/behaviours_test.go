package behaviours_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/mssqltest/behaviours"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheEmulatorHasEachBehaviour(t *testing.T) {
	t.Parallel()
	for _, versions := range []bool{false, true} {
		t.Run(fmt.Sprintf("row_versions=%t", versions), func(t *testing.T) {
			t.Parallel()
			for _, b := range behaviours.All() {
				t.Run(b.Name, func(t *testing.T) {
					t.Parallel()
					s := mssqltest.Start(t, mssqltest.Options{ReadCommittedSnapshot: versions, AllowSnapshotIsolation: true})
					seen, err := behaviours.Run(t.Context(), s.DB(), b)
					require.NoError(t, err)
					require.Equal(t, b.Expected(versions), seen)
					require.Empty(t, s.Locks(), "a session is still open")
				})
			}
		})
	}
}

func TestThereAre38BehavioursAndEachHasANameAReasonAndAnAnswer(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, b := range behaviours.All() {
		require.NotEmpty(t, b.Reason, b.Name)
		require.NotEmpty(t, b.Want, b.Name)
		require.NotEqual(t, b.Want, b.WantVersions, b.Name)
		names[b.Name] = true
	}
	require.Len(t, names, 38)
}
