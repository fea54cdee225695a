package testdb

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
)

// The tests on the SQL Server that the variable names run without the long tier. If it does not answer they fail, and are not skipped.
func TestAServerThatDoesNotAnswerFailsItsTests(t *testing.T) {
	for name, silent := range map[string]bool{"refuses connections": false, "is silent": true} {
		t.Run(name, func(t *testing.T) {
			if silent {
				Long(t) // the limit is 8 s
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			if !silent {
				require.NoError(t, ln.Close())
			}
			self, err := os.Executable()
			require.NoError(t, err)
			// Without the limit a test would wait for longer than this timeout, or be skipped.
			cmd := exec.CommandContext(Soon(t), self, "-test.run=^TestEnginesMatchTheirDescription$/^sqlserver$", "-test.v", "-test.timeout=30s")
			cmd.Env = append(os.Environ(), Tier+"=", SQLServerVariable+"=sqlserver://sa:none@"+ln.Addr().String()+"?database=master&encrypt=disable")
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.Contains(t, string(out), "--- FAIL: TestEnginesMatchTheirDescription/sqlserver")
			require.Contains(t, string(out), "the server of CHANQ_TEST_SQLSERVER does not answer")
		})
	}
}

// On this server another session has each database when it is first needed.
func TestATestDatabaseIsCreatedAndDroppedWhileOthersExist(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	server := mssqltest.Start(t, mssqltest.Options{OnRequest: func(r mssqltest.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, regexp.MustCompile(`chanq_test_\w+`).ReplaceAllString(r.Text, "x"))
	}})
	for text, number := range map[string]int32{"CREATE DATABASE": 1807, "DROP DATABASE": 3702} {
		match := func(r mssqltest.Request) bool { return strings.Contains(r.Text, text) }
		server.Inject(mssqltest.Fault{Match: match, Error: number})
		server.Inject(mssqltest.Fault{Match: match, Ignore: true})
	}
	t.Setenv(snapshotVariable, "")
	t.Setenv(lockingVariable, "")
	t.Setenv(SQLServerPrefixVariable, "chanq_test_mine")
	t.Run("test", func(t *testing.T) {
		require.Contains(t, createDatabaseOn(t, server.DSN()), "database=chanq_test_mine_")
	})
	mu.Lock()
	defer mu.Unlock()
	const drop = "USE [x]; ALTER DATABASE [x] SET SINGLE_USER WITH ROLLBACK IMMEDIATE; USE master; DROP DATABASE [x]"
	require.Equal(t, []string{"CREATE DATABASE [x]", "CREATE DATABASE [x]", drop, drop}, seen)
}
