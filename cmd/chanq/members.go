package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
)

func (a *app) membersCommand() *cobra.Command {
	return a.placesFlag(&cobra.Command{
		Use:   "members [QUEUE...]",
		Short: "List the consumers",
		Long: `Lists the consumers of the named queues, or of all: their names, where they run,
since when, and until when they count as there unless they say so again, which they
do three times in a lease. A process that died is listed for one lease more.`,
		Example: `  chanq members --db jobs.db
  chanq members --db jobs.db -o json mail`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			c, err := a.connectAll(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all := []memberLine{} // not null
			err = a.eachQueue(cmd.Context(), c, queues, func(q look) error {
				list, err := q.Consumers(cmd.Context())
				for _, m := range list {
					all = append(all, memberLine{q.Name(), q.shard(), m.ID, m.Name, m.Host, m.Process, m.Since.UTC(), m.Until.UTC()})
				}
				return err
			})
			switch {
			case !c.partly(len(all), err):
				return err
			case a.output == "json":
				return errors.Join(a.json(all), err)
			}
			return errors.Join(a.table(membersTable(all)), err)
		},
	})
}

type memberLine struct {
	Queue   string    `json:"queue"`
	Shard   string    `json:"shard,omitempty"` // as 0/3
	ID      chanq.ID  `json:"id"`
	Name    string    `json:"name"`
	Host    string    `json:"host"`
	Process int       `json:"process"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
}

func membersTable(list []memberLine) [][]string {
	rows := [][]string{{"QUEUE", "NAME", "HOST", "PROCESS", "SINCE", "UNTIL", "ID"}}
	for _, m := range list {
		rows = append(rows, []string{label(m.Queue, m.Shard), brief(m.Name, 40), brief(m.Host, 40), strconv.Itoa(m.Process), clock(m.Since), clock(m.Until), m.ID.String()})
	}
	return rows
}
