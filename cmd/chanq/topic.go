package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqtopic"
)

func (a *app) topicCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "topic",
		// it runs only one of its commands
		DisableFlagsInUseLine: true,
		Short:                 "List which queues subscribe to which topics",
		Long:                  "Lists and deletes the subscriptions of package chanqtopic.",
		Example:               "  chanq topic list --db shop.db",
		Args:                  exactly(0, "one of its commands: list, unsubscribe or migrate"),
		RunE:                  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.listTopicsCommand(), a.unsubscribeCommand(),
		a.migrateTablesCommand("topic", "topics", chanqtopic.Migrate))
	return cmd
}

// topicLine is the JSON of a subscription.
type topicLine struct {
	Topic string `json:"topic"`
	Queue string `json:"queue"`
	chanqtopic.Filter
}

func (a *app) listTopicsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the subscriptions of all topics",
		Long:    "Lists the subscriptions, with the headers that a message must have.",
		Example: "  chanq topic list --db shop.db",
		Args:    exactly(0, "no argument: it lists all"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := chanqtopic.List(cmd.Context(), c.DB, a.queueConfig(c))
			if err != nil {
				return err
			}
			lines := []topicLine{} // not null
			rows := [][]string{{"TOPIC", "QUEUE", "HEADERS"}}
			for _, s := range list {
				lines = append(lines, topicLine(s))
				headers := s.Present
				for _, name := range slices.Sorted(maps.Keys(s.Equal)) {
					headers = append(headers, name+"="+s.Equal[name])
				}
				rows = append(rows, []string{s.Topic, s.Queue, brief(strings.Join(headers, " "), 100)})
			}
			if a.output == "json" {
				return a.json(lines)
			}
			return a.table(rows)
		},
	}
}

func (a *app) unsubscribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "unsubscribe QUEUE TOPIC",
		Short:   "Delete the subscription of a queue",
		Long:    "Deletes the subscription of a queue, for example of a dropped one. Messages stay.",
		Example: "  chanq topic unsubscribe --db shop.db mails orders",
		Args:    exactly(2, "a queue and a topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := chanqtopic.Unsubscribe(cmd.Context(), c.DB, args[1], args[0], a.queueConfig(c)); err != nil {
				return err
			}
			if a.output == "json" {
				return a.json(map[string]any{"queue": args[0], "topic": args[1], "unsubscribed": true})
			}
			_, err = fmt.Fprintf(a.out, "queue %s unsubscribed from %s\n", args[0], args[1])
			return err
		},
	}
}
