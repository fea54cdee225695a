package chanq

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

func TestASpecIsCheckedWhole(t *testing.T) {
	full, err := Spec{Kind: KindOrdered}.complete()
	require.NoError(t, err)
	require.Equal(t, Spec{KindOrdered, 64, UnlimitedKeys, DeadKeyOpens, 20, 1 << 20, RetainNone, RetainAll}, full)
	full, err = Spec{}.complete()
	require.NoError(t, err)
	require.Equal(t, Spec{Kind: KindPlain, MaxAttempts: 20, MaxBody: 1 << 20, Retain: RetainNone, RetainDead: RetainAll}, full)

	_, err = Spec{Slots: 1, MaxKeys: 2, DeadKey: DeadKeyHolds}.complete()
	for _, field := range []string{"Spec.Slots is 1", "Spec.MaxKeys is 2", "Spec.DeadKey is 2"} {
		require.ErrorContains(t, err, field, "of a plain queue")
	}
	_, err = Spec{Kind: KindOrdered, Slots: 8, MaxKeys: 7}.complete()
	require.ErrorContains(t, err, "Spec.MaxKeys is 7: must be UnlimitedKeys or at least Slots, which is 8")
	_, err = Spec{Kind: KindOrdered, DeadKey: DeadKeyHolds, RetainDead: time.Hour}.complete()
	require.ErrorContains(t, err, "Spec.RetainDead is 1h0m0s: must be RetainAll")
	for says, s := range map[string]Spec{
		"Spec.Kind is 3":              {Kind: 3},
		"Spec.Slots is 1025":          {Slots: 1025},
		"Spec.Slots is -1":            {Slots: -1},
		"Spec.MaxKeys is -2":          {MaxKeys: -2},
		"Spec.MaxKeys is 1000001":     {MaxKeys: 1_000_001},
		"Spec.DeadKey is 3":           {DeadKey: 3},
		"Spec.MaxAttempts is -2":      {MaxAttempts: -2},
		"Spec.MaxAttempts is 1000001": {MaxAttempts: 1_000_001},
		"Spec.MaxBody is -1":          {MaxBody: -1},
		"Spec.Retain is -2ns":         {Retain: -2},
		"Spec.RetainDead is 1ns":      {RetainDead: 1},
	} {
		_, err := Config{Spec: s}.withDefaults()
		require.ErrorContains(t, err, says)
	}
	c, err := Config{Spec: Spec{Retain: time.Millisecond + 1}}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 2*time.Millisecond, c.Retain, "as it is stored")
}

// TestASpecIsStoredWhole converts each field to its stored form and back.
func TestASpecIsStoredWhole(t *testing.T) {
	for _, s := range []Spec{
		{KindOrdered, 8, UnlimitedKeys, DeadKeyOpens, UnlimitedAttempts, 1, RetainNone, RetainAll},
		{KindOrdered, 1, 9, DeadKeyHolds, 3, 2, time.Hour, RetainAll},
		{Kind: KindPlain, MaxAttempts: 3, MaxBody: 2, Retain: time.Hour, RetainDead: time.Minute},
	} {
		require.Equal(t, s, specOf(s.Slots, s.policy()))
		require.NoError(t, s.differs(s, false))
	}
}

// coded is an error of SQLite.
type coded int

func (c coded) Error() string { return "no such table" }
func (c coded) Code() int     { return int(c) }

// SQLite answers with these errors while another process creates the tables.
func TestTablesThatAreBeingCreatedAreReadAgain(t *testing.T) {
	for _, test := range []struct {
		err   error
		calls int
	}{{&sqlbatch.RunError{Err: coded(1)}, 2}, {coded(17), 2}, {errors.New("no answer"), 1}} {
		q, err := newQueue(t.Context(), "migrate", &sql.DB{}, "orders", Config{Dialect: DialectSQLite})
		require.NoError(t, err)
		calls := 0
		_, err = schema{q, func(sqlbatch.Statement, func(*sql.Rows) error) error {
			if calls++; calls < 2 {
				return test.err
			}
			return nil
		}}.unlocked()
		require.Equal(t, test.calls, calls)
		require.Equal(t, calls < 2, err != nil)
	}
}
