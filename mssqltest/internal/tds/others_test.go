package tds

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Features that go-mssqldb ignores, and other drivers use.

// JDBC's driver and tedious wait for it.
func TestTheAnswerToAnAttentionIsAMessageBehindWhatItCut(t *testing.T) {
	began := make(chan struct{})
	h := &rawHandler{run: func(ctx context.Context, r *Request, w Results) error {
		if r.Tx.Op != TxRollback {
			close(began)
			<-ctx.Done()
			return w.TxRolledBack(7) // must not be lost
		}
		return nil
	}}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	c.send(packetBatch, batch("waitfor delay '1:00'"))
	<-began
	c.send(packetAttention, nil)
	require.Equal(t, reply{done: []uint16{doneError}, final: tokenDone, env: []byte{envTxRollback}}, c.reply())
	require.Equal(t, reply{done: []uint16{doneAttention}, final: tokenDone}, c.reply())
	c.send(packetTransaction, headers(8, 0, 0, 0))
	require.Equal(t, []uint16{0}, c.reply().done)
}

// JDBC's driver takes a count for that of a change only if the DONE has that kind.
func TestADoneTokenHasTheKindOfItsStatement(t *testing.T) {
	commands := []Command{Select, Insert, Delete, Update, Define}
	h := &rawHandler{run: func(_ context.Context, _ *Request, w Results) error {
		for i, command := range commands {
			if err := w.Done(End{Command: command, Rows: uint64(i), Counted: true, InProc: i%2 == 0}); err != nil {
				return err
			}
		}
		return w.Done(End{})
	}}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	c.send(packetBatch, batch("many"))
	require.Equal(t, commands, c.reply().commands)
}

// JDBC's driver finds its OUT parameters by the place.
func TestAReturnedValueHasThePlaceOfItsParameter(t *testing.T) {
	h := &rawHandler{run: func(_ context.Context, _ *Request, w Results) error {
		return w.ReturnValue(513, Param{Name: "@n", Type: sqltype.Type{Kind: sqltype.Int}, Value: int64(1)})
	}}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	c.send(packetRPC, headers(procedure("p")...))
	msg, err := c.in.read()
	require.NoError(t, err)
	require.Equal(t, []byte{tokenReturnValue, 1, 2, 2, '@', 0, 'n', 0}, msg.payload[:8])
}

func TestASessionReportsItsDatabase(t *testing.T) {
	h := &rawHandler{run: func(_ context.Context, _ *Request, w Results) error { return w.Database("chanq", "master") }}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	c.send(packetBatch, batch("USE chanq"))
	require.Equal(t, []byte{envDatabase}, c.reply().env)
}

// FreeTDS declares its parameters as ntext, text and image.
func TestTextBeforeMaxIsAlsoAParameter(t *testing.T) {
	h := &rawHandler{}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	long := func(token byte, collated bool, value []byte) []byte {
		b := binary.LittleEndian.AppendUint32([]byte{0, 0, token}, 1) // the value is longer
		if collated {
			b = append(b, collation[:]...)
		}
		if value == nil {
			return binary.LittleEndian.AppendUint32(b, longNull)
		}
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(value))), value...)
	}
	large := bytes.Repeat([]byte{7}, 3000)
	c.send(packetRPC, bytes.Join([][]byte{
		headers(procedure("p")...),
		long(typeNText, true, appendUTF16(nil, "å€😀")), long(typeText, true, []byte{0xe5, 0x80}),
		long(typeImage, false, large), long(typeNText, true, nil), long(typeImage, false, nil), long(typeText, true, []byte{}),
	}, nil))
	require.Equal(t, []uint16{0}, c.reply().done)
	sized := func(k sqltype.Kind) sqltype.Type { return sqltype.Type{Kind: k, Size: sqltype.Max} }
	require.Equal(t, []Param{
		{Type: sized(sqltype.NVarChar), Value: "å€😀"}, {Type: sized(sqltype.VarChar), Value: "å€"},
		{Type: sized(sqltype.VarBinary), Value: large}, {Type: sized(sqltype.NVarChar)}, {Type: sized(sqltype.VarBinary)},
		{Type: sized(sqltype.VarChar), Value: ""},
	}, h.seen()[0].Params)
}

// JDBC's encrypt=false.
func TestAClientThatAsksForNoEncryptionEncryptsItsLoginAlone(t *testing.T) {
	c := dialRaw(t, serveRaw(t, &rawHandler{}, Options{TLS: anyCertificate(t)}))
	require.Equal(t, encryptOff, c.prelogin(encryptOff))
	wrapped := &handshakeConn{Conn: c.conn, in: c.in, out: &messageWriter{w: c.conn, packetType: packetPrelogin, maxPacket: defaultPacket}}
	secured := tls.Client(wrapped, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	require.NoError(t, secured.Handshake())
	wrapped.bare = true
	// The rest of a login that takes two packets is not encrypted either, and can be sent together with the first.
	login := login7Message(tds74, 0)
	_, err := secured.Write(packet(packetLogin, 0, login[:40]))
	require.NoError(t, err)
	c.write(packet(packetLogin, statusEOM, login[40:]))
	require.Equal(t, []uint16{0}, c.reply().done)
	c.send(packetBatch, batch("select 1"))
	require.Equal(t, []uint16{0}, c.reply().done)
}

func TestTheEncryptionOptionsOfAClientAreAnsweredAsDocumented(t *testing.T) {
	for _, c := range []struct {
		certificate    bool
		says, answered encryption
	}{
		{false, encryptOff, encryptNotSupported},
		{false, encryptOn, encryptNotSupported},
		{true, encryptNotSupported, encryptNotSupported},
		{true, encryptOff, encryptOff},
		{true, encryptOn, encryptOn},
		{true, encryptRequired, encryptOn},
	} {
		options := Options{}
		if c.certificate {
			options.TLS = anyCertificate(t)
		}
		require.Equal(t, c.answered, dialRaw(t, serveRaw(t, &rawHandler{}, options)).prelogin(c.says), c)
	}
}

// refusing refuses every login.
type refusing struct{ err error }

func (r refusing) Login(context.Context, Login) (Session, error) { return nil, r.err }

func TestALoginMayBeRefusedForSeveralReasons(t *testing.T) {
	h := refusing{errors.Join(&sqltype.Error{Number: 4060, Class: 11, State: 1}, &sqltype.Error{Number: 18456, Class: 14, State: 1})}
	c := dialRaw(t, serveRaw(t, h, Options{}))
	c.greet()
	c.send(packetLogin, login7Message(tds74, 0))
	require.Equal(t, []int32{4060, 18456}, c.reply().errors)
	c.requireClosed()
}

// anyCertificate returns a certificate that no client checks.
func anyCertificate(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
