package lock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

var allModes = []lock.Mode{
	lock.None, lock.SchS, lock.SchM, lock.IS, lock.IU, lock.IX, lock.S, lock.U, lock.SIX, lock.UIX, lock.SIU, lock.X,
	lock.RangeSS, lock.RangeSU, lock.RangeIN, lock.RangeXX,
	lock.RangeIS, lock.RangeIU, lock.RangeIX, lock.RangeXS, lock.RangeXU,
}

// The two tables that the locking guide has as text: "Lock Compatibility" and "Key-Range Lock Modes". The manager reads
// the larger chart; the test compares the smaller ones with it.
func TestCompatibilityIsThatOfTheLockingGuide(t *testing.T) {
	t.Parallel()
	tables := []struct {
		modes []lock.Mode
		rows  []string
	}{
		{
			modes: []lock.Mode{lock.IS, lock.S, lock.U, lock.IX, lock.SIX, lock.X},
			rows: []string{
				"yes yes yes yes yes no",
				"yes yes yes no  no  no",
				"yes yes no  no  no  no",
				"yes no  no  yes no  no",
				"yes no  no  no  no  no",
				"no  no  no  no  no  no",
			},
		},
		{
			modes: []lock.Mode{lock.S, lock.U, lock.X, lock.RangeSS, lock.RangeSU, lock.RangeIN, lock.RangeXX},
			rows: []string{
				"yes yes no  yes yes yes no",
				"yes no  no  yes no  yes no",
				"no  no  no  no  no  yes no",
				"yes yes no  yes yes no  no",
				"yes no  no  yes no  no  no",
				"yes yes yes no  no  yes no",
				"no  no  no  no  no  no  no",
			},
		},
	}
	for _, table := range tables {
		for i, asked := range table.modes {
			for j, answer := range strings.Fields(table.rows[i]) {
				held := table.modes[j]
				require.Equal(t, answer == "yes", lock.Compatible(asked, held), "%v asked while %v is held", asked, held)
			}
		}
	}
}

func TestCompatibilityIsSymmetric(t *testing.T) {
	t.Parallel()
	for _, a := range allModes {
		for _, b := range allModes {
			require.Equal(t, lock.Compatible(a, b), lock.Compatible(b, a), "%v and %v", a, b)
		}
	}
}

func TestSchemaStabilityConflictsOnlyWithSchemaModification(t *testing.T) {
	t.Parallel()
	for _, m := range tableModes {
		require.Equal(t, m != lock.SchM, lock.Compatible(lock.SchS, m), "Sch-S and %v", m)
		require.False(t, lock.Compatible(lock.SchM, m), "Sch-M and %v", m)
	}
}

var (
	tableModes = allModes[1:12]
	keyModes   = []lock.Mode{
		lock.S, lock.U, lock.X, lock.RangeSS, lock.RangeSU, lock.RangeIN, lock.RangeXX,
		lock.RangeIS, lock.RangeIU, lock.RangeIX, lock.RangeXS, lock.RangeXU,
	}
)

// A mode that is "both at once" by its definition conflicts with the modes with which either of the two conflicts.
func TestCombinedModesConflictWithWhatTheirPartsConflictWith(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ whole, a, b lock.Mode }{
		{lock.SIX, lock.S, lock.IX}, {lock.SIU, lock.S, lock.IU}, {lock.UIX, lock.U, lock.IX},
	} {
		for _, m := range tableModes {
			require.Equal(t, lock.Compatible(c.a, m) && lock.Compatible(c.b, m), lock.Compatible(c.whole, m),
				"%v and %v", c.whole, m)
		}
	}
}

// A key-range mode is a lock on the gap before the key and one on the key: two of them are compatible if both parts
// are.
func TestKeyRangeModesConflictByRangeOrByKey(t *testing.T) {
	t.Parallel()
	type parts struct {
		gap byte // 0, 'S', 'I' or 'X'
		key lock.Mode
	}
	of := map[lock.Mode]parts{
		lock.S: {0, lock.S}, lock.U: {0, lock.U}, lock.X: {0, lock.X},
		lock.RangeSS: {'S', lock.S}, lock.RangeSU: {'S', lock.U},
		lock.RangeIN: {'I', lock.None}, lock.RangeIS: {'I', lock.S}, lock.RangeIU: {'I', lock.U}, lock.RangeIX: {'I', lock.X},
		lock.RangeXS: {'X', lock.S}, lock.RangeXU: {'X', lock.U}, lock.RangeXX: {'X', lock.X},
	}
	gapsAgree := func(a, b byte) bool { return a == 0 || b == 0 || a == b && a != 'X' }
	for _, a := range keyModes {
		for _, b := range keyModes {
			want := gapsAgree(of[a].gap, of[b].gap) && lock.Compatible(of[a].key, of[b].key)
			require.Equal(t, want, lock.Compatible(a, b), "%v and %v", a, b)
		}
	}
}

func TestConversionGivesTheDocumentedMode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ held, asked, becomes lock.Mode }{
		// "Conversion Locks" of the guide.
		{lock.S, lock.RangeIN, lock.RangeIS},
		{lock.U, lock.RangeIN, lock.RangeIU},
		{lock.X, lock.RangeIN, lock.RangeIX},
		{lock.RangeIN, lock.RangeSS, lock.RangeXS},
		{lock.RangeIN, lock.RangeSU, lock.RangeXU},
		// By the definition of the modes.
		{lock.S, lock.U, lock.U},
		{lock.S, lock.X, lock.X},
		{lock.U, lock.X, lock.X},
		{lock.IS, lock.IX, lock.IX},
		{lock.IS, lock.S, lock.S},
		{lock.IU, lock.IX, lock.IX},
		{lock.S, lock.IX, lock.SIX},
		{lock.S, lock.IU, lock.SIU},
		{lock.U, lock.IX, lock.UIX},
		{lock.SIU, lock.IX, lock.SIX},
		{lock.SIX, lock.U, lock.UIX},
		{lock.SchS, lock.X, lock.X},
		{lock.X, lock.SchM, lock.SchM},
		{lock.RangeSS, lock.U, lock.RangeSU},
		{lock.S, lock.RangeSS, lock.RangeSS},
		// Not in a table: there is no RangeS-X, and a key in a locked range that is updated is locked RangeX-X.
		{lock.RangeSS, lock.X, lock.RangeXX},
		{lock.RangeSU, lock.X, lock.RangeXX},
		{lock.RangeIX, lock.RangeSS, lock.RangeXX},
	} {
		require.Equal(t, c.becomes, lock.Union(c.held, c.asked), "%v held, %v asked", c.held, c.asked)
		require.Equal(t, c.becomes, lock.Union(c.asked, c.held), "%v held, %v asked", c.asked, c.held)
	}
}

func TestUnionIsALeastUpperBound(t *testing.T) {
	t.Parallel()
	for _, modes := range [][]lock.Mode{tableModes, keyModes} {
		for _, a := range modes {
			require.Equal(t, a, lock.Union(a, a))
			require.Equal(t, a, lock.Union(lock.None, a))
			for _, b := range modes {
				ab := lock.Union(a, b)
				require.Contains(t, modes, ab)
				for _, other := range modes {
					if lock.Compatible(ab, other) {
						require.True(t, lock.Compatible(a, other) && lock.Compatible(b, other),
							"%v, held for %v and %v, lets %v in", ab, a, b, other)
					}
				}
				for _, c := range modes {
					require.Equal(t, lock.Union(ab, c), lock.Union(a, lock.Union(b, c)), "%v, %v and %v", a, b, c)
				}
			}
		}
	}
}

func TestModesHaveTheServersNames(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, m := range allModes {
		require.NotEmpty(t, m.String())
		require.False(t, seen[m.String()], "two modes are named %v", m)
		seen[m.String()] = true
	}
	require.Equal(t, "RangeS-U IX Sch-M", fmt.Sprint(lock.RangeSU, " ", lock.IX, " ", lock.SchM))
	require.Equal(t, "invalid", lock.Mode(200).String())
}
