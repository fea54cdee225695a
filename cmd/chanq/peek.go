package main

import (
	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
)

func (a *app) peekCommand() *cobra.Command {
	var state, id string
	var n int
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Look at messages without taking them",
		Long: `Shows messages of a state without claiming them: those on their way in the order
of claims, dead and done ones latest first. -o json shows whole bodies and
headers.`,
		Example: `  chanq peek --db jobs.db mail
  chanq peek --db jobs.db --state scheduled -n 100 mail
  chanq peek --db jobs.db --id 0199c0de-0000-7000-8000-000000000000 -o json mail`,
		Args: exactly(1, "one queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := parseState(state)
			if err != nil {
				return err
			}
			if err := checkPeek(n); err != nil {
				return err
			}
			var wanted chanq.ID
			if id != "" {
				if wanted, err = chanq.ParseID(id); err != nil {
					return usage("--id is %q: must be the ID of a message", id)
				}
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanq.Queue[[]byte]) error {
				if id != "" {
					entry, err := q.Get(cmd.Context(), wanted)
					if err != nil {
						return err
					}
					return a.entries([]chanq.Entry{entry})
				}
				list, err := q.Peek(cmd.Context(), s, n)
				if err != nil {
					return err
				}
				return a.entries(list)
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "ready", "`state`: ready, scheduled, leased, dead or done")
	cmd.Flags().IntVarP(&n, "number", "n", 10, "how many messages, at most 1000")
	cmd.Flags().StringVar(&id, "id", "", "the `ID` of one message, whatever its state")
	return cmd
}

func checkPeek(n int) error {
	if n < 1 || n > 1000 {
		return usage("-n is %d: must be from 1 to 1000", n)
	}
	return nil
}

func parseState(s string) (chanq.State, error) {
	switch state := chanq.State(s); state {
	case chanq.StateReady, chanq.StateScheduled, chanq.StateLeased, chanq.StateDead, chanq.StateDone:
		return state, nil
	}
	return "", usage("--state is %q: must be ready, scheduled, leased, dead or done", s)
}
