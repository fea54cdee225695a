package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) dropCommand() *cobra.Command {
	var withMessages, yes bool
	cmd := &cobra.Command{
		Use:   "drop QUEUE...",
		Short: "Remove queues that are empty, with their tables",
		Long: `Removes queues with their tables, each in one transaction. A queue that has messages,
for example dead ones, is left as it is. --with-messages removes it as well, after
asking: you cannot undo that. A queue that does not exist is not an error.`,
		Example: `  chanq drop --db jobs.db mail
  chanq drop --db jobs.db --with-messages --yes mail`,
		Args: atLeast(1, "one queue or more"),
		RunE: func(cmd *cobra.Command, queues []string) error {
			if yes && !withMessages {
				return usage("drop: --yes needs --with-messages: an empty queue is dropped without a question")
			}
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			drop := chanqadmin.Drop
			if withMessages {
				drop = chanqadmin.DropWithMessages
			}
			for _, queue := range queues {
				if withMessages && !yes {
					if err := a.confirm(cmd.Context(), fmt.Sprintf("Drop queue %s with whatever is in it?", visible(queue))); err != nil {
						return err
					}
				}
				if err := a.drop(cmd.Context(), c, queue, drop); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&withMessages, "with-messages", false, "drop queues that are not empty as well")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// drop prints the outcome for a queue.
func (a *app) drop(ctx context.Context, c *connection, queue string, drop func(context.Context, *sql.DB, string, chanq.Config, chanqadmin.Change) error) error {
	err := drop(ctx, c.DB, queue, a.queueConfig(c), a.by(""))
	switch missing := errors.Is(err, chanq.ErrNoSchema); {
	case errors.Is(err, chanq.ErrNotEmpty):
		return fmt.Errorf("drop %s: the queue has messages; chanq purge deletes the messages of a state, --with-messages deletes all", queue)
	case err != nil && !missing:
		return err
	case a.output == "json":
		return a.json(map[string]any{"queue": queue, "dropped": !missing})
	case missing:
		_, err = fmt.Fprintf(a.out, "there is no queue %s\n", queue)
	default:
		_, err = fmt.Fprintf(a.out, "queue %s dropped\n", queue)
	}
	return err
}
