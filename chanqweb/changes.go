package chanqweb

import (
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// loggedShown is the most changes on a page of the log.
const loggedShown = 200

// changesData is the data of the log of changes.
type changesData struct {
	List []chanqadmin.Logged
	None bool // the table is missing
}

// changes shows the log of changes of all queues, or of one.
func (h *Handler) changes(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	shown := &view{Page: "changes", Name: "Changes"}
	if name != "" {
		var err error
		if _, shown.Kind, err = h.open(v); err != nil {
			return nil, err
		}
		shown.Tab, shown.Name, shown.Queue = "changes", "Changes of "+name, name
	} else {
		give, err := take(v.ctx, h.store.places)
		if err != nil {
			return nil, err
		}
		v.give = give
	}
	list, err := chanqadmin.Log(v.ctx, h.store.db, name, loggedShown, h.store.config)
	none := errors.Is(err, chanq.ErrNoSchema)
	if err != nil && !none {
		return nil, err
	}
	for i := range list {
		if l := &list[i]; !v.rights.Change { // keys, and the texts of the database
			if l.Which = ""; l.Error != "" {
				l.Error = "failed"
			}
		}
	}
	shown.Data = changesData{list, none}
	return &answer{view: shown}, nil
}
