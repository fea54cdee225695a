package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) purgeCommand() *cobra.Command {
	var c change
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge QUEUE [ID...]",
		Short: "Delete all messages of a state, or dead messages",
		Long: `Deletes all messages of a state, or those that the flags select, after asking; or the
dead messages with the IDs, without asking. You cannot undo this. If leased messages
are deleted, their consumers report a lost lease. If dead messages hold their keys
(setting "dead key"), the later messages of these keys are delivered without them.`,
		Example: `  chanq purge --db jobs.db --state dead mail
  chanq purge --db jobs.db --state dead --cause undecodable --dry-run mail
  chanq purge --db jobs.db --state done --before 2026-11-27T10:00:00Z --yes mail
  chanq purge --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args: atLeast(1, "a queue, and --state or IDs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args[1:])
			if err != nil {
				return err
			}
			if c.state == "" && ids != nil {
				c.state = string(chanqadmin.StateDead)
			}
			if c.state == "" {
				return usage("purge: give --state: ready, scheduled, leased, dead or done")
			}
			if err := c.check(ids); err != nil {
				return err
			}
			s, err := c.read(ids)
			if err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				if !yes && !c.dryRun && ids == nil {
					if err := a.confirmChange(cmd.Context(), q, "Delete", (*chanqadmin.Queue).Purge, s, c.limit); err != nil {
						return err
					}
				}
				return a.change(cmd.Context(), q, (*chanqadmin.Queue).Purge, s, c, "purged", "not dead")
			})
		},
	}
	cmd.Flags().StringVar(&c.state, "state", "", "`state`: ready, scheduled, leased, dead or done (default dead with IDs)")
	c.flags(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// confirmChange asks before a change of all messages of a selection, if there are any.
func (a *app) confirmChange(ctx context.Context, q *chanqadmin.Queue, verb string, do changes, s chanqadmin.Select, limit int) error {
	found, err := do(q, ctx, s, chanqadmin.Change{DryRun: true})
	if err != nil {
		return err
	}
	if found.Messages == 0 && !found.More {
		return nil
	}
	many, which := fmt.Sprint(found.Messages), "all"
	if found.More {
		many += " or more"
	}
	if !s.All {
		which = "the selected"
	}
	if limit > 0 && limit < found.Messages {
		return a.confirm(ctx, fmt.Sprintf("%s %d of %s %s messages of queue %s now?", verb, limit, which, s.State, q.Name()))
	}
	return a.confirm(ctx, fmt.Sprintf("%s %s %s messages of queue %s, %s now?", verb, which, s.State, q.Name(), many))
}

var errNotConfirmed = errors.New("not confirmed; nothing was changed")

// confirm asks the user; only "yes" confirms.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // ends with an answer, or with the process
		line, _ := bufio.NewReader(a.in).ReadString('\n') // the end of the input is not a yes
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return errNotConfirmed
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return ctx.Err()
	}
}
