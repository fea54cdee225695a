package foreign

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// client is a program that runs a script. It reports errors on its standard error, or by its status.
type client struct {
	name   string
	engine testdb.Engine
	args   func(address string) []string
	// end is the required end of a script.
	end string
	// wrong finds an error in the program's output.
	wrong *regexp.Regexp
}

var clients = []client{
	{name: "sqlite3", engine: testdb.SQLite, args: func(path string) []string { return []string{"-bail", "-cmd", ".timeout 10000", path} }},
	{name: "psql", engine: testdb.Postgres, args: func(dsn string) []string {
		return []string{"--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", dsn}
	}},
	{name: "tsql", engine: testdb.EmulatorSocket, args: tsqlArgs, end: "\nGO\n", wrong: regexp.MustCompile(`(?m)^Msg (\d+) .*`)},
}

func tsqlArgs(dsn string) []string {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil
	}
	password, _ := u.User.Password()
	return []string{"-H", u.Hostname(), "-p", u.Port(), "-U", u.User.Username(), "-P", password, "-D", u.Query().Get("database"), "-o", "fqh"}
}

func TestEveryStatementOfTheDocumentRunsWithOtherPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.name); err != nil {
				t.Skipf("NOT TESTED by %s: it is not installed (.ci/run installs it)", c.name)
			}
			s := open(t, c.engine)
			s.run(func(text string) {
				if c.end != "" && !strings.HasSuffix(text, c.end) {
					text = strings.TrimSuffix(text, "\n") + c.end
				}
				ctx, cancel := context.WithTimeout(s.Soon(), testdb.Patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, c.name, c.args(s.Address)...)
				cmd.Stdin = strings.NewReader(text)
				cmd.Env = append(os.Environ(), "PGCLIENTENCODING=UTF8", "TDSVER=7.4", "LC_ALL=C.UTF-8")
				out, err := cmd.CombinedOutput()
				require.NoError(s, err, "%s\n%s", text, out)
				if c.wrong != nil {
					require.NotRegexp(s, c.wrong, string(out), text)
				}
			})
		})
	}
}

func TestEveryStatementOfTheDocumentRunsWithDriversOfOtherLanguages(t *testing.T) {
	t.Parallel()
	t.Run("tedious", func(t *testing.T) {
		t.Parallel()
		node, modules := tedious(t)
		runsBy(t, node, "tedious.js", modules)
	})
	t.Run("pymssql", func(t *testing.T) {
		t.Parallel()
		runsBy(t, pyMSSQL(t), "freetds.py")
	})
}

// environment tells a program where the database is.
func (s *shop) environment(more ...string) []string {
	u, err := url.Parse(s.Address)
	require.NoError(s, err)
	password, _ := u.User.Password()
	return append(append(os.Environ(), "CHANQ_HOST="+u.Hostname(), "CHANQ_PORT="+u.Port(), "CHANQ_USER="+u.User.Username(),
		"CHANQ_PASSWORD="+password, "CHANQ_DATABASE="+u.Query().Get("database"), "LC_ALL=C.UTF-8"), more...)
}

// Applications in other languages send 200 messages by INSERT and 200 by the procedure. Each is delivered once.
func TestAllMessagesOfApplicationsInOtherLanguagesAreDelivered(t *testing.T) {
	t.Parallel()
	const count = 200
	sends := func(t *testing.T, program func(*shop) *exec.Cmd) {
		t.Parallel()
		s := open(t, testdb.EmulatorSocket)
		cmd := program(s)
		cmd.Env = s.environment(append(cmd.Env, fmt.Sprint("CHANQ_COUNT=", count))...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Msg ", "tsql reports errors so")
		seen := map[order]int{}
		for _, l := range testdb.Take(s, testdb.Start(s, s.orders, chanq.ConsumerConfig{}), 2*count) {
			seen[l.Body]++
			require.NoError(t, l.Ack())
		}
		for n := range count {
			for _, by := range []string{"insert", "procedure"} {
				require.Equal(t, 1, seen[order{n, "Łódź by " + by}], "%d by %s", n, by)
			}
		}
	}
	t.Run("tedious", func(t *testing.T) {
		node, modules := tedious(t)
		sends(t, func(s *shop) *exec.Cmd {
			cmd := exec.CommandContext(s.Soon(), node, filepath.Join(drivers, "send.js"))
			cmd.Env = []string{modules}
			return cmd
		})
	})
	t.Run("pymssql", func(t *testing.T) {
		python := pyMSSQL(t)
		sends(t, func(s *shop) *exec.Cmd {
			return exec.CommandContext(s.Soon(), python, filepath.Join(drivers, "send.py"))
		})
	})
	t.Run("jdbc", func(t *testing.T) {
		java, jars := jdbc(t)
		sends(t, func(s *shop) *exec.Cmd {
			return exec.CommandContext(s.Soon(), java, "-Dfile.encoding=UTF-8", "-cp", jars, filepath.Join(drivers, "Send.java"))
		})
	})
	for _, library := range []string{"sqlclient", "dapper", "ef"} {
		t.Run(library, func(t *testing.T) {
			program := os.Getenv("CHANQ_TEST_DOTNET")
			if program == "" {
				t.Skip("NOT TESTED with .NET: the workflow clients builds its program")
			}
			sends(t, func(s *shop) *exec.Cmd { return exec.CommandContext(s.Soon(), "dotnet", program, library) })
		})
	}
	t.Run("tsql", func(t *testing.T) {
		if _, err := exec.LookPath("tsql"); err != nil {
			t.Skip("NOT TESTED by tsql: it is not installed (.ci/run installs it)")
		}
		sends(t, func(s *shop) *exec.Cmd {
			var text strings.Builder
			for n := range count {
				fmt.Fprintf(&text, "INSERT INTO dbo.chanq_orders (body) VALUES (CONVERT(varbinary(max), N'{\"n\": %d, \"name\": \"Łódź by insert\"}'))\nGO\n", n)
				fmt.Fprintf(&text, "EXEC dbo.chanq_orders__send N'{\"n\": %d, \"name\": \"Łódź by procedure\"}'\nGO\n", n)
			}
			cmd := exec.CommandContext(s.Soon(), "tsql", tsqlArgs(s.Address)...)
			cmd.Stdin, cmd.Env = strings.NewReader(text.String()), []string{"TDSVER=7.4"}
			return cmd
		})
	})
}

// runsBy runs the document on the emulator with a script of testdata. All batches use one process, since a driver can
// take a second to load.
func runsBy(t *testing.T, program, script string, environment ...string) {
	s := open(t, testdb.EmulatorSocket)
	cmd := exec.CommandContext(s.Soon(), program, filepath.Join("testdata", script))
	cmd.Env = s.environment(environment...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	answers := bufio.NewReader(out)
	s.run(func(text string) {
		for batch := range strings.SplitSeq(strings.TrimSuffix(text, "\nGO\n"), "\nGO\n") {
			_, err := in.Write([]byte(strings.TrimSuffix(batch, "\n") + "\nGO\n"))
			require.NoError(t, err, batch)
			if answer, _ := answers.ReadString('\n'); answer != "ok\n" {
				require.Fail(t, batch, "%v\n%s", cmd.Wait(), &complaints)
			}
		}
	})
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait(), &complaints)
}
