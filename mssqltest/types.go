package mssqltest

import (
	"time"

	"github.com/chanq/chanq/mssqltest/internal/engine"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Clock is the time of a server, for SYSUTCDATETIME, WAITFOR and LOCK_TIMEOUT. It has two methods: Now returns the time,
// and After(d) a channel that receives after d, with a function that ends the wait early.
type Clock = engine.Clock

// RealClock is the machine's clock.
type RealClock = engine.RealClock

// ManualClock is a clock that is stopped until your test calls Advance(d). Now returns its time. Waiting returns how many
// waits only Advance can end: statements in WAITFOR, and lock requests with a timeout. Changed returns a channel that is
// closed at the next change of Waiting; call it before Waiting.
type ManualClock = engine.ManualClock

// NewManualClock returns a clock that shows start.
func NewManualClock(start time.Time) *ManualClock { return engine.NewManualClock(start) }

// Stopped returns a ManualClock that shows noon of 2026-01-01 in UTC.
func Stopped() *ManualClock { return NewManualClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)) }

// QueryStats is a text, with the declaration of its parameters if sp_executesql ran it, and the work of its executions:
// Requests, RowsReturned, KeysRead, RowsRead, KeysWritten and Locks.
type QueryStats = engine.QueryStats

// Cost is the work in QueryStats.
type Cost = engine.Cost

// Statement is what a hook is told: Session, Text (of the batch), Declaration, Line, and Kind, such as "UpdateStatement".
type Statement = engine.Statement

// Hooks are functions that a server calls around each statement that reads or writes tables, in the goroutine of its
// session. The statement waits for them and fails with the error that they return.
//
// Before(ctx, statement) is called first; Applied(ctx, statement) when the statement has done its work and nothing is
// committed; OutputRow(ctx, statement, n) before row n of a result is sent.
type Hooks = engine.Hooks

// SetHooks replaces the hooks.
func (s *Server) SetHooks(h Hooks) { s.faults.set(h) }

// Error is an error of the server, for hooks: Number, State, Class (the severity), Message.
type Error = sqltype.Error
