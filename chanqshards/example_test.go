package chanqshards_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/embedded"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// One queue over two files, each with its own writer. All messages of a key are in the same file, so
// their order is kept.
func ExampleOpen() {
	ctx := context.Background()
	var shards []chanqshards.Shard
	for _, name := range []string{"east", "west"} {
		db, err := embedded.Open(":memory:") // or sql.Open("pgx", …), of any server
		check(err)
		defer db.Close()
		shards = append(shards, chanqshards.Shard{Name: name, DB: db})
	}
	config := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}
	check(chanqshards.Migrate(ctx, shards, "orders", config))
	orders, err := chanqshards.Open[int](ctx, shards, "orders", config)
	check(err)

	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	for number := range 3 {
		producer.C() <- chanq.Message[int]{Key: "ada", Body: number}
	}
	check(producer.Close(ctx)) // all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	for lease := range consumer.C() {
		fmt.Println(lease.Key, lease.Body, "of", lease.Queue)
		check(lease.Ack())
		if lease.Body == 2 {
			consumer.Stop()
		}
	}
	check(consumer.Shutdown(ctx))

	for i := range orders.Shards() {
		admin, err := orders.Admin(ctx, i)
		check(err)
		check(admin.Pause(ctx, chanqadmin.Change{Reason: "the shards move"}))
	}
	// Output:
	// ada 0 of orders/east
	// ada 1 of orders/east
	// ada 2 of orders/east
}

// A transaction is in one database, so all messages that it sends are in that shard.
func ExampleQueue_Shard() {
	ctx := context.Background()
	var shards []chanqshards.Shard
	for _, name := range []string{"east", "west"} {
		db, err := embedded.Open(":memory:")
		check(err)
		defer db.Close()
		shards = append(shards, chanqshards.Shard{Name: name, DB: db})
	}
	check(chanqshards.Migrate(ctx, shards, "mails", chanq.Config{}))
	mails, err := chanqshards.Open[string](ctx, shards, "mails", chanq.Config{})
	check(err)
	mail := chanq.Message[string]{Body: "Welcome", DedupKey: "welcome ada"}

	i := max(mails.ShardOf(mail), 0) // -1: it may go to any shard; choose the database that has your rows
	shard, err := mails.Shard(ctx, i)
	check(err)
	check(chanq.InTx(ctx, shards[i].DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := shard.SendTx(ctx, tx, mail)
		return err // … and what else the transaction does
	}))

	admin, err := mails.Admin(ctx, i)
	check(err)
	stats, err := admin.Stats(ctx)
	check(err)
	fmt.Println(stats.Ready, "mail to send, by", shard.Label())
	// Output: 1 mail to send, by mails/west
}
