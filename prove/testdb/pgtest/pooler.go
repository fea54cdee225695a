package pgtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Pooler is a PgBouncer of one test, between the test and a database.
type Pooler struct {
	dir     string
	config  *pgx.ConnConfig
	process *exec.Cmd
	log     bytes.Buffer // read after it has ended
	ended   chan error
}

// poolerPort is part of the name of its socket. It listens on no network.
const poolerPort = 6543

// StartPooler starts a PgBouncer in front of a database ("transaction" or "statement" or "session" is its pool_mode).
// It ends with the test. Without PgBouncer on this machine the test is skipped.
func StartPooler(t testing.TB, database *pgx.ConnConfig, mode string) *Pooler {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // Debian's path, which is not in the PATH of users
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("NOT TESTED behind a pooler: pgbouncer is not on this machine (apt-get install pgbouncer)")
	}
	dir, err := os.MkdirTemp("", "chanq-pooler-") // of another user: t.TempDir is in a private one
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	password := ""
	if database.Password != "" {
		password = fmt.Sprintf(" password='%s'", database.Password)
	}
	settings := fmt.Sprintf(`[databases]
%[1]s = host=%[2]s port=%[3]d dbname=%[1]s user=%[4]s%[5]s
[pgbouncer]
unix_socket_dir = %[6]s
listen_addr =
listen_port = %[7]d
auth_type = any
pool_mode = %[8]s
ignore_startup_parameters = extra_float_digits
`, database.Database, database.Host, database.Port, database.User, password, dir, poolerPort, mode)
	if os.Geteuid() == 0 { // it refuses to run as root
		owner, err := user.Lookup("postgres")
		if err != nil {
			owner, err = user.Lookup("nobody")
		}
		require.NoError(t, err)
		uid, _ := strconv.Atoi(owner.Uid)
		require.NoError(t, os.Chown(dir, uid, -1))
		settings += "user = " + owner.Username + "\n"
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(file, []byte(settings), 0o644))
	p := &Pooler{dir: dir, process: exec.Command(program, file), ended: make(chan error, 1)}
	p.config = database.Copy()
	p.config.Host, p.config.Port, p.config.Fallbacks = dir, poolerPort, nil
	p.process.Stderr = &p.log
	require.NoError(t, p.process.Start())
	go func() { p.ended <- p.process.Wait() }() // ends with the process
	t.Cleanup(p.Stop)
	socket := filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", poolerPort))
	for began := time.Now(); ; {
		select {
		case err := <-p.ended:
			p.ended <- err
			require.Fail(t, "pgbouncer has ended", "%v\n%s", err, p.log.String())
		case <-time.After(10 * time.Millisecond):
		}
		if conn, err := net.Dial("unix", socket); err == nil { // the file exists before the pooler listens
			_ = conn.Close()
			return p
		}
		require.Less(t, time.Since(began), 2*time.Minute, "pgbouncer listens")
	}
}

// Config returns the settings for connections through it: without prepared statements, which PgBouncer before 1.21 does
// not support.
func (p *Pooler) Config() *pgx.ConnConfig {
	config := p.config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return config
}

// Stop ends it, with all connections. It can be called repeatedly.
func (p *Pooler) Stop() {
	_ = p.process.Process.Kill()
	p.ended <- <-p.ended
}
