package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel QUEUE ID...",
		Short: "Delete messages that are ready, scheduled or leased",
		Long: `Deletes the messages with the IDs. The holder of a leased one learns of it when it
settles. Dead ones are deleted by chanq dead purge.`,
		Example: `  chanq cancel --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args:    atLeast(2, "a queue, and IDs"),
		RunE:    a.byIDs("cancelled", "not ready, scheduled or leased", (*chanqadmin.Queue).Cancel),
	}
}

// byIDs changes the messages of a queue whose IDs are the arguments behind its name, and
// says which of them it did not find.
func (a *app) byIDs(done, missing string, change func(*chanqadmin.Queue, context.Context, ...chanq.ID) ([]chanq.ID, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args[1:])
		if err != nil {
			return err
		}
		return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
			found, err := change(q, cmd.Context(), ids...)
			return a.changed(q, done, missing, ids, found, err)
		})
	}
}

// parseIDs reads the IDs of messages; one that is given twice is one.
func parseIDs(args []string) ([]chanq.ID, error) {
	var ids []chanq.ID
	for _, s := range args {
		id, err := chanq.ParseID(s)
		if err != nil {
			return nil, usage("%q is not the ID of a message", s)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// changed says how many of the messages with these IDs were changed; it is an error
// if some were not.
func (a *app) changed(q *chanqadmin.Queue, done, otherwise string, ids, found []chanq.ID, err error) error {
	if err := a.counted(len(found), done, err); err != nil {
		return err
	}
	if missing := len(ids) - len(found); missing > 0 {
		return fmt.Errorf("queue %s: %s %s", q.Name(), count(missing, "message"), otherwise)
	}
	return nil
}
