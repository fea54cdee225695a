package lease

import (
	"time"

	"github.com/chanq/chanq/internal/batch"
)

// Times are the settings by which the leases of a consumer and their statements last: see chanq.Config and
// chanq.ConsumerConfig.
type Times struct {
	LeaseFor         time.Duration
	MaxExtend        time.Duration // how long a lease is extended after a reader has taken it
	StatementTimeout time.Duration // the longest that a statement may take
	OneWriter        bool          // all statements share one connection: see sqlbatch.Traits
}

// TryTimeout is the timeout of one try of a settle. A hanging statement is then repeated within the lease, unless the
// lease is so short that a healthy database might need as long.
func (t *Times) TryTimeout() time.Duration {
	return min(t.StatementTimeout, max(t.LeaseFor/3, time.Second))
}

// RenewTimeout is the timeout of a statement that leases or a membership depend on: it renews them or looks them up.
// Several tries fit into the rest of a lease, unless that would be shorter than a healthy database might need.
func (t *Times) RenewTimeout() time.Duration {
	return min(t.StatementTimeout, max(t.LeaseFor/6, min(t.LeaseFor/2, batch.Healthy)))
}

// SpareTimeout is the timeout of a statement that no message waits for. If all statements share one connection, leases
// cannot be extended meanwhile.
func (t *Times) SpareTimeout() time.Duration {
	if t.OneWriter {
		return t.RenewTimeout()
	}
	return t.StatementTimeout
}

// LookTimeout is the timeout of a query for the row of a lease.
func (t *Times) LookTimeout() time.Duration { return min(t.SpareTimeout(), t.LeaseFor) }

// UsefulTimeout is the timeout of a statement whose answer is useless after its leases have expired.
func (t *Times) UsefulTimeout() time.Duration { return min(t.StatementTimeout, t.LeaseFor) }
