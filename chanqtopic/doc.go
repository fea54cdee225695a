// Package chanqtopic sends a message to every queue that subscribes to a topic:
//
//	check(chanqtopic.Migrate(ctx, db, chanq.Config{}))
//	check(chanqtopic.Subscribe(ctx, db, chanqtopic.Subscription{Topic: "orders", Queue: "mails"}, chanq.Config{}))
//
//	orders, err := chanqtopic.Open[Order](ctx, db, "orders", chanq.Config{})
//	check(err)
//	check(chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
//		return orders.Publish(ctx, tx, chanq.Msg(order))
//	}))
//
// Subscriptions are rows of a table in your database. From then on each queue has its own copy of the message, with its
// own retries and dead letters. See docs/guides/topics.md.
package chanqtopic
