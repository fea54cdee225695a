package testdb

import (
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/sqltype"
	"github.com/chanq/chanq/mssqltest/tds"
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

// busyServer is a server on which another session has each database when it is first needed.
type busyServer struct {
	mu   sync.Mutex
	seen []string
}

func (s *busyServer) Login(context.Context, tds.Login) (tds.Session, error) { return s, nil }

func (s *busyServer) Close() {}

func (s *busyServer) Run(_ context.Context, r *tds.Request, w tds.Results) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, regexp.MustCompile(`chanq_test_\w+`).ReplaceAllString(r.Text, "x"))
	switch len(s.seen) {
	case 1:
		return w.Message(&sqltype.Error{Number: 1807, State: 3, Class: 16, Message: "Could not obtain exclusive lock on database 'model'. Retry the operation later."})
	case 3:
		return w.Message(&sqltype.Error{Number: 3702, State: 4, Class: 16, Message: "Cannot drop database \"x\" because it is currently in use."})
	}
	return nil
}

func TestATestDatabaseIsCreatedAndDroppedWhileOthersExist(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	busy := &busyServer{}
	server := tds.Serve(ln, busy, tds.Options{})
	t.Setenv(snapshotVariable, "")
	t.Run("test", func(t *testing.T) {
		require.Contains(t, createDatabaseOn(t, "sqlserver://sa:none@"+ln.Addr().String()+"?database=master&encrypt=disable"), "database=chanq_test_")
	})
	require.NoError(t, server.Close())
	const drop = "USE [x]; ALTER DATABASE [x] SET SINGLE_USER WITH ROLLBACK IMMEDIATE; USE master; DROP DATABASE [x]"
	require.Equal(t, []string{"CREATE DATABASE [x]", "CREATE DATABASE [x]", drop, drop}, busy.seen)
}
