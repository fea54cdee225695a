package embedded

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// While another program holds the write lock, a statement is tried again, and no longer than its context lasts.
func TestTheWaitForAnotherProgramEndsWithTheContext(t *testing.T) {
	for name, c := range map[string]struct {
		kind   kind
		inTx   bool
		busy   int           // tries that are refused
		limit  time.Duration // of the context
		tries  int           // at most
		refuse error
		lasts  time.Duration
	}{
		"it gets the lock":             {kind: writes, busy: 3, tries: 4, lasts: 3 * (busyTry + busyPause)},
		"a read as well":               {kind: reads, busy: 1, tries: 2, lasts: busyTry + busyPause},
		"a BEGIN":                      {kind: begins, busy: 1, tries: 2, lasts: busyTry + busyPause},
		"a COMMIT":                     {kind: commits, inTx: true, busy: 2, tries: 3, lasts: 2 * (busyTry + busyPause)},
		"its context ends":             {kind: writes, busy: 1000, limit: time.Second, tries: 4, lasts: 4*busyTry + 3*busyPause, refuse: busyError{}},
		"nothing ends it":              {kind: writes, busy: 1000, tries: 39, lasts: 39*busyTry + 38*busyPause, refuse: busyError{}},
		"a statement in a transaction": {kind: writes, inTx: true, busy: 1, tries: 1, lasts: busyTry, refuse: busyError{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				began, tries := time.Now(), 0
				result, err := patiently(ctx, &conn{inTx: c.inTx}, c.kind, func() (int, error) {
					if tries++; tries > c.busy {
						return 7, nil
					}
					time.Sleep(busyTry) // SQLite does not see the context
					return 0, busyError{}
				})
				require.Equal(t, c.refuse, err)
				require.Equal(t, err == nil, result == 7)
				require.Equal(t, c.tries, tries)
				require.Equal(t, c.lasts, time.Since(began))
			})
		})
	}
	other := errors.New("no such table")
	_, err := patiently(t.Context(), &conn{}, writes, func() (int, error) { return 0, other })
	require.Equal(t, other, err)
}
