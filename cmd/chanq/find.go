package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) findCommand() *cobra.Command {
	var s chanqadmin.Search
	var after string
	cmd := &cobra.Command{
		Use:   "find QUEUE TEXT",
		Short: "Search for messages, in all states",
		Long: `Shows messages whose ID, key, deduplication key or type is the text, or whose last error or a
header (as name=value) contains it. The latest are first. Bodies are not searched. After --within
it prints how many messages it has read, and how you can go on.`,
		Example: `  chanq find --db jobs.db payments 'customer 7'
  chanq find --db jobs.db -n 100 --within 30s mail 'tenant=7'`,
		Args: exactly(2, "one queue and one text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case s.Limit < 1 || s.Limit > chanqadmin.MostListed:
				return usage("-n is %d: must be from 1 to %d", s.Limit, chanqadmin.MostListed)
			case s.Within <= 0:
				return usage("--within is %v: must be above 0", s.Within)
			case len(args[1]) == 0 || len(args[1]) > chanqadmin.MostSearched:
				return usage("the text has %d bytes: must be from 1 to %d", len(args[1]), chanqadmin.MostSearched)
			}
			s.Text, s.After = args[1], chanqadmin.PageToken(after)
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				page, err := q.Search(cmd.Context(), s)
				if err != nil {
					return err
				}
				err = a.entries(page.Entries)
				if page.Next == "" {
					return err
				}
				of := ""
				if stats, failed := q.Stats(cmd.Context()); failed == nil && stats.Messages() > 0 {
					of = " of " + chanqadmin.About(stats.Messages())
				}
				_, failed := fmt.Fprintf(a.err, "looked at %d%s messages; go on: --after %s\n", page.Looked, of, page.Next)
				return errors.Join(err, failed)
			})
		},
	}
	cmd.Flags().IntVarP(&s.Limit, "number", "n", 10, "how many messages")
	cmd.Flags().StringVar(&after, "after", "", "go on after this `position`")
	cmd.Flags().DurationVar(&s.Within, "within", 2*time.Second, "how long to search")
	return cmd
}
