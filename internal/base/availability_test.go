package base

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAvailabilityGoesByWhatBeganAfterTheLastNews has concurrent operations of one
// producer or consumer, some of which have outdated outcomes.
func TestAvailabilityGoesByWhatBeganAfterTheLastNews(t *testing.T) {
	var changes []string
	h := &Availability{Changed: func(c AvailabilityChange) {
		if c.Err == nil {
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
	require.Equal(t, "down", changed(), "an operation that began before the failure succeeded nevertheless")
	h.Worked(begin())
	require.Equal(t, "down up", changed())
	h.Failed(alsoOld, away)
	require.Equal(t, "down up", changed(), "an operation that began before the success failed in an outage that has "+
		"ended")
	h.Worked(begin())
	h.Failed(begin(), away)
	require.Equal(t, "down up down", changed())
}
