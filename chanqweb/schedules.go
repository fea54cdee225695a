package chanqweb

import (
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
)

// schedules shows the schedules of all queues. Without their table there are none.
func (h *Handler) schedules(v *visit) (*answer, error) {
	give, err := take(v.ctx, h.store.places)
	if err != nil {
		return nil, err
	}
	v.give = give
	var list []chanqcron.Entry
	found, err := chanqcron.Open(v.ctx, h.store.db, h.store.config)
	if err == nil {
		list, err = found.List(v.ctx)
	}
	if err != nil && !errors.Is(err, chanq.ErrNoSchema) {
		return nil, err
	}
	data := schedulesData{}
	data.List, data.More = upTo(list, schedulesShown)
	return &answer{view: &view{Page: "schedules", Name: "Schedules", Data: data}}, nil
}

// schedulesData is the data of the page of schedules.
type schedulesData struct {
	List []chanqcron.Entry
	More int // that are not shown
}

const schedulesShown = 500
