package testdb

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Runs reports that op is the run of a statement that differs from st at most
// in its values.
func Runs(op faultdb.Op, st sqlbatch.Statement) bool {
	if op.Kind != faultdb.Exec && op.Kind != faultdb.Query || op.Text != st.Text {
		return false
	}
	// A procedure that executes its first argument. The preparation of the call has
	// none yet, and runs no statement.
	if st.Text == "sp_executesql" && len(st.Args) > 0 {
		return len(op.Args) > 0 && op.Args[0].Value == st.Args[0]
	}
	return true
}

// Strike is a choice that strikes one operation: the first that is meant.
type Strike struct {
	fault faultdb.Fault
	meant func(faultdb.Op) bool

	mu    sync.Mutex
	where string // the operation that it struck
}

// NewStrike is for a test that injects it itself, by Choose.
func NewStrike(f faultdb.Fault, meant func(faultdb.Op) bool) *Strike {
	return &Strike{fault: f, meant: meant}
}

// Choose is the function for faultdb's Inject.
func (s *Strike) Choose(op faultdb.Op) faultdb.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.where != "" || !s.meant(op) {
		return faultdb.Fault{}
	}
	s.where = op.String()
	return s.fault
}

// Struck is the operation that was struck, "" if none was yet.
func (s *Strike) Struck() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.where
}

// Strike has f strike the first operation that is meant.
func (w *World) Strike(f faultdb.Fault, meant func(faultdb.Op) bool) *Strike {
	s := NewStrike(f, meant)
	w.Faults.Inject(s.Choose)
	return s
}

// StrikeAll has f strike every run of the statements.
func (w *World) StrikeAll(f faultdb.Fault, meant ...sqlbatch.Statement) {
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		for _, st := range meant {
			if Runs(op, st) {
				return f
			}
		}
		return faultdb.Fault{}
	})
}

// StrikeNth strikes the operation that comes after n others, counted from now.
func (w *World) StrikeNth(n int, f faultdb.Fault) *Strike {
	from := w.Faults.Ops()
	return w.Strike(f, func(op faultdb.Op) bool { return op.N == from+n })
}

// Broken cuts a connection with the engine's error, before the operation is
// applied or after.
func (w *World) Broken(applied bool) faultdb.Fault {
	w.Helper()
	f := faultdb.Cut(w.Failure(sqlbatch.Unknown))
	if applied {
		return f.Applied()
	}
	return f
}

// Failure is the engine's error of a class.
func (w *World) Failure(c sqlbatch.Class) error {
	w.Helper()
	err := w.Engine.Errors[c]
	require.Error(w, err, "the engine gives no error of class %s", c)
	require.Equal(w, c, w.Engine.Dialect.Classify(err))
	return err
}
