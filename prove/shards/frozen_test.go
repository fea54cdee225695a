package shards_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/netproxy"
)

// TestAFrozenShardDelaysItsOwnMessagesOnly: the shard refuses nothing and breaks no connection,
// like a stopped server or a network that drops all packets.
func TestAFrozenShardDelaysItsOwnMessagesOnly(t *testing.T) {
	t.Parallel()
	withServer(t, func(t *testing.T, sqlite, server testdb.Engine) {
		freeze(newWorld(t, sqlite, server, sqlite))
	})
}

func freeze(w *world) {
	const place = 1
	proxy, db := w.places[place].BehindProxy()
	w.places[place].DB = db
	q := w.queue(w.brief(ordered))
	cfg := quick
	cfg.LeaseFor = 2 * time.Second // then the messages of a stopped consumer are redelivered
	c, y := w.handle(q, cfg)
	p := w.produce(q, chanq.ProducerConfig{})
	w.Cleanup(func() { proxy.Set(netproxy.Conditions{}) })
	own := keyed(q, ordered, place, 10)
	others := append(keyed(q, ordered, 0, 10), keyed(q, ordered, 2, 10)...)
	testdb.SendBy(w, p, append(own[:5:5], others[:5]...)...)
	testdb.Eventually(w, "all are handled", func() bool { return y.has(own[:5]) && y.has(others[:5]) })

	proxy.Set(netproxy.Silence)
	short, cancel := context.WithTimeout(w.soon(), time.Second)
	defer cancel()
	receipt, err := p.Send(short, own[5])
	require.ErrorIs(w, err, context.DeadlineExceeded)
	patient := make(chan error, 1)
	go func() {
		_, err := p.Send(context.Background(), own[6])
		patient <- err
	}()
	for _, m := range others[5:] {
		_, err := p.Send(w.soon(), m)
		require.NoError(w, err)
	}
	testdb.Eventually(w, "the others are handled", func() bool { return y.has(others) })
	require.Zero(w, y.count(own[5:]))
	require.Empty(w, patient)

	c.Stop()
	for range c.C() { // the channel is closed although a claim hangs
	}
	given, cancel := context.WithTimeout(w.soon(), time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Shutdown(given) }()
	testdb.Receive(w, ended, "Shutdown returns when its context has ended")

	proxy.Set(netproxy.Conditions{})
	require.NoError(w, testdb.Receive(w, patient, "the waiting message is stored"))
	own[5].ID = receipt.ID
	testdb.SendBy(w, p, own[5])
	testdb.SendBy(w, p, own[7:]...)
	_, later := w.handle(q, cfg)
	testdb.Eventually(w, "all are handled", func() bool { return later.has(own[5:]) })
}
