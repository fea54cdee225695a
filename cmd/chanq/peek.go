package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) peekCommand() *cobra.Command {
	var id, after string
	var n int
	var sel selection
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Show messages without taking them",
		Long: `Shows messages of a state without claiming them. Those to be delivered are in the
order of claims, dead and done ones latest first. -o json shows whole bodies and
headers. To page, give --after the ID of the last message shown, which must
have the same state as before.`,
		Example: `  chanq peek --db jobs.db mail
  chanq peek --db jobs.db --state scheduled -n 100 mail
  chanq peek --db jobs.db --state dead --cause rejected mail
  chanq peek --db jobs.db --after 0199c0de-0000-7000-8000-000000000000 mail
  chanq peek --db jobs.db --id 0199c0de-0000-7000-8000-000000000000 -o json mail`,
		Args: exactly(1, "one queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sel.read(nil)
			if err != nil {
				return err
			}
			if n < 1 {
				return usage("-n is %d: must be 1 or more", n)
			}
			if id != "" && after != "" {
				return usage("--id and --after exclude each other: give one")
			}
			wanted, err := parseIDFlag("id", id)
			if err != nil {
				return err
			}
			after, err := parseIDFlag("after", after)
			if err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				if id != "" {
					entry, err := q.Get(cmd.Context(), wanted)
					if err != nil {
						return err
					}
					return a.entries([]chanqadmin.Entry{entry})
				}
				return a.peek(cmd.Context(), q, s, n, after)
			})
		},
	}
	sel.flags(cmd)
	cmd.Flags().StringVar(&sel.state, "state", "ready", "`state`: ready, scheduled, leased, dead or done")
	cmd.Flags().IntVarP(&n, "number", "n", 10, "how many messages")
	cmd.Flags().StringVar(&id, "id", "", "the `ID` of one message, whatever its state")
	cmd.Flags().StringVar(&after, "after", "", "start after the message with this `ID`")
	return cmd
}

func parseIDFlag(name, text string) (id chanq.ID, err error) {
	if text == "" {
		return id, nil
	}
	if id, err = chanq.ParseID(text); err != nil {
		return id, usage("--%s is %q: must be the ID of a message", name, text)
	}
	return id, nil
}

// peek shows n messages of a selection, starting after the given one, if any.
func (a *app) peek(ctx context.Context, q *chanqadmin.Queue, s chanqadmin.Select, n int, after chanq.ID) error {
	list := chanqadmin.List{Bodies: true}
	if !after.IsZero() {
		last, err := q.Get(ctx, after)
		if err != nil {
			return err
		}
		if last.State != s.State {
			return fmt.Errorf("--after: message %s is %s, not %s; start again without --after", after, last.State, s.State)
		}
		list.After = q.After(last)
	}
	var shown []chanqadmin.Entry
	for n > 0 {
		list.Limit = min(n, chanqadmin.MostListed)
		page, err := q.List(ctx, s, list)
		if err != nil {
			return err
		}
		if n -= len(page.Entries); page.Next == "" {
			n = 0
		}
		list.After = page.Next
		if a.output == "json" { // as they are read
			if err := a.entries(page.Entries); err != nil {
				return err
			}
		} else {
			shown = append(shown, page.Entries...)
		}
	}
	return a.entries(shown)
}

func parseState(s string) (chanqadmin.State, error) {
	switch state := chanqadmin.State(s); state {
	case chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone:
		return state, nil
	}
	return "", usage("--state is %q: must be ready, scheduled, leased, dead or done", s)
}
