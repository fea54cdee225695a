package tds_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

func TestTheLoginHasTheNamesOfTheClient(t *testing.T) {
	h := &fakeHandler{run: nothing}
	s := serve(t, h, tds.Options{})
	db := open(t, s, "app name=chanq test", "workstation id=bänk", "database=köer")
	require.NoError(t, db.PingContext(within(t)))
	want := tds.Login{User: "sa", Password: "päss word€", Database: "köer", AppName: "chanq test", HostName: "bänk", ODBC: true}
	require.Equal(t, []tds.Login{want}, h.logins)
	require.Equal(t, want, s.Conns()[0].Login())
}

func TestARefusedLoginReportsTheReason(t *testing.T) {
	for _, e := range []sqltype.Error{
		{Number: 18456, State: 8, Class: 14, Message: "Login failed for user 'sa'."},
		{Number: 4060, State: 1, Class: 11, Message: `Cannot open database "chanq" requested by the login. The login failed.`},
		{Number: 40613, State: 1, Class: 17, Message: "Database 'chanq' on server is not currently available."},
	} {
		h := &fakeHandler{run: nothing, admit: func(tds.Login) error { return &e }}
		s := serve(t, h, tds.Options{})
		got := mssqlError(t, open(t, s).PingContext(within(t)))
		require.Equal(t, e.Number, got.Number)
		require.Equal(t, e.State, got.State)
		require.Equal(t, e.Class, got.Class)
		require.Contains(t, got.Message, e.Message)
		require.Eventually(t, func() bool { return len(s.Conns()) == 0 }, patience, tick)
	}
}

func TestAnErrorOfTheHandlerAtLoginIsSent(t *testing.T) {
	h := &fakeHandler{run: nothing, admit: func(tds.Login) error { return errors.New("no such engine") }}
	require.Contains(t, mssqlError(t, open(t, serve(t, h, tds.Options{})).PingContext(within(t))).Message, "no such engine")
}

func TestRefuseRefusesLoginsUntilItIsLifted(t *testing.T) {
	s := serve(t, &fakeHandler{run: nothing}, tds.Options{})
	db := open(t, s)
	db.SetMaxIdleConns(0)
	s.Refuse(&sqltype.Error{Number: 40613, State: 1, Class: 17, Message: "not currently available"})
	require.Equal(t, int32(40613), mssqlError(t, db.PingContext(within(t))).Number)
	s.Refuse(nil)
	require.NoError(t, db.PingContext(within(t)))
}

func TestMessagesOfEverySizeCrossEveryPacketSize(t *testing.T) {
	for _, size := range []string{"512", "513", "4096", "32767"} {
		for _, encrypt := range []string{"disable", "true"} {
			t.Run(size+" encrypt="+encrypt, func(t *testing.T) {
				s := serve(t, &fakeHandler{run: echo(2)}, tds.Options{TLS: certificate(t)})
				db := open(t, s, "packet size="+size, "encrypt="+encrypt, "TrustServerCertificate=true")
				// These are around every boundary at which a packet or a buffer ends.
				for _, n := range []int{1, 400, 430, 450, 460, 470, 480, 490, 500, 504, 4000, 4088, 8000, 16000, 16368, 32700, 32767, 100_000} {
					sent := strings.Repeat("x", n)
					var back any
					require.NoError(t, queryOne(within(t), db, &back, "select @p1", sent))
					require.Equal(t, sent, back)
				}
			})
		}
	}
}

func TestEncryptionFollowsTheOptionsOfBothSides(t *testing.T) {
	plain := serve(t, &fakeHandler{run: nothing}, tds.Options{})
	secured := serve(t, &fakeHandler{run: nothing}, tds.Options{TLS: certificate(t)})
	require.NoError(t, open(t, secured, "encrypt=true", "TrustServerCertificate=true").PingContext(within(t)))
	require.NoError(t, open(t, secured, "encrypt=false", "TrustServerCertificate=true").PingContext(within(t)))
	require.NoError(t, open(t, secured, "encrypt=disable").PingContext(within(t)))
	require.NoError(t, open(t, plain, "encrypt=false").PingContext(within(t)))
	require.ErrorContains(t, open(t, plain, "encrypt=true").PingContext(within(t)), "does not support encryption")
	require.ErrorContains(t, open(t, secured, "encrypt=true").PingContext(within(t)), "certificate")
}

func TestAnAttentionCrossesAnEncryptedConnection(t *testing.T) {
	b := newBlocker()
	s := serve(t, &fakeHandler{run: b.run}, tds.Options{TLS: certificate(t)})
	db := open(t, s, "encrypt=true", "TrustServerCertificate=true")
	_, err := db.ExecContext(b.context(t), "waitfor delay '1:00'")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-b.causes, tds.ErrAttention)
	_, err = db.ExecContext(within(t), "select 1")
	require.NoError(t, err)
	require.Equal(t, 51, s.Conns()[0].ID())
}

// certificate returns a self-signed certificate for loopback.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
