package lock

import (
	"errors"
	"fmt"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// ErrBusy is returned by Owner.Lock with Wait.Skip when the lock is not free.
var ErrBusy = errors.New("lock: busy")

func timeoutError() error {
	return &sqltype.Error{
		Number: 1222, Class: 16, State: 51,
		Message: "Lock request time out period exceeded.",
	}
}

func victimError(session int) error {
	return &sqltype.Error{
		Number: 1205, Class: 13, State: 51,
		Message: fmt.Sprintf("Transaction (Process ID %d) was deadlocked on lock resources with another process "+
			"and has been chosen as the deadlock victim. Rerun the transaction.", session),
	}
}
