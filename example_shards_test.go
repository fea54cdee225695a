package chanq_test

import (
	"context"
	"fmt"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

// One queue over two files, each with a writer of its own. Every message of a key lies in the
// same one, so their order holds.
func ExampleOpenShards() {
	ctx := context.Background()
	var shards []chanq.Shard
	for _, name := range []string{"east", "west"} {
		db, err := embedded.Open(":memory:") // or sql.Open("pgx", …), of any server
		check(err)
		defer db.Close()
		shards = append(shards, chanq.Shard{Name: name, DB: db})
	}
	config := chanq.Config{Kind: chanq.KindOrdered}
	check(chanq.MigrateShards(ctx, shards, "orders", config))
	orders, err := chanq.OpenShards[int](ctx, shards, "orders", config)
	check(err)

	producer, err := orders.Producer(chanq.ProducerConfig{})
	check(err)
	for number := range 3 {
		producer.C() <- chanq.Message[int]{Key: "ada", Body: number}
	}
	check(producer.Close(ctx)) // all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	for lease := range consumer.C() {
		fmt.Println(lease.Key, lease.Body, "of", shards[lease.Shard].Name)
		check(lease.Ack())
		if lease.Body == 2 {
			consumer.Stop()
		}
	}
	check(consumer.Shutdown(ctx))
	// Output:
	// ada 0 of east
	// ada 1 of east
	// ada 2 of east
}

// A transaction is in one place, and so is what it sends.
func ExampleQueue_Shard() {
	ctx := context.Background()
	var shards []chanq.Shard
	for _, name := range []string{"east", "west"} {
		db, err := embedded.Open(":memory:")
		check(err)
		defer db.Close()
		shards = append(shards, chanq.Shard{Name: name, DB: db})
	}
	check(chanq.MigrateShards(ctx, shards, "mails", chanq.Config{}))
	mails, err := chanq.OpenShards[string](ctx, shards, "mails", chanq.Config{})
	check(err)
	mail := chanq.Message[string]{Body: "Welcome", DedupKey: "welcome ada"}

	i := max(mails.ShardOf(mail), 0) // -1: it may go anywhere; choose the database that has your rows
	tx, err := shards[i].DB.BeginTx(ctx, nil)
	check(err)
	defer tx.Rollback() // does nothing after Commit
	_, err = mails.Shard(i).SendTx(ctx, tx, mail)
	check(err)
	// … and what else the transaction does
	check(tx.Commit())

	stats, err := mails.Stats(ctx)
	check(err)
	fmt.Println(stats.Ready, "mail to send, by", shards[i].Name)
	// Output: 1 mail to send, by west
}
