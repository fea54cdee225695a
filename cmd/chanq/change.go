package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// selection are the flags that select messages.
type selection struct {
	state, kind, cause, fingerprint, key, before string
}

func (s *selection) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.cause, "cause", "", "only dead messages of this `cause`; see chanq causes")
	var causes []string
	for c := chanq.CauseExhausted; c <= chanq.CauseOutput; c++ {
		causes = append(causes, c.String())
	}
	registerWords(cmd, "cause", causes)
	flags.StringVar(&s.fingerprint, "fingerprint", "", "only the messages of a group of the cause: its `fingerprint`, or none")
	flags.StringVar(&s.kind, "type", "", "only messages of this `type`")
	flags.StringVar(&s.key, "key", "", "only messages of this `key`, in an ordered queue")
	flags.StringVar(&s.before, "before", "", "only messages that died or were acked before this `time`, as 2026-11-27T10:00:00Z")
}

// read returns the selection: the messages with these IDs if there are any, otherwise those that the flags select, by default all of the
// state.
func (s *selection) read(ids []chanq.ID) (sel chanqadmin.Select, err error) {
	sel = chanqadmin.Select{Type: s.kind, Fingerprint: s.fingerprint, Key: s.key, IDs: ids}
	if sel.State, err = parseState(s.state); err != nil {
		return sel, err
	}
	if s.cause != "" {
		if sel.Cause, err = chanqadmin.ParseCause(s.cause); err != nil {
			return sel, usage("--cause: %w", err)
		}
	}
	if s.before != "" {
		if sel.Before, err = time.Parse(time.RFC3339, s.before); err != nil {
			return sel, usage("--before is %q: must be a time such as 2026-11-27T10:00:00Z", s.before)
		}
	}
	given := slices.ContainsFunc([]string{s.kind, s.cause, s.fingerprint, s.key, s.before}, func(v string) bool { return v != "" })
	if given && ids != nil {
		return sel, usage("IDs exclude the flags that select messages: give one of both")
	}
	sel.All = !given && ids == nil
	return sel, nil
}

// change are the flags of a command that changes messages.
type change struct {
	selection
	limit, perSecond int
	dryRun           bool
}

func (c *change) flags(cmd *cobra.Command) {
	c.selection.flags(cmd)
	cmd.Flags().IntVar(&c.limit, "limit", 0, "how many messages at most (default all)")
	cmd.Flags().IntVar(&c.perSecond, "per-second", 0, "how many messages per second (default no bound)")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "count the messages, up to 10,000, and change nothing")
}

func (c *change) check(ids []chanq.ID) error {
	switch {
	case c.limit < 0:
		return usage("--limit is %d: must be 0 (all) or more", c.limit)
	case c.perSecond < 0:
		return usage("--per-second is %d: must be 0 (no bound) or more", c.perSecond)
	case ids != nil && (c.limit > 0 || c.dryRun):
		return usage("IDs exclude --limit and --dry-run: give one of both")
	}
	return nil
}

// changes is Redrive, Purge, Cancel or RunNow.
type changes func(*chanqadmin.Queue, context.Context, chanqadmin.Select, chanqadmin.Change) (chanqadmin.Changed, error)

// change changes messages, and writes how many. done is their new state, and otherwise the reason why some of IDs were not changed.
func (a *app) change(ctx context.Context, q *chanqadmin.Queue, do changes, s chanqadmin.Select, c change, done, otherwise string) error {
	by := a.by("")
	by.Limit, by.PerSecond, by.DryRun = c.limit, c.perSecond, c.dryRun
	if c.perSecond > 0 {
		p, shown := a.progress("messages", 10*time.Second), 0
		p.Start(done, 0, 0)
		by.Progress = func(n int) { p.Add(n - shown); shown = n }
		defer p.End()
	}
	changed, err := do(q, ctx, s, by)
	switch {
	case c.dryRun && err == nil:
		return a.wouldBe(changed, done)
	case err != nil && changed.Messages == 0:
		return err
	case s.IDs != nil:
		return a.changed(q, done, otherwise, s.IDs, changed.IDs, err)
	}
	return a.counted(changed.Messages, done, err)
}

// wouldBe writes the result of a dry run.
func (a *app) wouldBe(found chanqadmin.Changed, done string) error {
	if a.output == "json" {
		return a.json(map[string]any{"messages": found.Messages, "more": found.More})
	}
	many := count(found.Messages, "message")
	if found.More {
		many += " or more"
	}
	_, err := fmt.Fprintf(a.out, "%s would be %s\n", many, done)
	return err
}

// by returns a change that the user of the command makes. If it is not in the log of changes, the command says so.
func (a *app) by(reason string) chanqadmin.Change {
	return chanqadmin.Change{Actor: actor(), Reason: reason, Unlogged: func(err error) {
		a.fail("the change was made, but not logged: "+a.clean(err), exitOK)
	}}
}

// actor returns the user of the command.
func actor() string {
	name := fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%.100s@%.200s", name, host)
}

// counted writes how many messages were changed, even if not all could be.
func (a *app) counted(n int, what string, err error) error {
	var written error
	if a.output == "json" {
		written = a.json(map[string]int{what: n})
	} else {
		_, written = fmt.Fprintf(a.out, "%s %s\n", count(n, "message"), what)
	}
	if err != nil {
		return err
	}
	return written
}

// changed writes how many of the messages with these IDs were changed; it is an error if some were not.
func (a *app) changed(q *chanqadmin.Queue, done, otherwise string, ids, found []chanq.ID, err error) error {
	if err := a.counted(len(found), done, err); err != nil {
		return err
	}
	if missing := len(ids) - len(found); missing > 0 {
		return fmt.Errorf("queue %s: %s %s", q.Name(), count(missing, "message"), otherwise)
	}
	return nil
}

// parseIDs reads the IDs of messages; a repeated ID counts once.
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
