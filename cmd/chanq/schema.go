package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func (a *app) schemaCommand() *cobra.Command {
	var name string
	var k kindFlags
	cmd := &cobra.Command{
		Use:   "schema QUEUE...",
		Short: "Print the statements that migrate would run",
		Long: `Prints the statements that make the tables of queues, for a database
administrator to read and run; each may be run again without harm. It connects to
nothing. The dialect is that of --dialect, or else of --db or --dsn.`,
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
				texts, err := chanq.Schema(d, queue, k.set(chanq.Config{Schema: a.schema}))
				if err != nil {
					return err
				}
				if a.output == "json" {
					if err := a.json(map[string]any{"queue": queue, "dialect": d.Name(), "statements": texts}); err != nil {
						return err
					}
					continue
				}
				for _, text := range texts {
					end := ";\n"
					if d == sqlserver.Dialect {
						end = "\nGO\n" // each is a batch of its own
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
	k.add(cmd)
	return cmd
}

func (a *app) dialect(name string) (sqlbatch.Dialect, error) {
	switch name {
	case "sqlserver":
		return sqlserver.Dialect, nil
	case "postgres":
		return postgres.Dialect, nil
	case "sqlite":
		return sqlite.Dialect, nil
	case "":
	default:
		return nil, usage("--dialect is %q: must be sqlserver, postgres or sqlite", name)
	}
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	if d := t.dialect(); d != nil {
		return d, nil
	}
	return nil, usage("schema: which dialect? Give --dialect, --db or --dsn")
}
