package foreign

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
)

// Independent drivers, whose requests and expectations this repository does not control.

const drivers = "testdata/drivers"

// tedious finds Node.js, and the environment variable with which Node.js finds tedious: in CHANQ_TEST_NODE_MODULES or
// where npm puts it. Without them the test is skipped.
func tedious(t *testing.T) (node, variable string) {
	t.Helper()
	modules := os.Getenv("CHANQ_TEST_NODE_MODULES")
	if modules == "" {
		modules = filepath.Join(drivers, "node_modules")
	}
	modules, err := filepath.Abs(modules)
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(modules, "tedious")); err != nil {
		t.Skip("NOT TESTED with tedious: npm ci in prove/foreign/testdata/drivers installs it")
	}
	node, err = exec.LookPath("node")
	if err != nil {
		t.Skip("NOT TESTED with tedious: Node.js is not here")
	}
	return node, "NODE_PATH=" + modules
}

// pyMSSQL finds a Python that has pymssql, as Debian packages it or as PyPI does. Without one the test is skipped.
func pyMSSQL(t *testing.T) (python string) {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import pymssql").Run() == nil {
			return python
		}
	}
	t.Skip("NOT TESTED with FreeTDS: pymssql is not here (Debian's python3-pymssql)")
	return ""
}

// jdbc finds Java, and Microsoft's driver: in CHANQ_TEST_JDBC or where Maven puts it. Without them the test is skipped.
func jdbc(t *testing.T) (java, jars string) {
	t.Helper()
	folder := os.Getenv("CHANQ_TEST_JDBC")
	if folder == "" {
		folder = filepath.Join(drivers, "target", "dependency")
	}
	if found, _ := filepath.Glob(filepath.Join(folder, "mssql-jdbc-*.jar")); len(found) == 0 {
		t.Skip("NOT TESTED with JDBC: mvn dependency:copy-dependencies in prove/foreign/testdata/drivers installs it")
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("NOT TESTED with JDBC: Java is not here")
	}
	return java, filepath.Join(folder, "*")
}

func TestTediousWorksWithTheEmulator(t *testing.T) {
	t.Parallel()
	node, modules := tedious(t)
	for name, c := range map[string]struct {
		certificate bool
		encrypt     string
	}{
		"not encrypted":       {false, "false"},
		"the login encrypted": {true, "false"},
		"all encrypted":       {true, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			o := mssqltest.Options{Clock: mssqltest.Stopped()}
			if c.certificate {
				o.TLS = certificate(t)
			}
			speaks(t, o, []string{modules, "CHANQ_ENCRYPT=" + c.encrypt}, node, "tedious.js")
		})
	}
}

func TestFreeTDSWorksWithTheEmulator(t *testing.T) {
	t.Parallel()
	speaks(t, mssqltest.Options{Clock: mssqltest.Stopped()}, nil, pyMSSQL(t), "freetds.py")
}

// speaks runs a script of testdata/drivers against an emulator; each check that it reports is a subtest.
func speaks(t *testing.T, o mssqltest.Options, environment []string, program, script string) {
	t.Helper()
	srv := mssqltest.Start(t, o)
	host, port, err := net.SplitHostPort(srv.Addr())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, filepath.Join(drivers, script))
	cmd.Env = append(os.Environ(), "CHANQ_HOST="+host, "CHANQ_PORT="+port, "CHANQ_PASSWORD=emulator-password")
	cmd.Env = append(cmd.Env, environment...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	guard := time.AfterFunc(2*time.Minute, srv.KillAll) // for a driver that waits for an answer that is never sent
	defer guard.Stop()
	require.NoError(t, cmd.Run(), &complaints)
	checks := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := len(checks) - 1
	require.Equal(t, "ok all "+strconv.Itoa(last), checks[last], "the script did not reach its end:\n%s", &out)
	for _, line := range checks[:last] {
		name, failed := strings.CutPrefix(line, "not ok ")
		if !failed {
			name = strings.TrimPrefix(line, "ok ")
		}
		name, why, _ := strings.Cut(name, ": ")
		t.Run(name, func(t *testing.T) { require.False(t, failed, why) })
	}
}

// certificate returns a self-signed certificate.
func certificate(t *testing.T) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
