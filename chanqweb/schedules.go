package chanqweb

import (
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
)

// schedules shows the schedules of all queues. Without their table there are none.
func (h *Handler) schedules(v *visit) (*answer, error) {
	var list []chanqcron.Entry
	found, err := chanqcron.Open(v.ctx, h.store.db, h.store.config)
	if err == nil {
		list, err = found.List(v.ctx)
	}
	if err != nil && !errors.Is(err, chanq.ErrNoSchema) {
		return nil, err
	}
	return &answer{view: &view{Page: "schedules", Name: "Schedules", Data: list}}, nil
}
