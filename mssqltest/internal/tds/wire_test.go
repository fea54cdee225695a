package tds

import (
	"bytes"
	"context"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func TestSeveralCallsInOneMessageRunInOrder(t *testing.T) {
	h := &rawHandler{run: func(_ context.Context, r *Request, w Results) error {
		if r.Proc == "dbo.fails" {
			if err := w.Message(&sqltype.Error{Number: 547, Class: 16, State: 0, Message: "constraint"}); err != nil {
				return err
			}
		}
		if err := w.Done(End{Rows: 1, Counted: true, InProc: true}); err != nil {
			return err
		}
		return w.ReturnStatus(0)
	}}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	byNumber := []byte{0xff, 0xff, 11, 0, 0, 0}
	payload := headers(bytes.Join([][]byte{byNumber, procedure("dbo.fails"), procedure("dbo.third")}, []byte{callSeparator})...)
	c.write(packet(packetRPC, statusEOM|statusResetSkipTran, payload))
	got := c.reply()
	require.Equal(t, []uint16{
		doneCount | doneMore, doneMore, // DONEINPROC and DONEPROC of the first
		doneCount | doneError | doneMore, doneError | doneMore, // does not end the message
		doneCount | doneMore, 0,
	}, got.done)
	require.Equal(t, byte(tokenDoneProc), got.final)
	require.Equal(t, []byte{envReset}, got.env)
	require.Equal(t, []int32{547}, got.errors)

	seen := h.seen()
	require.Len(t, seen, 3)
	require.Equal(t, []string{"sp_prepare", "dbo.fails", "dbo.third"}, []string{seen[0].Proc, seen[1].Proc, seen[2].Proc})
	for i, r := range seen {
		require.Equal(t, RPC, r.Kind)
		require.Equal(t, headerBytes+len(payload), r.Bytes)
		require.Equal(t, i == 0, r.Reset)
		require.Equal(t, i == 0, r.KeepTx)
	}
}

func TestAMessageThatTheClientWithdrawsIsNotRun(t *testing.T) {
	h := &rawHandler{}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	c.write(packet(packetBatch, 0, batch("delete q ")), packet(packetBatch, statusEOM|statusIgnore, appendUTF16(nil, "where")))
	require.Equal(t, []uint16{doneError}, c.reply().done)
	require.Empty(t, h.seen())
	c.send(packetBatch, batch("select 1"))
	require.Equal(t, []uint16{0}, c.reply().done)
	require.Len(t, h.seen(), 1)
}

func TestABatchInManyPacketsIsOneRequest(t *testing.T) {
	h := &rawHandler{}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	text := strings.Repeat("select 1; ", 2000)
	payload := batch(text)
	var packets [][]byte
	for len(payload) > 4000 {
		packets = append(packets, packet(packetBatch, 0, payload[:4000]))
		payload = payload[4000:]
	}
	packets = append(packets, packet(packetBatch, statusEOM, payload))
	c.write(packets...)
	require.Equal(t, []uint16{0}, c.reply().done)
	require.Equal(t, text, h.seen()[0].Text)
	require.Equal(t, len(bytes.Join(packets, nil)), h.seen()[0].Bytes)
}

func TestAnAttentionThatFindsNothingIsAcknowledged(t *testing.T) {
	c := loginRaw(t, serveRaw(t, &rawHandler{}, Options{}))
	for range 3 {
		c.send(packetAttention, nil)
		require.Equal(t, []uint16{doneAttention}, c.reply().done)
		c.send(packetBatch, batch("select 1"))
		require.Equal(t, []uint16{0}, c.reply().done)
	}
}

// In any order of request and attention, the client reads an answer, one acknowledgement in a separate message, and
// nothing after it.
func TestAnAttentionIsAcknowledgedOnceWheneverItComes(t *testing.T) {
	c := loginRaw(t, serveRaw(t, &rawHandler{}, Options{}))
	for range 200 {
		c.write(packet(packetBatch, statusEOM, batch("select 1")), packet(packetAttention, statusEOM, nil))
		require.Contains(t, [][]uint16{{0}, {doneError}}, c.reply().done)
		require.Equal(t, []uint16{doneAttention}, c.reply().done)
	}
	c.send(packetBatch, batch("select 1"))
	require.Equal(t, []uint16{0}, c.reply().done)
}

func TestRequestsAheadOfTheirAnswersQueueUpToALimit(t *testing.T) {
	release := make(chan struct{})
	h := &rawHandler{run: func(ctx context.Context, _ *Request, _ Results) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	s := serveRaw(t, h, Options{})
	c := loginRaw(t, s)
	for range maxQueued {
		c.send(packetBatch, batch("select 1"))
	}
	close(release)
	for range maxQueued {
		require.Equal(t, []uint16{0}, c.reply().done)
	}
	require.Len(t, h.seen(), maxQueued)

	release = make(chan struct{}) // nothing runs: the requests of the loop are done
	flood := packet(packetBatch, statusEOM, batch("select 1"))
	c.write(bytes.Repeat(flood, maxQueued+2))
	c.requireClosed()
}

func TestTransactionManagerRequests(t *testing.T) {
	fail := false
	h := &rawHandler{run: func(_ context.Context, r *Request, w Results) error {
		switch {
		case fail:
			return w.Message(&sqltype.Error{Number: 3902, Class: 16, State: 1, Message: "no transaction"})
		case r.Tx.Op == TxBegin:
			return w.TxBegan(9)
		case r.Tx.Op == TxCommit:
			return w.TxCommitted(8)
		case r.Tx.Op == TxRollback:
			return w.TxRolledBack(8)
		}
		return nil
	}}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	name := append([]byte{4}, appendUTF16(nil, "tx")...) // counted in bytes
	request := func(op byte, rest ...byte) reply {
		before := len(h.seen())
		c.send(packetTransaction, headers(append([]byte{op, 0}, rest...)...))
		got := c.reply()
		require.Greater(t, len(h.seen()), before)
		return got
	}
	require.Equal(t, reply{done: []uint16{0}, final: tokenDone, env: []byte{envTxBegin}}, request(5, append([]byte{5}, name...)...))
	require.Equal(t, reply{done: []uint16{0}, final: tokenDone}, request(9, name...))
	require.Equal(t, reply{done: []uint16{0}, final: tokenDone, env: []byte{envTxRollback}}, request(8, append(name, 0)...))
	commitAndBegin := append(append(append([]byte{}, name...), 1, 4), name...)
	require.Equal(t, reply{done: []uint16{doneMore, 0}, final: tokenDone, env: []byte{envTxCommit, envTxBegin}}, request(7, commitAndBegin...))
	var got []TxRequest
	for _, r := range h.seen() {
		require.Equal(t, Transaction, r.Kind)
		got = append(got, r.Tx)
	}
	require.Equal(t, []TxRequest{
		{Op: TxBegin, Name: "tx", Isolation: 5},
		{Op: TxSave, Name: "tx"},
		{Op: TxRollback, Name: "tx"},
		{Op: TxCommit, Name: "tx"}, {Op: TxBegin, Name: "tx", Isolation: 4},
	}, got)

	fail = true
	require.Equal(t, reply{done: []uint16{doneError}, final: tokenDone, errors: []int32{3902}, class: 16}, request(7, commitAndBegin...))
	require.Len(t, h.seen(), len(got)+1, "the transaction after a failed commit does not begin")
}

func TestUnsupportedRequestsAreRefusedAndTheConnectionStaysUsable(t *testing.T) {
	const variant, table, nameless = 0x62, 0xf3, 0
	for name, c := range map[string]struct {
		packetType byte
		payload    []byte
		number     int32
	}{
		"bulk load":              {packetBulkLoad, []byte{tokenColMetadata, 0, 0}, 50000},
		"money":                  {packetRPC, headers(append(procedure("p"), nameless, 0, 0x3c, 0, 0, 0, 0, 0, 0, 0, 0)...), 8009},
		"sql_variant":            {packetRPC, headers(append(procedure("p"), nameless, 0, variant, 1, 2, 3)...), 8009},
		"table-valued parameter": {packetRPC, headers(append(procedure("p"), nameless, 0, table, 0, 0, 1, 't', 0xff, 0xff, 0, 0)...), 8009},
	} {
		t.Run(name, func(t *testing.T) {
			h := &rawHandler{}
			client := loginRaw(t, serveRaw(t, h, Options{}))
			client.send(c.packetType, c.payload)
			got := client.reply()
			require.Equal(t, []int32{c.number}, got.errors)
			require.Equal(t, []uint16{doneError}, got.done)
			client.send(packetBatch, batch("select 1"))
			require.Equal(t, []uint16{0}, client.reply().done)
			require.Len(t, h.seen(), 1)
		})
	}
}

func TestMalformedMessagesEndTheConnectionWithAReason(t *testing.T) {
	call := func(params ...byte) []byte { return headers(append(procedure("p"), params...)...) }
	one := func(packetType byte, payload []byte) []byte { return packet(packetType, statusEOM, payload) }
	for name, sent := range map[string][]byte{
		"unknown packet type":           one(99, nil),
		"second login":                  one(packetLogin, login7Message(tds74, 0)),
		"no headers":                    one(packetBatch, nil),
		"headers beyond the message":    one(packetBatch, []byte{200, 0, 0, 0}),
		"headers shorter than a length": one(packetBatch, []byte{3, 0, 0, 0}),
		"header shorter than a header":  one(packetBatch, []byte{10, 0, 0, 0, 5, 0, 0, 0, 0, 0}),
		"short transaction descriptor":  one(packetBatch, []byte{12, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0}),
		"half a character":              one(packetBatch, headers('a')),
		"packet shorter than a header":  {packetBatch, statusEOM, 0, 7, 0, 0, 0, 0},
		"packet longer than agreed":     one(packetBatch, batch(strings.Repeat("x", defaultPacket/2))),
		"empty packet inside":           packet(packetBatch, 0, nil),
		"message longer than allowed":   append(packet(packetBatch, 0, make([]byte, 4000)), packet(packetBatch, statusEOM, make([]byte, 4000))...),
		"type changes inside":           append(packet(packetBatch, 0, headers()), packet(packetRPC, statusEOM, nil)...),
		"nameless procedure":            one(packetRPC, headers(0, 0, 0, 0)),
		"procedure number":              one(packetRPC, headers(0xff, 0xff, 99, 0, 0, 0)),
		"parameter cut short":           one(packetRPC, call(0, 0, typeIntN, 4, 4, 1, 2)),
		"parameter of an odd width":     one(packetRPC, call(0, 0, typeIntN, 3, 0)),
		"value wider than its type":     one(packetRPC, call(0, 0, typeBigVarBinary, 2, 0, 3, 0, 1, 2, 3)),
		"value of another width":        one(packetRPC, call(0, 0, typeIntN, 8, 4, 1, 2, 3, 4)),
		"text of an odd length":         one(packetRPC, call(append(append([]byte{0, 0, typeNVarChar, 4, 0}, collation[:]...), 3, 0, 1, 2, 3)...)),
		"type of too many bytes":        one(packetRPC, call(0, 0, typeBigVarBinary, 0x41, 0x1f, 0, 0)),
		"chunks that do not add up":     one(packetRPC, call(0, 0, typeBigVarBinary, 0xff, 0xff, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0)),
		"decimal of 39 digits":          one(packetRPC, call(0, 0, typeDecimalN, 17, 39, 0, 0)),
		"decimal beyond its precision":  one(packetRPC, call(0, 0, typeDecimalN, 5, 2, 0, 5, 1, 100, 0, 0, 0)),
		"scale of a time":               one(packetRPC, call(0, 0, typeTimeN, 8, 0)),
		"time beyond a day":             one(packetRPC, call(0, 0, typeTimeN, 0, 3, 0x80, 0x51, 1)),
		"date beyond year 9999":         one(packetRPC, call(0, 0, typeDateN, 3, 0xff, 0xff, 0xff)),
		"encrypted parameter":           one(packetRPC, call(0, 8, typeIntN, 4, 0)),
		"long parameter name":           one(packetRPC, call(200)),
		"transaction operation":         one(packetTransaction, headers(6, 0)),
		"isolation level":               one(packetTransaction, headers(5, 0, 6, 0)),
		"half of a character":           one(packetTransaction, headers(9, 0, 3, 't', 0, 'x')),
		"more than a transaction":       one(packetTransaction, headers(9, 0, 0, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			h := &rawHandler{}
			c := loginRaw(t, serveRaw(t, h, Options{MaxMessageBytes: 6000}))
			c.send(packetBatch, batch("select 1"))
			require.Equal(t, []uint16{0}, c.reply().done)
			c.write(sent)
			got := c.reply()
			require.Equal(t, []int32{4002}, got.errors)
			require.Equal(t, []uint16{doneError | doneServerError}, got.done)
			require.Equal(t, byte(fatalClass), got.class)
			c.requireClosed()
			require.Len(t, h.seen(), 1)
		})
	}
}

func TestInvalidLoginsAreRefused(t *testing.T) {
	s := serveRaw(t, &rawHandler{}, Options{})
	for name, c := range map[string]struct {
		payload []byte
		number  int32
	}{
		"TDS 7.3":        {login7Message(0x730b0003, 0), 17832},
		"TDS 8.0":        {login7Message(0x08000000, 0), 17832},
		"Windows":        {login7Message(tds74, 0x80), 18452},
		"cut short":      {login7Message(tds74, 0)[:90], 0},
		"length":         {append(login7Message(tds74, 0), 0), 0},
		"string outside": {append([]byte{94, 0, 0, 0, 4, 0, 0, 0x74}, bytes.Repeat([]byte{0xff}, 86)...), 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := dialRaw(t, s)
			client.greet()
			client.send(packetLogin, c.payload)
			if c.number != 0 {
				require.Equal(t, []int32{c.number}, client.reply().errors)
			}
			client.requireClosed()
		})
	}
	t.Run("before the greeting", func(t *testing.T) {
		client := dialRaw(t, s)
		client.send(packetLogin, login7Message(tds74, 0))
		client.requireClosed()
	})
	for name, payload := range map[string][]byte{
		"greeting without an end":  {preloginVersion, 0, 6, 0, 0},
		"greeting beyond its end":  {preloginEncryption, 0, 6, 0, 9, preloginEnd},
		"greeting of two answers":  {preloginEncryption, 0, 6, 0, 2, preloginEnd, 0, 0},
		"greeting that is nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			client := dialRaw(t, s)
			client.send(packetPrelogin, payload)
			client.requireClosed()
		})
	}
}

func TestParametersThatTheDriverDoesNotSend(t *testing.T) {
	h := &rawHandler{}
	c := loginRaw(t, serveRaw(t, h, Options{}))
	call := headers(procedure("p")...)
	call = append(call, 0, 0, typeInt4, 1, 0, 0, 0x80)
	call = append(call, 0, 1, typeNumericN, 9, 10, 2, 5, 0, 0xff, 0, 0, 0) // -2.55, shorter than declared
	call = append(call, 0, 0, typeNumericN, 17, 38, 1, 2, 1, 7)            // 0.7, in the fewest bytes
	call = append(call, 0, 2, typeBitN, 1, 0)                              // the default of the procedure
	call = append(call, 0, 0, typeDateTime4, 0, 0, 1, 0)
	c.send(packetRPC, call)
	require.Equal(t, []uint16{0}, c.reply().done)
	require.Equal(t, []Param{
		{Type: sqltype.Type{Kind: sqltype.Int}, Value: int64(-1<<31 + 1)},
		{Output: true, Type: sqltype.Type{Kind: sqltype.Decimal, Precision: 10, Scale: 2}, Value: big.NewRat(-255, 100)},
		{Type: sqltype.Type{Kind: sqltype.Decimal, Precision: 38, Scale: 1}, Value: big.NewRat(7, 10)},
		{Type: sqltype.Type{Kind: sqltype.Bit}},
		{Type: sqltype.Type{Kind: sqltype.SmallDateTime}, Value: joinTime(dayOf1900, 60e9)},
	}, h.seen()[0].Params)
}
