package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
)

func (a *app) schemaCommand() *cobra.Command {
	var name string
	var k kindFlags
	var view, procedures bool
	cmd := &cobra.Command{
		Use:   "schema QUEUE...",
		Short: "Print the statements that migrate would run",
		Long: `Prints the statements that create the tables of queues, for an administrator to read
and run. You can run them again. The command connects to no database. The dialect is
--dialect, or the one of --db or --dsn.

With --view and --procedures it prints what other programs may use, instead of the
tables: the view chanq_QUEUE__messages, which shows what is in the queue, and the procedure
chanq_QUEUE__send, which adds a message (docs/guides/sql.md). Migrate creates neither. For an ordered queue give
--ordered; the statements read its number of slots from the database.`,
		Example: `  chanq schema --dialect sqlserver --schema jobs mail | sqlcmd -d shop`,
		Args:    atLeast(1, "one queue or more"),
		RunE: func(cmd *cobra.Command, queues []string) error {
			if err := k.check(); err != nil {
				return err
			}
			d, err := a.dialect(name)
			if err != nil {
				return err
			}
			for _, queue := range queues {
				if err := a.checkName(queue); err != nil {
					return err
				}
				texts, err := printed(d, queue, k.apply(chanq.Config{Schema: a.schema}), view, procedures)
				if err != nil {
					return err
				}
				if a.output == "json" {
					if err := a.json(map[string]any{"queue": queue, "dialect": d, "statements": texts}); err != nil {
						return err
					}
					continue
				}
				for _, text := range texts {
					end := ";\n"
					if d == chanq.DialectSQLServer {
						end = "\nGO\n" // each statement is a separate batch
					}
					if _, err := fmt.Fprint(a.out, text, end); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "dialect", "", "`dialect`: sqlserver, postgres or sqlite")
	cmd.Flags().BoolVar(&view, "view", false, "print the view of messages instead of the tables")
	cmd.Flags().BoolVar(&procedures, "procedures", false, "print the procedure that sends instead of the tables")
	k.add(cmd)
	cmd.Flags().Lookup("slots").Usage = "with --ordered, of the tables: how many slots (default 64)"
	return cmd
}

// printed returns the statements that schema prints for a queue.
func printed(d chanq.Dialect, queue string, config chanq.Config, view, procedures bool) (texts []string, err error) {
	if !view && !procedures {
		return chanq.Schema(d, queue, config)
	}
	if view {
		if texts, err = chanq.View(d, queue, config); err != nil {
			return nil, err
		}
	}
	if procedures {
		more, err := chanq.Procedures(d, queue, config)
		if err != nil {
			return nil, err
		}
		texts = append(texts, more...)
	}
	return texts, nil
}

func (a *app) dialect(name string) (chanq.Dialect, error) {
	switch d := chanq.Dialect(name); d {
	case chanq.DialectSQLServer, chanq.DialectPostgres, chanq.DialectSQLite:
		return d, nil
	case "":
	default:
		return "", usage("--dialect is %q: must be sqlserver, postgres or sqlite", name)
	}
	t, err := a.target()
	if err != nil {
		return "", err
	}
	if d := t.dialect(); d != "" {
		return d, nil
	}
	return "", usage("schema: no dialect is given: give --dialect, --db or --dsn")
}
