package foreign

import (
	"bufio"
	"bytes"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
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
		node, modules := mssqltest.Tedious(t)
		runsBy(t, node, "tedious.js", modules)
	})
	t.Run("pymssql", func(t *testing.T) {
		t.Parallel()
		runsBy(t, mssqltest.PyMSSQL(t), "freetds.py")
	})
}

// runsBy runs the document on the emulator with a script of testdata. All batches use one process, since a driver can
// take a second to load.
func runsBy(t *testing.T, program, script string, environment ...string) {
	s := open(t, testdb.EmulatorSocket)
	u, err := url.Parse(s.Address)
	require.NoError(t, err)
	password, _ := u.User.Password()
	cmd := exec.CommandContext(s.Soon(), program, filepath.Join("testdata", script))
	cmd.Env = append(append(os.Environ(), "CHANQ_HOST="+u.Hostname(), "CHANQ_PORT="+u.Port(), "CHANQ_USER="+u.User.Username(),
		"CHANQ_PASSWORD="+password, "CHANQ_DATABASE="+u.Query().Get("database")), environment...)
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
