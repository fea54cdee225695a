package consume

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Config configures a Consumer. Its functions are called with no lock held.
type Config struct {
	claim.Limits

	// Of the queue.
	DB                         *sql.DB
	Table                      *table.Queue
	Signals                    *notify.Signals
	VacuumEvery, SessionMaxAge time.Duration

	// Of the consumer.
	Row          sqlbatch.Consumer // its ID is the first one; later terms of a membership have others
	NewID        func() [16]byte
	StopWhenIdle bool
	Values       context.Context // parent of the contexts of leases; has the lease.Mover, if there is one
	Health       *base.Availability
	Isolated     *base.Isolated                   // gets the number of isolated settles
	Task         func(name, op string) *base.Task // reports a background task by its name, and its errors by op
	Observer     Observer
}

// LeastBacklog is the minimum number of settles that may wait. With a large Prefetch twice as many as
// Prefetch may wait.
const LeastBacklog = 4096

// Observer is told what a consumer has done, and knows the user's functions. It is Of of the leases: see lease.Home.
type Observer interface {
	Claimed(rows []table.Claimed)                        // leased
	Delivered(messages, bytes int, took time.Duration)   // on their way to readers
	Known(l *lease.Lease, err error)                     // the outcome of a settle, before the lease has it
	Settled(t settle.Tally, took time.Duration)          // a batch
	Lost(l *lease.Lease, confirmed bool) (report func()) // a nil report: nothing is to be called
	// Delay and Describe are those of claim.Holder.
	Delay(l *lease.Lease, row *table.Claimed, err error) time.Duration
	Describe(l *lease.Lease, row *table.Claimed)
	// Failed returns the error of a consumer that a permanent error of op has ended.
	Failed(op string, err error) error
}
