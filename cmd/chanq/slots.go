package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// queueSlots are the slots of a queue.
type queueSlots struct {
	Queue string                 `json:"queue"`
	Shard string                 `json:"shard,omitempty"` // as 0/3
	Slots []chanqadmin.SlotStats `json:"slots"`
}

// slotStats shows the slots of the ordered queues among the named ones, or of all ordered queues.
func (a *app) slotStats(ctx context.Context, c *connection, names []string) error {
	list, err := eachQueue(ctx, a, c, names, func(ctx context.Context, q look) ([]queueSlots, error) {
		if q.spec.Kind != chanq.KindOrdered {
			return nil, nil
		}
		slots, err := q.Slots(ctx)
		return []queueSlots{{q.Name(), q.shard(), slots}}, err
	})
	list = append([]queueSlots{}, list...) // not null in JSON
	if !c.partly(len(list), err) {
		return err
	}
	if a.output == "json" {
		return errors.Join(a.json(list), err)
	}
	rows := [][]string{{"QUEUE", "SLOT", "OWNER", "MESSAGES", "WAITING", "OLDEST", "MOST OF KEY", ""}}
	for _, q := range list {
		for _, s := range q.Slots {
			owner, oldest, key, most := "-", "-", "-", ""
			if s.Owner != "" {
				owner = brief(s.Owner, 40)
			}
			messages := strconv.Itoa(s.Messages)
			if s.Messages >= chanqadmin.SlotStatsLimit {
				messages += "+"
			}
			if s.Messages > 0 {
				oldest = s.Oldest.Round(100 * time.Millisecond).String()
			}
			if s.TopKeyMessages > 0 {
				key, most = brief(s.TopKey, 40), strconv.Itoa(s.TopKeyMessages)
			}
			rows = append(rows, []string{label(q.Queue, q.Shard), strconv.Itoa(s.Slot), owner, messages, strconv.Itoa(s.Waiting), oldest, key, most})
		}
	}
	return errors.Join(a.table(rows), err)
}
