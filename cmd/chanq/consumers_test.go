package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

func TestRunningConsumersAreListed(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "migrate", "--db", db, "post")
	require.Equal(t, "[]\n", succeed(t, "", "consumers", "--db", db, "-o", "json").out)
	require.Len(t, succeed(t, "", "consumers", "--db", db).lines(), 1, "a heading")

	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	q, err := chanq.Open[string](t.Context(), c.DB, "mail", chanq.Config{})
	require.NoError(t, err)
	consumer, err := q.Consume(t.Context(), chanq.ConsumerConfig{Name: "red \x1b[31m", LeaseFor: time.Minute})
	require.NoError(t, err)
	var list []consumerLine
	require.Eventually(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "consumers", "--db", db, "-o", "json").out), &list))
		return len(list) == 1
	}, time.Minute, 10*time.Millisecond)
	listed := list[0]
	require.Equal(t, "mail", listed.Queue)
	require.Equal(t, "red \x1b[31m", listed.Name)
	require.Equal(t, os.Getpid(), listed.Process)
	require.WithinDuration(t, time.Now(), listed.Since, 30*time.Second)
	require.Equal(t, 25*time.Second, listed.Until.Sub(listed.Since), "after its first heartbeat, whatever LeaseFor is")
	lines := succeed(t, "", "consumers", "--db", db, "mail").lines()
	require.Len(t, lines, 2)
	require.Contains(t, lines[1], `red \x1b[31m`)
	require.Contains(t, lines[1], listed.ID.String())
	require.Len(t, succeed(t, "", "consumers", "--db", db, "post").lines(), 1)
	require.Contains(t, fail(t, exitFailed, "consumers", "--db", db, "nothing"), "chanq migrate nothing")

	// The list of messages shows the holder of a message.
	succeed(t, "", "send", "--db", db, "mail", "held")
	l := <-consumer.C()
	require.Contains(t, succeed(t, "", "peek", "--db", db, "--state", "leased", "mail").out, `red \x1b[31m`)
	var held struct {
		Consumer chanq.ID `json:"consumer"`
		LeasedBy string   `json:"leased_by"`
	}
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "peek", "--db", db, "--state", "leased", "-o", "json", "mail").out), &held))
	require.Equal(t, "red \x1b[31m", held.LeasedBy)
	require.Equal(t, listed.ID, held.Consumer)
	require.Contains(t, succeed(t, "", "peek", "--db", db, "--state", "leased", "mail").lines()[0], "HELD FOR")
	require.Contains(t, fail(t, exitFailed, "release", "--db", db, "--yes", "mail", listed.ID.String()), "the consumer is running: stop its process first")
	_, err = c.DB.ExecContext(t.Context(), "UPDATE chanq__consumers SET heard_at = 0")
	require.NoError(t, err)
	asked := runIn(t.Context(), "no\n", "release", "--db", db, "mail", listed.ID.String())
	require.NotZero(t, asked.status)
	require.Contains(t, asked.err, "End the leases of 1 message? A handler might still run.")
	succeed(t, "", "migrate", "--db", db, "--ordered", "sorted")
	asked = runIn(t.Context(), "no\n", "release", "--db", db, "sorted", listed.ID.String())
	require.Contains(t, asked.err, "End the leases of 0 messages, and free its slots with messages that are not counted? A handler might still run.")
	require.Equal(t, "1 message released\n", succeed(t, "", "release", "--db", db, "--yes", "mail", listed.ID.String()).out)
	_ = l.Ack()
	require.ErrorIs(t, l.Wait(t.Context()), chanq.ErrLeaseLost)
	require.NoError(t, (<-consumer.C()).Ack(), "it is delivered again")
	require.NoError(t, consumer.Shutdown(t.Context()))
	require.Equal(t, "[]\n", succeed(t, "", "consumers", "--db", db, "-o", "json").out, "a consumer that stopped has left")
}

func TestExpiryIsShownWhereThereIsOne(t *testing.T) {
	db := newQueue(t, "mail")
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	q, err := chanq.Open[string](t.Context(), c.DB, "mail", chanq.Config{})
	require.NoError(t, err)
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(t.Context(), chanq.Message[string]{Body: "permanent"})
	require.NoError(t, err)
	require.NotContains(t, succeed(t, "", "peek", "--db", db, "mail").out, "EXPIRES")
	_, err = p.Send(t.Context(), chanq.Message[string]{Body: "fleeting", TTL: time.Hour})
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	lines := succeed(t, "", "peek", "--db", db, "mail").lines()
	require.Contains(t, lines[0], "EXPIRES")
	require.Contains(t, lines[1], " -  ")
	require.Contains(t, lines[2], time.Now().UTC().Format("2006-"))
	list, err := testdb.Peek(t.Context(), q, chanqadmin.StateReady, 2)
	require.NoError(t, err)
	require.Contains(t, lines[2], clock(list[1].ExpiresAt))
}

func TestAQueueThatIsNotDurableIsReported(t *testing.T) {
	var said strings.Builder
	a := &app{err: &said, out: io.Discard}
	require.Equal(t, chanq.DurabilityRequired, a.storingConfig(&connection{}).Durability)
	require.Equal(t, chanq.DurabilityAsIs, a.queueConfig(&connection{}).Durability, "a command that only reads accepts either")
	db := newQueue(t, "mail")
	for _, args := range [][]string{{"migrate", "mail"}, {"send", "mail", "x"}, {"demo", "--dir", folderOf(t, 1)}} {
		succeed(t, "", append(args, "--not-durable", "--db", db)...)
	}
	require.Contains(t, fail(t, exitUsage, "peek", "--not-durable", "--db", db, "mail"), "unknown flag")
}
