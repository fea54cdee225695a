package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtopic"
)

// subscribed makes the queue mail subscribe to the topic orders.
func subscribed(t *testing.T, db string) {
	t.Helper()
	succeed(t, "", "topic", "migrate", "--db", db)
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	s := chanqtopic.Subscription{Topic: "orders", Queue: "mail", Filter: chanqtopic.Filter{Equal: map[string]string{"country": "de", "a": "b"}, Present: []string{"vip"}}}
	require.NoError(t, chanqtopic.Subscribe(t.Context(), c.DB, s, chanq.Config{}))
}

func TestSubscriptionsAreListedAndDeleted(t *testing.T) {
	db := newQueue(t, "mail")
	require.Contains(t, fail(t, exitFailed, "topic", "list", "--db", db), "run chanqtopic.Migrate, or the command: chanq topic migrate")
	require.Equal(t, "the tables of topics are up to date\n", succeed(t, "", "topic", "migrate", "--db", db).out)
	require.Equal(t, "[]\n", succeed(t, "", "topic", "list", "--db", db, "-o", "json").out)
	subscribed(t, db)
	lines := succeed(t, "", "topic", "list", "--db", db).lines()
	require.Len(t, lines, 2)
	require.Regexp(t, `^orders +mail +vip a=b country=de$`, lines[1])
	require.Equal(t, `[{"topic":"orders","queue":"mail","equal":{"a":"b","country":"de"},"present":["vip"]}]`+"\n",
		succeed(t, "", "topic", "list", "--db", db, "-o", "json").out)
	require.Equal(t, "queue mail unsubscribed from orders\n", succeed(t, "", "topic", "unsubscribe", "--db", db, "mail", "orders").out)
	require.Equal(t, "[]\n", succeed(t, "", "topic", "list", "--db", db, "-o", "json").out)
	require.Contains(t, fail(t, exitFailed, "topic", "unsubscribe", "--db", db, "mail", "orders"), "unsubscribe mail from orders: no subscriptions")
}
