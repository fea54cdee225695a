package chanq

import (
	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// What the engine reports, as events for the hooks of a queue.

// availability reports to the Availability hook.
func (q *queue) availability(part string) *base.Availability {
	a := &base.Availability{}
	if hook := q.cfg.Hooks.Availability; hook != nil {
		a.Changed = func(c base.AvailabilityChange) {
			call(hook, AvailabilityEvent{Queue: q.label, Part: part, Up: c.Up, Ended: c.Ended, Err: c.Err, Down: c.Down})
		}
	}
	return a
}

// isolated reports to the Isolated hook.
func (q *queue) isolated(part string) *base.Isolated {
	i := &base.Isolated{}
	if hook := q.cfg.Hooks.Isolated; hook != nil {
		i.Changed = func(items, change int, err error) {
			call(hook, IsolatedEvent{Queue: q.label, Part: part, Items: items, Change: change, Err: err})
		}
	}
	return i
}

// task reports to the Housekeeping hook. op is as in OpError.
func (q *queue) task(name, op string) *base.Task {
	return &base.Task{
		Away: func(err error) bool {
			class := q.classify(err)
			return class == sqlbatch.Unknown || class == sqlbatch.Refused || class == sqlbatch.RolledBack
		},
		Changed: func(err error, ended bool) {
			call(q.cfg.Hooks.Housekeeping, HousekeepingEvent{Queue: q.label, Task: name, Err: q.fail(op, err), Ended: ended})
		},
	}
}
