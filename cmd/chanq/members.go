package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
)

func (a *app) membersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "members [QUEUE...]",
		Short: "List who consumes",
		Long: `Lists the consumers of the named queues, or of all: their names, where they run,
since when, and until when they count as there unless they say so again, which they
do three times in a lease. A process that died is listed for one lease more.`,
		Example: `  chanq members --db jobs.db
  chanq members --db jobs.db -o json mail`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			all := []memberLine{} // not null
			err = a.eachQueue(cmd.Context(), c, queues, func(q *chanq.Queue[[]byte]) error {
				list, err := q.Members(cmd.Context())
				for _, m := range list {
					all = append(all, memberLine{q.Name(), m.ID, m.Name, m.Host, m.Process, m.Since.UTC(), m.Until.UTC()})
				}
				return err
			})
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.json(all)
			}
			return a.table(membersTable(all))
		},
	}
}

type memberLine struct {
	Queue   string    `json:"queue"`
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
		rows = append(rows, []string{m.Queue, brief(m.Name, 40), brief(m.Host, 40), strconv.Itoa(m.Process), clock(m.Since), clock(m.Until), m.ID.String()})
	}
	return rows
}
