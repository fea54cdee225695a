package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestInvalidFlagsAreReportedBeforeAnyWrite(t *testing.T) {
	const password = "p4ss-w0rd"
	dir := t.TempDir()
	db := filepath.Join(dir, "queue.db")
	server := "sqlserver://sa:" + password + "@localhost?database=x"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"frobnicate"}, `unknown command "frobnicate"`},
		{[]string{"stats", "--frob"}, "stats: unknown flag: --frob"},
		{[]string{"stats"}, "no database is given: give --db FILE or --dsn URL"},
		{[]string{"stats", "--db", db, "--dsn", server}, "--db and --dsn name two databases"},
		{[]string{"stats", "--db", db, "-o", "yaml"}, `-o is "yaml"`},
		{[]string{"stats", "--dsn", "mysql://sa:" + password + "@localhost"}, "--dsn must be sqlserver://user:password@host:port?database=name or postgres://"},
		{[]string{"stats", "--dsn", "sqlserver://sa:" + password + "/%zz@localhost"}, "--dsn cannot be read"},
		{[]string{"stats", "--dsn", "sqlserver://sa:" + password + "/x@localhost"}, "--dsn cannot be read"},
		{[]string{"stats", "--dsn", "password=" + password + ";server=localhost"}, "--dsn must be sqlserver://"},
		{[]string{"stats", "--dsn", "sqlserver://?password=" + password}, "--dsn cannot be read"},
		{[]string{"stats", "--dsn", server + "&encrypt=" + password}, "check the port and parameters such as encrypt"},
		{[]string{"stats", "--dsn", "postgres"}, "--dsn must be"},
		{[]string{"stats", "--dsn", "hots=localhost password=" + password}, "or start with server= or host="},
		{[]string{"stats", "--dsn", "host=localhost password='" + password}, "--dsn cannot be read by PostgreSQL's driver, pgx: must be host=name"},
		{[]string{"stats", "--dsn", "host=localhost port=" + password}, "--dsn cannot be read by PostgreSQL's driver"},
		{[]string{"stats", "--dsn", "server=localhost,x;password=" + password}, "--dsn cannot be read by SQL Server's driver, go-mssqldb: must be server=host,port"},
		{[]string{"stats", "--dsn", "odbc:server=localhost;password={" + password}, "--dsn cannot be read by SQL Server's driver"},
		{[]string{"stats", "--dsn", "host=localhost;user=me;password=" + password}, "--dsn cannot be read by PostgreSQL's driver"},
		{[]string{"stats", "--dsn", "host=localhost,user=me,password=" + password}, "--dsn cannot be read by PostgreSQL's driver"},
		{[]string{"stats", "--dsn", "dbname=x;password=" + password + ";host=localhost"}, "--dsn cannot be read by PostgreSQL's driver"},
		{[]string{"stats", "--dsn", "host=localhost search_path=x;password=" + password}, "--dsn cannot be read by PostgreSQL's driver"},
		{[]string{"stats", "--dsn", "password=my " + password + " host=localhost"}, "--dsn cannot be read by PostgreSQL's driver"},
		{[]string{"stats", "--dsn", "server=localhost user id=me password=" + password}, "--dsn cannot be read by SQL Server's driver"},
		{[]string{"stats", "--dsn", "server=localhost,user id=me,password=" + password}, "--dsn cannot be read by SQL Server's driver"},
		{[]string{"stats", "--dsn", "server=localhost;database=x password=" + password}, "--dsn cannot be read by SQL Server's driver"},
		{[]string{"stats", "--dsn", "postgres://me:" + password + "/%zz@localhost/x"}, "--dsn cannot be read: must be postgres://user:password@host:port/database"},
		{[]string{"stats", "--dsn", "postgres://me:" + password + "@localhost:port/x"}, "--dsn cannot be read: must be"},
		{[]string{"stats", "--dsn", "postgres://me:" + password + "@localhost/x?sslmode=" + password}, "check the port and parameters such as sslmode"},
		{[]string{"stats", "--dsn", "postgresql://me@localhost/x?connect_timeout=" + password + "&pass%77ord=" + password}, "--dsn cannot be read by PostgreSQL's driver, pgx: must be"},
		{[]string{"stats", "--dsn", "postgres://me:" + password + "@localhost/x?connect_timeout=" + password}, "--dsn cannot be read by"},
		{[]string{"stats", "--dsn", "postgres://me:x#" + password + "@localhost/x"}, "special characters of the password percent-encoded"},
		{[]string{"stats", "--dsn", "sqlserver://sa@localhost?password=x#" + password}, "special characters of the password percent-encoded"},
		{[]string{"schema", "--dialect", "mysql", "mail"}, "must be sqlserver, postgres or sqlite"},
		{[]string{"causes", "--db", db}, "chanq: causes: give one queue"},
		{[]string{"redrive", "--db", db}, "chanq: redrive: give a queue"},
		{[]string{"redrive", "--frob"}, "redrive: unknown flag: --frob; chanq redrive --help"},
		{[]string{"redrive", "--db", db, "--per-second", "-1", "mail"}, "--per-second is -1"},
		{[]string{"redrive", "--db", db, "--cause", "bad luck", "mail"}, "cause \"bad luck\": must be one of exhausted, rejected"},
		{[]string{"purge", "--db", db, "--state", "done", "--before", "yesterday", "mail"}, "--before is \"yesterday\": must be a time"},
		{[]string{"redrive", "--db", db, "--type", "t", "mail", "0199c0de-0000-7000-8000-000000000000"}, "IDs exclude the flags that select messages"},
		{[]string{"redrive", "--db", db, "--dry-run", "mail", "0199c0de-0000-7000-8000-000000000000"}, "IDs exclude --limit and --dry-run"},
		{[]string{"migrate", "--db", db}, "migrate: give one queue or more"},
		{[]string{"migrate", "--db", db, "Mail"}, `queue name "Mail"`},
		{[]string{"migrate", "--db", db, "mail", "mail__dead"}, "joined by single underscores"},
		{[]string{"schema", "mail"}, "give --dialect, --db or --dsn"},
		{[]string{"schema", "--dialect", "oracle", "mail"}, `--dialect is "oracle"`},
		{[]string{"send", "--db", db}, "send: give a queue"},
		{[]string{"send", "--db", db, "--priority", "huge", "mail", "x"}, `--priority is "huge"`},
		{[]string{"send", "--db", db, "--delay", "-1s", "mail", "x"}, "--delay is -1s"},
		{[]string{"send", "--db", db, "--delay", "soon", "mail", "x"}, "--delay"},
		{[]string{"send", "--db", db, "--ttl", "1s", "--delay", "1s", "mail", "x"}, "--ttl is 1s: must be 0 (never) or more than --delay, 1s"},
		{[]string{"send", "--db", db, "--header", "x", "mail", "x"}, "--header number 1: must be name=value"},
		{[]string{"configure", "--db", db, "--max-body", "0", "mail"}, `--max-body is "0"`},
		{[]string{"configure", "--db", db, "--retain", "often", "mail"}, `--retain is "often"`},
		{[]string{"send", "--db", db, "--dedup-key", "k", "mail", "x", "y"}, "--dedup-key is for one message"},
		{[]string{"send", "--db", db, "--dedup-key", "k", "--on-duplicate", "drop", "mail", "x"}, `--on-duplicate is "drop": must be keep-first,`},
		{[]string{"send", "--db", db, "--on-duplicate", "replace", "mail", "x"}, "--on-duplicate needs --dedup-key"},
		{[]string{"send", "--db", db, "--dedup-key", "k", "--on-duplicate", "debounce", "mail", "x"}, "--on-duplicate debounce needs --delay"},
		{[]string{"send", "--db", db, "--dedup-key", "k", "--on-duplicate", "debounce", "--delay", "2s", "--debounce-max", "1s", "mail", "x"}, "--debounce-max is 1s: must be at least --delay, 2s"},
		{[]string{"send", "--db", db, "--debounce-max", "1s", "mail", "x"}, "--debounce-max is 1s"},
		{[]string{"receive", "--db", db}, "receive: give one queue"},
		{[]string{"receive", "--db", db, "-n", "-1", "mail"}, "-n is -1"},
		{[]string{"receive", "--db", db, "--delay", "1s", "mail"}, "--delay needs --nack"},
		{[]string{"receive", "--db", db, "--nack", "--follow", "mail"}, "--nack of all messages needs --delay"},
		{[]string{"migrate", "--db", db, "--max-attempts", "-3", "mail"}, `--max-attempts is "-3"`},
		{[]string{"top", "--db", db, "--every", "1ms"}, "--every is 1ms"},
		{[]string{"ui", "--db", db, "mail"}, "ui: give no arguments"},
		{[]string{"ui", "--db", db, "--listen", "8686"}, `--listen is "8686": must be HOST:PORT`},
		{[]string{"ui", "--db", db, "--listen", ":8686"}, "--listen :8686 accepts connections from other machines: give --password"},
		{[]string{"ui", "--db", db, "--listen", "0.0.0.0:8686"}, "give --password"},
		{[]string{"ui", "--db", db, "--listen", "10.0.0.1:8686"}, "give --password"},
		{[]string{"ui", "--db", db, "--password", password}, "--password must be @FILE or env:NAME"},
		{[]string{"ui", "--db", db, "--password", "env:CHANQ_TEST_NOT_SET"}, "--password: the environment variable after env: is not set"},
		{[]string{"ui", "--db", db, "--cert", "x"}, "--cert and --key: give both or none"},
		{[]string{"peek", "--db", db, "--state", "odd", "mail"}, `--state is "odd"`},
		{[]string{"peek", "--db", db, "-n", "0", "mail"}, "-n is 0"},
		{[]string{"peek", "--db", db, "--id", "7", "mail"}, `--id is "7"`},
		{[]string{"redrive", "--db", db, "mail", "7"}, `"7" is not the ID of a message`},
		{[]string{"redrive", "--db", db, "--limit", "-1", "mail"}, "--limit is -1"},
		{[]string{"purge", "--db", db, "mail"}, "purge: give --state"},
		{[]string{"purge", "--db", db, "--state", "old", "mail"}, `--state is "old"`},
		{[]string{"pause", "--db", db}, "pause: give one queue or more"},
		{[]string{"cancel", "--db", db, "mail"}, "cancel: give a queue, and IDs or --dedup-key"},
		{[]string{"cancel", "--db", db}, "cancel: give a queue, and IDs or --dedup-key"},
		{[]string{"cancel", "--db", db, "--dedup-key", "k", "mail", "0199c0de-0000-7000-8000-000000000000"}, "IDs exclude --dedup-key"},
		{[]string{"purge", "--db", db, "mail", "7"}, `"7" is not the ID of a message`},
		{[]string{"drop", "--db", db}, "drop: give one queue or more"},
		{[]string{"drop", "--db", db, "--yes", "mail"}, "--yes needs --with-messages"},
		{[]string{"demo", "x"}, "demo: give no arguments"},
		{[]string{"demo", "--db", db, "--workers", "0"}, "--workers is 0"},
		{[]string{"demo", "--db", db, "--lease", "1ms"}, "--lease is 1ms"},
		{[]string{"demo", "--db", db, "--progress-every", "0s"}, "--progress-every is 0s"},
		{[]string{"demo", "--db", db, "--dir", filepath.Join(dir, "nowhere")}, "--dir: "},
		{[]string{"demo", "--db", db, "--dir", os.Args[0]}, "--dir: "},
		{[]string{"demo", "--db", db, "--dsn", server}, "--db and --dsn name two databases"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			said := fail(t, exitUsage, c.args...)
			require.Contains(t, strings.ToLower(said), strings.ToLower(c.want))
			require.NotContains(t, said, password)
		})
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "no database was created")
}

func TestDSNOfTheEnvironmentIsChecked(t *testing.T) {
	t.Setenv("CHANQ_DSN", "mysql://me:s3cret@localhost")
	said := fail(t, exitUsage, "stats")
	require.Contains(t, said, "CHANQ_DSN must be sqlserver://")
	require.NotContains(t, said, "s3cret")
}

// The server cannot be reached, so the driver's error is printed.
func TestPasswordsAreNotPrinted(t *testing.T) {
	const password = "p@ss w/rd"
	for _, dsn := range []string{
		"sqlserver://p%40ss%20w%2Frd:p%40ss%20w%2Frd@127.0.0.1:1?dial+timeout=1",
		"sqlserver://127.0.0.1:1?dial+timeout=1&user+id=sa&password=p%40ss+w%2Frd",
		"postgres://p%40ss%20w%2Frd:p%40ss%20w%2Frd@127.0.0.1:1/p%40ss%20w%2Frd?connect_timeout=1",
		"postgres://127.0.0.1:1/x?connect_timeout=1&user=p%40ss%20w%2Frd&password=p%40ss+w%2Frd",
		"Server=127.0.0.1,1;Dial Timeout=1;User ID=p@ss w/rd;Password=p@ss w/rd",
		"host=127.0.0.1 port=1 connect_timeout=1 user='p@ss w/rd' dbname='p@ss w/rd' password='p@ss w/rd'",
	} {
		said := fail(t, exitFailed, "stats", "--dsn", dsn)
		require.Regexp(t, "connect to (SQL Server|PostgreSQL) 127.0.0.1", said)
		for _, form := range []string{password, "p%40ss%20w%2Frd", "p%40ss+w%2Frd"} {
			require.NotContains(t, said, form)
		}
	}
}

func TestRedactionCoversEveryForm(t *testing.T) {
	a := &app{}
	_, err := a.parseSQLServer("--dsn", "sqlserver://sa:p%40ss%20w%2Frd@localhost", sqlServerURL)
	require.NoError(t, err)
	require.Equal(t, "login *** or *** or *** failed", a.redact("login p@ss w/rd or p%40ss%20w%2Frd or p%40ss+w%2Frd failed"))
}

func TestMissingFileIsNotMade(t *testing.T) {
	db := filepath.Join(t.TempDir(), "typing-error.db")
	require.Contains(t, fail(t, exitFailed, "stats", "--db", db), "does not exist; chanq migrate creates it")
	require.NoFileExists(t, db)
}

func TestAFileThatIsNoDatabaseIsNotChanged(t *testing.T) {
	const content = "Dear diary, this is more than a hundred bytes of text, so that SQLite reads a header from it and refuses."
	db := filepath.Join(t.TempDir(), "diary.txt")
	require.NoError(t, os.WriteFile(db, []byte(content), 0o644))
	require.Contains(t, fail(t, exitFailed, "migrate", "--db", db, "mail"), "--db: ")
	kept, err := os.ReadFile(db)
	require.NoError(t, err)
	require.Equal(t, content, string(kept))
}

func TestTheErrorOfAMissingQueueHasTheCommandToRun(t *testing.T) {
	db := newQueue(t, "mail")
	require.Contains(t, fail(t, exitFailed, "peek", "--db", db, "post"), "chanq migrate post")
}

func TestHelpHasExamples(t *testing.T) {
	for _, command := range (&app{}).root().Commands() {
		if command.Name() == "help" || command.Name() == "completion" {
			continue
		}
		r := succeed(t, "", command.Name(), "--help")
		require.Contains(t, r.out, "Usage:")
		if !command.HasSubCommands() {
			require.Contains(t, r.out, "Examples:", command.Name())
		}
	}
	require.Contains(t, succeed(t, "").out, "chanq demo")
}

func TestTheVersionSaysWhatAReportNeeds(t *testing.T) {
	require.Regexp(t, `^chanq (\(devel\)|v\S+), schema \d+, go\S+ \w+/\w+\n$`, succeed(t, "", "--version").out)
}

func TestMistypedNamesAreAnsweredWithTheNearest(t *testing.T) {
	db := newQueue(t, "orders")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"stat"}, `unknown command "stat"; did you mean chanq stats?`},
		{[]string{"recieve"}, "did you mean chanq receive?"},
		{[]string{"conf"}, "did you mean chanq configure?"},
		{[]string{"paak"}, "did you mean chanq peek?"},
		{[]string{"produce"}, `unknown command "produce"; chanq --help lists them`},
		{[]string{"stats", "--ouput", "json"}, "stats: unknown flag: --ouput; did you mean --output?"},
		{[]string{"stats", "--slot"}, "did you mean --slots?"},
		{[]string{"stats", "-z"}, "unknown shorthand flag: 'z' in -z; chanq stats --help lists the flags"},
		{[]string{"stats", "--db", db, "ordres"}, "chanq migrate ordres; did you mean orders?"},
		{[]string{"send", "--db", db, "order", "x"}, "did you mean orders?"},
	} {
		status := exitUsage
		if slices.Contains(c.args, db) {
			status = exitFailed
		}
		require.Contains(t, fail(t, status, c.args...), c.want+"\n", c.args)
	}
	require.NotContains(t, fail(t, exitFailed, "stats", "--db", db, "customers"), "did you mean")
}

// The words are those of the documents: shard, priority, poll.
func TestTheHelpUsesTheWordsOfTheDocuments(t *testing.T) {
	root := (&app{}).root()
	checked := 0
	everyCommand(root, func(cmd *cobra.Command) {
		require.NotRegexp(t, `(?i)\b(places?|lanes?|looks?)\b`, cmd.Short+cmd.Long+cmd.Example+cmd.LocalFlags().FlagUsages(), cmd.CommandPath())
		checked++
	})
	require.Greater(t, checked, 15)
}
