package histories

import (
	"fmt"

	"github.com/stretchr/testify/require"
)

// lockRow settles a lease whose row another transaction has locked, and other leases meanwhile. The
// other settles are stored; the outcome of the first is unknown until the row is unlocked.
type lockRow struct {
	Locked settling
	Others []settling
}

func (s *lockRow) String() string {
	return fmt.Sprintf("another transaction locks a row: %s; meanwhile %v", s.Locked, s.Others)
}

func (s *lockRow) run(h *history) {
	l := h.lease(s.Locked.Lease)
	if h.clock.lock == "" || l == nil || l.state != holding || h.model.held(l.ID, l.turn) == nil {
		return
	}
	h.note("it is that of %s", l.name)
	limit := h.soon()
	tx, err := h.db.BeginTx(limit, nil)
	require.NoError(h, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(limit, h.clock.lock, l.ID[:])
	require.NoError(h, err)

	l.state = settled
	outcome := make(chan error, 1)
	if l.consumer != nil { // so it is before the others, perhaps in their batch
		require.NoError(h, s.Locked.do(l.Lease), h.ran)
		go func() { outcome <- l.Wait(limit) }() // ends with limit
	} else {
		go func() { outcome <- s.Locked.do(l.Lease) }() // ends with the statement timeout
	}
	for _, x := range s.Others {
		if other := h.lease(x.Lease); other.ID != l.ID {
			h.settle(other, x)()
		}
	}
	select {
	case err := <-outcome:
		require.Fail(h, "an outcome is reported while the row is locked", "%s: %v", h.ran, err)
	default:
	}
	require.NoError(h, tx.Rollback())
	require.NoError(h, <-outcome, "%s: %s of %s", h.ran, s.Locked.Op, l.name)
	h.apply(h.model.held(l.ID, l.turn), l, s.Locked)
	h.finishAll()
}
