package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// suggestion returns a question about the name that differs from a mistyped one by at most two letters, or starts with it.
// prefix is what stands before the name. It returns "" if no name is that near.
func suggestion(mistyped, prefix string, names []string) string {
	best, least := "", 3
	for _, name := range slices.Sorted(slices.Values(names)) {
		d := distance(mistyped, name)
		if d >= len(name) { // nothing is in common
			continue
		}
		if len(mistyped) > 1 && strings.HasPrefix(name, mistyped) {
			d = min(d, 2)
		}
		if d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s%s?", prefix, best)
}

// distance returns how many bytes must be inserted, deleted or replaced to make b of a (the Levenshtein distance).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := above
			if a[i] != b[j] {
				replaced++
			}
			above = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func suggestCommand(cmd *cobra.Command, mistyped string) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return suggestion(mistyped, cmd.CommandPath()+" ", names)
}

func suggestFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return suggestion(unknown.GetSpecifiedName(), "--", names)
}

// suggestQueue asks the database for the names of its queues after a queue was not found. It says nothing if that fails.
func (a *app) suggestQueue(ctx context.Context, err error) string {
	var op *chanq.OpError
	if !errors.Is(err, chanq.ErrNoSchema) || !errors.As(err, &op) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return ""
	}
	defer c.Close()
	names, err := chanqadmin.Queues(ctx, c.DB, a.queueConfig(c))
	if err != nil || slices.Contains(names, op.Queue) {
		return ""
	}
	return suggestion(op.Queue, "", names)
}
