package base

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAvailabilityGoesByWhatBeganAfterTheLastNews: operations of one producer or
// consumer run side by side, and some bring news that is old.
func TestAvailabilityGoesByWhatBeganAfterTheLastNews(t *testing.T) {
	var changes []string
	h := &Availability{Changed: func(c AvailabilityChange) {
		if c.Up {
			changes = append(changes, "up")
		} else {
			changes = append(changes, "down")
		}
	}}
	// The pauses make the times of begin and end differ.
	begin := func() time.Time {
		at := time.Now()
		for !time.Now().After(at) {
		}
		return at
	}
	away := errors.New("away")
	changed := func() string {
		h.changes.Wait()
		return strings.Join(changes, " ")
	}
	old, alsoOld := begin(), begin()
	h.Failed(begin(), away)
	h.Failed(begin(), away)
	require.Equal(t, "down", changed(), "once")
	h.Worked(old)
	require.Equal(t, "down", changed(), "what began before the failure succeeded in spite of it")
	h.Worked(begin())
	require.Equal(t, "down up", changed())
	h.Failed(alsoOld, away)
	require.Equal(t, "down up", changed(), "what began before the success failed in an outage that is over")
	h.Worked(begin())
	h.Failed(begin(), away)
	require.Equal(t, "down up down", changed())
}
