package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// specFlags are the flags for the fields of a queue's Spec that can be changed.
type specFlags struct {
	maxAttempts, maxBody, maxKeys, retain, retainDead, deadKey string
	spec                                                       chanq.Spec // the spec of these flags; set by check
}

func (s *specFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.maxAttempts, "max-attempts", "", "dead-letter a message after so many failed attempts, or \"unlimited\" (default 20)")
	flags.StringVar(&s.maxBody, "max-body", "", "the most `bytes` of a body (default 1048576)")
	flags.StringVar(&s.maxKeys, "max-keys", "", "of an ordered queue: the most keys that are processed simultaneously, or \"unlimited\" (default unlimited)")
	flags.StringVar(&s.deadKey, "dead-key", "", "of an ordered queue: whether a dead message \"opens\" its key or \"holds\" it (default opens)")
	flags.StringVar(&s.retain, "retain", "", "keep acked messages for this `duration`, or \"none\" (default none)")
	flags.StringVar(&s.retainDead, "retain-dead", "", "delete dead messages after this `duration`, or \"all\" to keep them (default all)")
}

// check sets spec. Migrate checks the values.
func (s *specFlags) check() error {
	for _, f := range []struct {
		flag, value, none string
		number            *int
		duration          *time.Duration
	}{
		{"max-attempts", s.maxAttempts, "unlimited", &s.spec.MaxAttempts, nil}, {"max-body", s.maxBody, "", &s.spec.MaxBody, nil},
		{"max-keys", s.maxKeys, "unlimited", &s.spec.MaxKeys, nil}, {"retain", s.retain, "none", nil, &s.spec.Retain},
		{"retain-dead", s.retainDead, "all", nil, &s.spec.RetainDead},
	} {
		var err error
		switch {
		case f.value == "":
		case f.number != nil && f.value == f.none:
			*f.number = chanq.UnlimitedAttempts
		case f.duration != nil && f.value == f.none:
			*f.duration = chanq.RetainNone
		case f.number != nil:
			if *f.number, err = strconv.Atoi(f.value); err != nil || *f.number < 1 {
				return usage("--%s is %q: must be a number of at least 1%s", f.flag, f.value, orWord(f.none))
			}
		default:
			if *f.duration, err = time.ParseDuration(f.value); err != nil || *f.duration <= 0 {
				return usage("--%s is %q: must be a duration above 0, for example 72h%s", f.flag, f.value, orWord(f.none))
			}
		}
	}
	switch s.deadKey {
	case "":
	case "opens":
		s.spec.DeadKey = chanq.DeadKeyOpens
	case "holds":
		s.spec.DeadKey = chanq.DeadKeyHolds
	default:
		return usage("--dead-key is %q: must be opens or holds", s.deadKey)
	}
	return nil
}

func orWord(word string) string {
	if word == "" {
		return ""
	}
	return ", or " + word
}

func (a *app) configureCommand() *cobra.Command {
	var s specFlags
	cmd := &cobra.Command{
		Use:   "configure QUEUE...",
		Short: "Show or change the settings of queues that all programs share",
		Long: `Shows the settings that the database keeps of queues, or changes those whose flags
you give. You can run it while programs use the queues: consumers adopt the settings
within a third of their lease time (10 s by default).`,
		Example: `  chanq configure --db jobs.db mail
  chanq configure --db jobs.db --max-attempts 5 --retain 72h mail`,
		Args: atLeast(1, "one queue or more"),
		RunE: func(cmd *cobra.Command, queues []string) error {
			if err := s.check(); err != nil {
				return err
			}
			for _, queue := range queues {
				err := a.withQueue(cmd.Context(), queue, func(q *chanqadmin.Queue) error {
					if s.spec != (chanq.Spec{}) {
						if err := q.Configure(cmd.Context(), s.spec, a.by("")); err != nil {
							return err
						}
					}
					spec, err := q.Spec(cmd.Context())
					if err != nil {
						return err
					}
					return a.showSpec(queue, spec)
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	s.add(cmd)
	return cmd
}

// showSpec prints the settings of a queue.
func (a *app) showSpec(queue string, spec chanq.Spec) error {
	number := func(n int) any {
		if n == chanq.UnlimitedAttempts {
			return "unlimited"
		}
		return n
	}
	duration := func(d time.Duration, none string) any {
		if d == chanq.RetainNone {
			return none
		}
		return d.String()
	}
	type setting struct {
		name, key string
		value     any
	}
	list := []setting{
		{"kind", "kind", spec.Kind.String()}, {"max attempts", "max_attempts", number(spec.MaxAttempts)}, {"max body", "max_body", spec.MaxBody},
		{"retain", "retain", duration(spec.Retain, "none")}, {"retain dead", "retain_dead", duration(spec.RetainDead, "all")},
	}
	if spec.Kind == chanq.KindOrdered {
		list = append(list, setting{"slots", "slots", spec.Slots}, setting{"max keys", "max_keys", number(spec.MaxKeys)}, setting{"dead key", "dead_key", spec.DeadKey.String()})
	}
	if a.output == "json" {
		object := map[string]any{"queue": queue}
		for _, s := range list {
			object[s.key] = s.value
		}
		return a.json(object)
	}
	for _, s := range list {
		if _, err := fmt.Fprintf(a.out, "%s\t%s\t%v\n", queue, s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}
