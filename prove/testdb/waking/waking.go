// Package waking tests a Notifier with an ordered queue in several processes.
package waking

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/sqlbatch"
)

const (
	processes = 4
	slots     = 8
	queue     = "owned"
)

func ordered(cfg chanq.Config) chanq.Config {
	cfg.Kind, cfg.Slots, cfg.History = chanq.KindOrdered, slots, chanq.HistoryOff
	return cfg
}

// Own consumes the queue in a separate process until ctx ends. It prints its number, and the body and the latency of each
// message. Without a notification it reads once an hour.
func Own(ctx context.Context, db *sql.DB, cfg chanq.Config) error {
	q, err := chanq.Open[string](ctx, db, queue, ordered(cfg))
	if err != nil {
		return err
	}
	c, err := q.Consume(ctx, chanq.ConsumerConfig{PollEvery: time.Hour})
	if err != nil {
		return err
	}
	for l := range c.C() {
		sent, _ := strconv.ParseInt(l.Body[strings.IndexByte(l.Body, '/')+1:], 10, 64)
		fmt.Println(os.Getpid(), l.Body, time.Since(time.Unix(0, sent)))
		if err := l.Ack(); err != nil {
			return err
		}
	}
	return errors.Join(c.Shutdown(context.WithoutCancel(ctx)), c.Err())
}

// delivery is a line of Own.
type delivery struct {
	process, body string
	age           time.Duration
}

// Owners starts four processes that run the part with its task and consume a queue on db, and sends while they idle: all
// messages of a slot go to the same process. It logs how long that takes, and bounds it in the long tier.
func Owners(t *testing.T, db *sql.DB, cfg chanq.Config, part, task string) {
	t.Helper()
	cfg = ordered(cfg)
	require.NoError(t, chanq.Migrate(t.Context(), db, queue, cfg))
	q := testdb.OpenOn[string](t, db, queue, cfg)
	heard := make(chan delivery, 1000)
	for range processes {
		p, err := child.Start(context.WithoutCancel(t.Context()), part, task, func(line string) {
			if f := strings.Fields(line); len(f) == 3 {
				age, _ := time.ParseDuration(f[2])
				heard <- delivery{f[0], f[1], age}
			}
		})
		require.NoError(t, err)
		t.Cleanup(func() {
			p.Stop()
			require.NoError(t, p.Wait())
		})
	}
	testdb.Eventually(t, "each process has its share of the slots", func() bool {
		list, err := testdb.Admin(q).Slots(t.Context())
		require.NoError(t, err)
		owned := map[string]int{}
		for _, s := range list {
			if s.Owner != "" {
				owned[s.Owner]++
			}
		}
		for _, n := range owned {
			if n != slots/processes {
				return false
			}
		}
		return len(owned) == processes
	})
	sender := testdb.Produce(t, q, chanq.ProducerConfig{})
	of := map[int]string{}
	var ages []time.Duration
	for i := range testdb.Of(40, 200) {
		key := fmt.Sprint("key", i)
		slot := sqlbatch.SlotOf(key, chanq.ID{}, slots)
		testdb.SendBy(t, sender, chanq.Message[string]{Key: key, Body: fmt.Sprintf("%d/%d", i, time.Now().UnixNano())})
		d := testdb.Receive(t, heard, "the message")
		require.True(t, strings.HasPrefix(d.body, fmt.Sprint(i, "/")), d.body)
		if of[slot] == "" {
			of[slot] = d.process
		}
		require.Equal(t, of[slot], d.process, "the owner of slot %d", slot)
		ages = append(ages, d.age)
		time.Sleep(time.Duration(i%10) * 5 * time.Millisecond) // so that some sends find them still awake
	}
	slices.Sort(ages)
	p50, p99 := ages[len(ages)/2], ages[len(ages)*99/100]
	t.Logf("send to delivery: p50 %v, p99 %v", p50, p99)
	if testdb.IsLong() {
		require.Less(t, p50, testdb.Slowness*5*time.Second) // without notifications they would wait for an hour
	}
}
