package shards_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/testdb"
)

// TestEachWayToReadTakesFromAllShards and ends when the consumer stops.
func TestEachWayToReadTakesFromAllShards(t *testing.T) {
	const each = 20
	for name, read := range map[string]func(*world, *chanqshards.Consumer[string], func(...*chanq.Lease[string])){
		"All": func(_ *world, c *chanqshards.Consumer[string], got func(...*chanq.Lease[string])) {
			for l := range c.All() {
				got(l)
			}
		},
		"Receive": func(w *world, c *chanqshards.Consumer[string], got func(...*chanq.Lease[string])) {
			for {
				batch, err := c.Receive(w.soon(), 7, 0)
				if err != nil {
					require.ErrorIs(w, err, chanq.ErrClosed)
					return
				}
				require.LessOrEqual(w, len(batch), 7)
				got(batch...)
			}
		},
		"Receive with a wait": func(w *world, c *chanqshards.Consumer[string], got func(...*chanq.Lease[string])) {
			for {
				batch, err := c.Receive(w.soon(), 7, time.Millisecond)
				if err != nil {
					require.ErrorIs(w, err, chanq.ErrClosed)
					return
				}
				require.LessOrEqual(w, len(batch), 7)
				got(batch...)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
				w := newWorld(t, sqlite, sqlite, sqlite)
				q := w.queue(chanq.Config{})
				var all []chanq.Message[string]
				for i := range count {
					all = append(all, of(q, i, each, string(rune('a'+i)))...)
				}
				w.send(q, all...)
				c := w.start(q, chanq.ConsumerConfig{})
				y := &tally{}
				read(w, c, func(leases ...*chanq.Lease[string]) {
					for _, l := range leases {
						y.add(l.Body)
						require.NoError(w, l.Ack())
					}
					if y.has(all) {
						c.Stop()
					}
				})
				require.NoError(w, c.Err())
				require.NoError(w, c.Shutdown(w.soon()))
				y.once(w)
				require.Zero(w, w.counted(q))
			})
		})
	}
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite)
		c := w.start(w.queue(chanq.Config{}), chanq.ConsumerConfig{})
		_, err := c.Receive(w.soon(), 0, 0)
		require.ErrorContains(w, err, "maxBatch is 0")
		_, err = c.Receive(w.soon(), 1, -1)
		require.ErrorContains(w, err, "wait is -1")
		ended, end := context.WithCancelCause(w.soon())
		end(errors.New("enough"))
		_, err = c.Receive(ended, 1, 0)
		require.ErrorContains(w, err, "enough")
	})
}

// TestMessagesForAnUnopenedShardAreKeptUntilClose: the shard is unavailable when the program starts
// and when it ends.
func TestMessagesForAnUnopenedShardAreKeptUntilClose(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		w.gone(1)
		var events []chanq.AvailabilityEvent // written by one goroutine, which Close joins
		q := w.open(chanq.Config{Hooks: chanq.Hooks{Availability: func(e chanq.AvailabilityEvent) { events = append(events, e) }}})
		p := w.produce(q, chanq.ProducerConfig{})
		others, own := of(q, 0, 3, "others"), of(q, 1, 3, "own")
		for i := range own {
			p.C() <- own[i]
			p.C() <- others[i]
		}
		testdb.SendBy(w, p, of(q, 2, 1, "single")...)
		testdb.Eventually(w, "the shard is known to be unavailable", func() bool { return p.Stats().Pending == len(own) })
		require.True(w, p.Stats().Down)
		short, cancel := context.WithTimeout(w.soon(), time.Second)
		defer cancel()
		err := p.Flush(short)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.ErrorContains(w, err, "orders/place1")
		receipt, err := p.Send(short, own[0])
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.False(w, opError(w, err).Unknown, "the message is known not to be stored")
		require.NotZero(w, receipt.ID)

		var unsent *chanq.UnsentError[string]
		require.True(w, errors.As(p.Close(short), &unsent))
		require.Len(w, unsent.Unsent, len(own))
		for i, u := range unsent.Unsent {
			require.Equal(w, own[i].Body, u.Message.Body)
			require.Equal(w, "orders/place1", opError(w, u.Err).Queue)
			require.ErrorIs(w, u.Err, chanq.ErrClosed)
		}
		_, err = p.Send(w.soon(), others[0])
		require.ErrorIs(w, err, chanq.ErrClosed)
		require.NoError(w, p.Close(w.soon()))
		require.Len(w, events, 2)
		require.False(w, events[0].Up)
		require.True(w, events[1].Ended, "the outage ends with the producer")
		for _, e := range events {
			require.Equal(w, "orders/place1", e.Queue)
			require.Equal(w, "producer", e.Part)
		}
	})
}

// TestCloseDoesNotWaitForAShardWithoutPendingMessages, and neither does Flush.
func TestCloseDoesNotWaitForAShardWithoutPendingMessages(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		w.queue(chanq.Config{})
		w.gone(1)
		q := w.open(chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{})
		for _, m := range bodies("anywhere", 20) {
			p.C() <- m
		}
		ctx := w.soon()
		require.NoError(w, p.Flush(ctx))
		require.NoError(w, p.Close(ctx))
		require.NoError(w, ctx.Err(), "neither call waited until the context ended")
		w.Heal()
		require.Equal(w, 20, w.counted(q).Ready)
	})
}

func TestShutdownWhoseContextHasEndedGivesUpTheLeasesOfAllShards(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		for shard := range count {
			w.send(q, of(q, shard, 1, "held")...)
		}
		c := w.start(q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		testdb.Take(w, c, count)
		over, cancel := context.WithCancel(w.soon())
		cancel()
		require.Equal(w, count, strings.Count(fmt.Sprint(c.Shutdown(over)), "leases not settled: 1"))
		require.NoError(w, c.Shutdown(w.soon()), "its goroutines end")
	})
}
