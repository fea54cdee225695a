package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
)

func (a *app) peekCommand() *cobra.Command {
	var id, after string
	var n int
	var sel selection
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Show messages without taking them",
		Long: `Shows messages of a state without claiming them. Those to be delivered are in the
order of claims, dead and done ones latest first. -o json shows whole bodies and
headers. To page, give --after the ID of the last message shown, which must
have the same state as before.

--type, --key and --cause compare each message. After --within the command prints how many
it has read, and the --after with which to go on. With --id it also shows the last attempts
that failed, and the progress that the job last reported.`,
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
			var last chanq.ID
			if !strings.Contains(after, ".") { // else a place, as the command prints it
				if last, err = parseIDFlag("after", after); err != nil {
					return err
				}
				after = ""
			}
			if id != "" {
				return a.peekOne(cmd.Context(), args[0], wanted)
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				return a.peek(cmd.Context(), q, s, n, last, chanqadmin.List{After: chanqadmin.PageToken(after), Bodies: true}, within)
			})
		},
	}
	sel.flags(cmd)
	cmd.Flags().StringVar(&sel.state, "state", "ready", "`state`: ready, scheduled, leased, dead or done")
	cmd.Flags().IntVarP(&n, "number", "n", 10, "how many messages")
	cmd.Flags().StringVar(&id, "id", "", "the `ID` of one message, whatever its state")
	cmd.Flags().StringVar(&after, "after", "", "start after the message with this `ID`")
	cmd.Flags().DurationVar(&within, "within", 2*time.Second, "how long to search")
	return cmd
}

// peekOne shows a message, and the progress that it has reported.
func (a *app) peekOne(ctx context.Context, queue string, id chanq.ID) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	q, err := chanqadmin.Open(ctx, c.DB, queue, a.queueConfig(c))
	if err != nil {
		return err
	}
	entry, err := q.Get(ctx, id)
	if err != nil {
		return err
	}
	p, err := chanqjobs.ReadProgress(ctx, c.DB, queue, id, a.queueConfig(c))
	switch {
	case err != nil: // none, no table, or no permission to read it: the message is what was asked for
		return a.entryWithHistory(entry)
	case a.output == "json":
		text, err := json.Marshal(entry)
		if err != nil {
			return err
		}
		all := map[string]any{}
		if err := json.Unmarshal(text, &all); err != nil {
			return err
		}
		all["progress"] = map[string]any{"at": p.At.UTC(), "done": p.Done, "note": p.Note}
		return a.json(all)
	}
	if err := a.entryWithHistory(entry); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "progress at %s: %.0f %%, %s\n", clock(p.At), 100*p.Done, brief(p.Note, 100))
	return err
}

// entryWithHistory writes a stored message, and its last attempts.
func (a *app) entryWithHistory(e chanqadmin.Entry) error {
	err := a.entries([]chanqadmin.Entry{e})
	if err != nil || a.output == "json" || len(e.History) == 0 {
		return err
	}
	rows := [][]string{{"ATTEMPT ENDED", "TOOK", "BY", "ERROR"}}
	for _, h := range e.History {
		took := ""
		if h.Took > 0 {
			took = h.Took.String()
		}
		rows = append(rows, []string{clock(h.Ended), took, h.LeasedBy, brief(h.Error, 100)})
	}
	return a.table(rows)
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

// peek shows n messages of a selection, starting after the given one, if any, as far as it finds them within a time.
func (a *app) peek(ctx context.Context, q *chanqadmin.Queue, s chanqadmin.Select, n int, after chanq.ID, list chanqadmin.List, within time.Duration) error {
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
	looked, begun, compared := 0, time.Now(), s.Type != "" || s.Key != "" || s.Cause != 0
	for n > 0 {
		list.Limit = min(n, chanqadmin.MostListed)
		page, err := q.List(ctx, s, list)
		if err != nil {
			return err
		}
		looked += page.Looked
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
		if n > 0 && compared && time.Since(begun) >= within {
			return errors.Join(a.entries(shown), a.partly(ctx, q, s, looked, list.After))
		}
	}
	return a.entries(shown)
}

// partly says how far a command has looked, and how to go on.
func (a *app) partly(ctx context.Context, q *chanqadmin.Queue, s chanqadmin.Select, looked int, next chanqadmin.PageToken) error {
	of := ""
	if stats, err := q.Stats(ctx); err == nil {
		if all := stats.Estimate(s.State); all > 0 {
			of = fmt.Sprintf(" of %d", all)
			if all >= stats.Limit {
				of = " of " + chanqadmin.About(all)
			}
		}
	}
	_, err := fmt.Fprintf(a.err, "looked at about %d%s %s messages; go on: --after %s\n", looked, of, s.State, next)
	return err
}

func parseState(s string) (chanqadmin.State, error) {
	switch state := chanqadmin.State(s); state {
	case chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone:
		return state, nil
	}
	return "", usage("--state is %q: must be ready, scheduled, leased, dead or done", s)
}
