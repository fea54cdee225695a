package mssqltest_test

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

func TestTediousWorksWithTheEmulator(t *testing.T) {
	t.Parallel()
	node, modules := mssqltest.Tedious(t)
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
	speaks(t, mssqltest.Options{Clock: mssqltest.Stopped()}, nil, mssqltest.PyMSSQL(t), "freetds.py")
}

// speaks runs a script of testdata/clients against an emulator; each check that it reports is a subtest.
func speaks(t *testing.T, o mssqltest.Options, environment []string, program, script string) {
	t.Helper()
	srv := mssqltest.Start(t, o)
	host, port, err := net.SplitHostPort(srv.Addr())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, filepath.Join("testdata", "clients", script))
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
