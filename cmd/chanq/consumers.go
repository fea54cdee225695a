package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
)

func (a *app) consumersCommand() *cobra.Command {
	return a.shardsFlag(&cobra.Command{
		Use:   "consumers [QUEUE...]",
		Short: "List the consumers",
		Long: `Lists consumers, with their last heartbeats: one every 10 s. A crashed consumer stays listed
for 25 s, in an ordered queue for one lease (30 s by default).`,
		Example: `  chanq consumers --db jobs.db
  chanq consumers --db jobs.db -o json mail`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			c, err := a.connectAll(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := eachQueue(cmd.Context(), a, c, queues, func(ctx context.Context, q look) (all []consumerLine, err error) {
				list, err := q.Consumers(ctx)
				for _, info := range list {
					all = append(all, consumerLine{q.Name(), q.shard(), info.ID, info.Name, info.Host, info.Process, info.Since.UTC(), info.Heard.UTC(), info.Until.UTC()})
				}
				return all, err
			})
			switch {
			case !c.partly(len(all), err):
				return err
			case all == nil:
				all = []consumerLine{} // not null in JSON
			}
			switch {
			case a.output == "json":
				return errors.Join(a.json(all), err)
			}
			return errors.Join(a.table(consumersTable(all)), err)
		},
	})
}

type consumerLine struct {
	Queue   string    `json:"queue"`
	Shard   string    `json:"shard,omitempty"` // as 0/3
	ID      chanq.ID  `json:"id"`
	Name    string    `json:"name"`
	Host    string    `json:"host"`
	Process int       `json:"process"`
	Since   time.Time `json:"since"`
	Heard   time.Time `json:"heard"`
	Until   time.Time `json:"until"`
}

func consumersTable(list []consumerLine) [][]string {
	rows := [][]string{{"QUEUE", "NAME", "HOST", "PROCESS", "SINCE", "HEARD", "ID"}}
	for _, c := range list {
		rows = append(rows, []string{label(c.Queue, c.Shard), brief(c.Name, 40), brief(c.Host, 40), strconv.Itoa(c.Process), clock(c.Since), clock(c.Heard), c.ID.String()})
	}
	return rows
}
