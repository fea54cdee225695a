// Command spilled drains an ordered queue, first as it is, and then after the first message of each key was held until
// all others waited behind these: their keys are spilled. It is of the experiment with reads by owners.
//
//	go run -tags ownerreads ./bench/spilled -keys 10000 -each 100 [-dsn postgres]
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

var (
	dsn  = flag.String("dsn", "", "PostgreSQL to use; empty: a file of SQLite")
	keys = flag.Int("keys", 2000, "keys of the messages")
	each = flag.Int("each", 50, "messages of each key")
)

func main() {
	flag.Parse()
	for _, hold := range []bool{false, true} {
		drain(context.Background(), hold)
	}
}

func drain(ctx context.Context, hold bool) {
	cfg := chanq.Config{Kind: chanq.KindOrdered, Slots: 64}
	db, err := embedded.Open(filepath.Join(must(os.MkdirTemp("", "spilled")), "queue.db"))
	if *dsn != "" {
		db, err = sql.Open("pgx", *dsn)
		cfg.Dialect = postgres.Dialect
	}
	check(err)
	name := fmt.Sprintf("spilled_%d", time.Now().UnixNano())
	check(chanq.Migrate(ctx, db, name, cfg))
	defer func() { check(chanq.DropWithMessages(ctx, db, name, cfg)) }()
	q := must(chanq.Open[[]byte](ctx, db, name, cfg))
	p := must(q.Producer(chanq.ProducerConfig{}))
	body := make([]byte, 200)
	for i := range *keys * *each {
		p.C() <- chanq.Message[[]byte]{Key: "key " + strconv.Itoa(i%*keys), Body: body}
	}
	check(p.Flush(ctx))
	check(p.Close(ctx))
	c := must(q.Consume(ctx, chanq.ConsumerConfig{Prefetch: 10_000, LeaseFor: 30 * time.Second}))
	var held []*chanq.Lease[[]byte]
	for hold && len(held) < *keys {
		held = append(held, next(c))
	}
	if hold {
		time.Sleep(3 * time.Second) // the rest is read meanwhile
		fmt.Printf("%d held, %d wait in memory\n", len(held), c.Stats().Waiting)
	}
	began := time.Now()
	for _, l := range held {
		check(l.Ack())
	}
	for n := len(held); n < *keys**each; n++ {
		check(next(c).Ack())
	}
	check(c.Flush(ctx))
	took := time.Since(began)
	fmt.Printf("held before %v: %d drained in %v, %.0f/s\n", hold, *keys**each, took.Round(time.Millisecond), float64(*keys**each)/took.Seconds())
	check(c.Shutdown(ctx))
}

func next(c *chanq.Consumer[[]byte]) *chanq.Lease[[]byte] {
	select {
	case l := <-c.C():
		return l
	case <-time.After(time.Minute):
		panic(fmt.Sprintf("nothing came for a minute: %+v", c.Stats()))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[V any](v V, err error) V {
	check(err)
	return v
}
