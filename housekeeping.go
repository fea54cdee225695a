package chanq

import "github.com/chanq/chanq/sqlbatch"

// housework tells the Housekeeping hook of changes of one task, once each. It is used
// by one goroutine.
type housework struct {
	queue    *queue
	task, op string // op: as in OpError
	refused  bool
}

// done notes how the task went. That the database is away is told by others.
func (h *housework) done(err error) {
	if err != nil {
		switch classify(h.queue.dialect, err) {
		case sqlbatch.Unknown, sqlbatch.Refused, sqlbatch.RolledBack:
			return
		}
	}
	if refused := err != nil; refused != h.refused {
		h.refused = refused
		call(h.queue.cfg.Hooks.Housekeeping, HousekeepingEvent{Queue: h.queue.name, Task: h.task, Err: h.queue.fail(h.op, err)})
	}
}
