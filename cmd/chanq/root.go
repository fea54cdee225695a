package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/cmd/chanq/internal/demo"
	"github.com/chanq/chanq/sqlbatch"
)

// app is one run of the command: its streams and its global flags.
type app struct {
	in       io.Reader
	out, err io.Writer
	terminal io.Writer // the terminal that out writes to, or nil

	db, dsn, schema string
	output          string   // of -o
	asIs            bool     // --not-durable
	shards          []string // of --shard-db
	secrets         []string
}

// usageError is a mistake in the command line: exit status 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Run runs the command and returns its exit status. The end of ctx is the first interrupt: the command finishes the work that
// it has begun.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	pipe := &pipe{to: out}
	a := &app{in: in, out: pipe, err: errOut}
	if isTerminal(out) {
		a.out, a.terminal = screen{out}, out
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(a.out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if pipe.closed.Load() {
		return exitPipe
	}
	text, status := a.clean(err), exitFailed
	var wrong *usageError
	switch {
	case errors.Is(err, demo.ErrInterrupted):
		status = exitInterrupted
	case ctx.Err() != nil: // drivers do not always return context.Canceled
		status = exitInterrupted
		if errors.Is(err, context.Canceled) {
			text = "interrupted"
		} else {
			text = "interrupted: " + text
		}
	case errors.As(err, &wrong):
		status = exitUsage
	case errors.Is(err, chanq.ErrNoSchema):
		if question := a.suggestQueue(ctx, err); question != "" {
			text += "; " + question
		}
	case errors.Is(err, chanq.ErrNotDurable):
		text += "; on the command line give --not-durable"
	}
	a.fail(text, status)
	return status
}

// fail prints an error. status is the exit status, or 0 if the command continues.
func (a *app) fail(text string, status int) {
	if a.output != "json" {
		fmt.Fprintf(a.err, "chanq: %s\n", text)
		return
	}
	line, err := json.Marshal(failure{text, status})
	if err == nil {
		fmt.Fprintf(a.err, "%s\n", line)
	}
}

// failure is the JSON of an error.
type failure struct {
	Error  string `json:"error"`
	Status int    `json:"status"`
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "chanq",
		Short: "Queues in a SQL database",
		Long: `chanq runs message queues that are tables of a SQL database.

The database is named by --db (a SQLite file), by --dsn (SQL Server or
PostgreSQL), or by the environment variable CHANQ_DSN. A DSN is a URL, or has the
keywords of the server's driver (server=host;user id=name of go-mssqldb, host=name
user=name of pgx). All processes of a machine can read its command lines, and a
DSN contains a password: --dsn @FILE reads the DSN from a file, and --dsn env:NAME
from an environment variable. CHANQ_DSN also accepts both forms.`,
		Example: `  chanq demo
  chanq migrate --db jobs.db mail
  chanq send --db jobs.db mail 'Dear reader'
  chanq stats --dsn 'postgres://user@host/shop'
  chanq stats --dsn @/run/secrets/shop-dsn
  CHANQ_DSN='sqlserver://user:password@host?database=shop' chanq stats`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q; %s", args[0], cmp.Or(suggestCommand(cmd, args[0]), "chanq --help lists them"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("chanq {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%s: %w; %s", path(cmd), err, cmp.Or(suggestFlag(cmd, err), cmd.CommandPath()+" --help lists the flags"))
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.db, "db", "", "SQLite `file` that holds the queues")
	flags.StringVar(&a.dsn, "dsn", "", "`DSN` of a server's database: sqlserver://user:password@host?database=name or postgres://user:password@host/name, or the keywords of their drivers; or @FILE or env:NAME, which hold it")
	flags.StringVar(&a.schema, "schema", "", "`schema` of the tables (default dbo on SQL Server, public on PostgreSQL, main on SQLite)")
	flags.StringVarP(&a.output, "output", "o", "text", "`format` of the output: text or json")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if a.output != "text" && a.output != "json" {
			return usage("-o is %q: must be text or json", a.output)
		}
		return nil
	}
	for _, add := range []func() *cobra.Command{
		a.demoCommand, a.migrateCommand, a.schemaCommand, a.sendCommand, a.receiveCommand, a.statsCommand,
		a.topCommand, a.uiCommand, a.doctorCommand, a.benchCommand, a.consumersCommand, a.peekCommand, a.findCommand, a.causesCommand, a.redriveCommand, a.runCommand, a.releaseCommand, a.cancelCommand, a.purgeCommand, a.pauseCommand, a.resumeCommand, a.logCommand, a.configureCommand, a.scheduleCommand, a.batchCommand, a.jobsCommand, a.topicCommand, a.dropCommand, a.manCommand, a.versionCommand,
	} {
		root.AddCommand(add())
	}
	a.completions(root)
	return root
}

// version returns the version of the module that go install built, or (devel) for a build of a directory without version control,
// and what else a report of a failure needs.
func version() string {
	module := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		module = info.Main.Version
	}
	return fmt.Sprintf("%s, schema %d, %s %s/%s", module, sqlbatch.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionCommand prints what --version prints.
func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  chanq version", Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				return a.json(map[string]string{"version": version()})
			}
			_, err := fmt.Fprintln(a.out, "chanq", version())
			return err
		},
	}
}

// clean returns the text of an error as one line of visible characters, without the prefixes of chanq's own errors and without
// secrets.
func (a *app) clean(err error) string {
	text := strings.TrimPrefix(err.Error(), "chanq: ")
	text = strings.ReplaceAll(text, ": chanq: ", ": ")
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "\n", "; ")), " ")
	return visible(a.redact(text))
}

// exactly, between and atLeast check the count of arguments, as usage errors.
func exactly(n int, what string) cobra.PositionalArgs { return between(n, n, what) }

func atLeast(n int, what string) cobra.PositionalArgs { return between(n, 1<<30, what) }

func between(low, high int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usage("%s: give %s", path(cmd), what)
		}
		return nil
	}
}

// path returns the name of a command below chanq: stats, or completion bash.
func path(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// queueConfig returns the Config of operator commands, which accept the database as it is.
func (a *app) queueConfig(c *connection) chanq.Config {
	return chanq.Config{Schema: a.schema, Durability: chanq.DurabilityAsIs}
}

// durabilityFlag adds the flag to commands that confirm that something is stored.
func (a *app) durabilityFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.asIs, "not-durable", false, "accept a database that might lose what it has confirmed, as Config.Durability does")
	return cmd
}

// storingConfig returns the Config of such commands.
func (a *app) storingConfig(c *connection) chanq.Config {
	config := a.queueConfig(c)
	config.Durability = a.durability()
	return config
}

func (a *app) durability() chanq.Durability {
	if a.asIs {
		return chanq.DurabilityAsIs
	}
	return chanq.DurabilityRequired
}
