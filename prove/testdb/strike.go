package testdb

import (
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Runs reports whether op runs a statement that differs from st at most in its values.
func Runs(op faultdb.Op, st sqlbatch.Statement) bool {
	if op.Kind != faultdb.Exec && op.Kind != faultdb.Query || op.Text != st.Text {
		return false
	}
	// sp_executesql executes its first argument. The preparation of the call has no arguments yet, and runs no statement.
	if st.Text == "sp_executesql" && len(st.Args) > 0 {
		return len(op.Args) > 0 && op.Args[0].Value == st.Args[0]
	}
	return true
}

// Stores returns the statements by which a builder stores n rows. On SQL Server there is one for each combination of columns.
func Stores(n int, build func([]sqlbatch.Row) sqlbatch.Statement) (all []sqlbatch.Statement) {
	for columns := range 8 {
		rows := make([]sqlbatch.Row, n)
		if columns&1 > 0 {
			rows[0].Type = "t"
		}
		if columns&2 > 0 {
			rows[0].Key = "k"
		}
		if columns&4 > 0 {
			rows[0].Headers = []byte{}
		}
		all = append(all, build(rows))
	}
	return all
}

// RunsStore is Runs for the statements of Stores.
func RunsStore(op faultdb.Op, n int, build func([]sqlbatch.Row) sqlbatch.Statement) bool {
	return slices.ContainsFunc(Stores(n, build), func(st sqlbatch.Statement) bool { return Runs(op, st) })
}

// Strike is a choice that strikes one operation: the first one that meant selects.
type Strike struct {
	fault faultdb.Fault
	meant func(faultdb.Op) bool

	mu    sync.Mutex
	where string // the operation that it struck
}

// NewStrike returns a Strike for a test that injects it itself, with Choose.
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

// Struck returns the operation that was struck, or "" if none was yet.
func (s *Strike) Struck() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.where
}

// Strike makes f strike the first operation that meant selects.
func (w *World) Strike(f faultdb.Fault, meant func(faultdb.Op) bool) *Strike {
	s := NewStrike(f, meant)
	w.Faults.Inject(s.Choose)
	return s
}

// StrikeAll makes f strike every run of the statements.
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

// Broken cuts a connection with the engine's error, before or after the operation is applied.
func (w *World) Broken(applied bool) faultdb.Fault {
	w.Helper()
	f := faultdb.Cut(w.Failure(sqlbatch.Unknown))
	if applied {
		return f.Applied()
	}
	return f
}

// Failure returns the engine's error of a class.
func (w *World) Failure(c sqlbatch.Class) error {
	w.Helper()
	err := w.Engine.Errors[c]
	require.Error(w, err, "the engine gives no error of class %s", c)
	require.Equal(w, c, w.Engine.Dialect.Classify(err))
	return err
}
