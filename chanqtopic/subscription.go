package chanqtopic

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/chanq/chanq"
)

// Subscription sends the messages of a topic to a queue. A topic has one per queue.
type Subscription struct {
	// Topic has 1 to 100 letters a to z, digits, and single dots, hyphens or underscores between them, such as
	// "order.paid".
	Topic string
	Queue string
	Filter
}

// Filter selects the messages of a subscription by their headers. Default: all messages.
type Filter struct {
	Equal   map[string]string `json:"equal,omitempty"`   // headers that a message must have with these values
	Present []string          `json:"present,omitempty"` // headers that a message must have, with any value
}

// matches reports whether a message with these headers is sent.
func (f *Filter) matches(headers map[string]string) bool {
	for name, want := range f.Equal {
		if value, has := headers[name]; !has || value != want {
			return false
		}
	}
	return !slices.ContainsFunc(f.Present, func(name string) bool { _, has := headers[name]; return !has })
}

// ErrNoSubscriptions: the topic has no subscriptions, or none of the queue that Unsubscribe was given.
var ErrNoSubscriptions = errors.New("no subscriptions")

const mostTopic = 100

var topicName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)

func checkTopic(name string) error {
	if len(name) > mostTopic || !topicName.MatchString(name) {
		return fmt.Errorf("the topic %.*q: must be 1 to %d letters a to z, digits, and single dots, hyphens or underscores "+
			"between them", mostTopic, name, mostTopic)
	}
	return nil
}

// Subscribe stores a subscription, or replaces the Filter of a stored one. Call it when the program starts that consumes
// the queue, in each process. Each Publish that begins after Subscribe has returned sends to the queue.
//
// The queue must exist: otherwise the error is chanq.ErrNoSchema. It uses Dialect and Schema of cfg, and costs three
// round trips. A subscription stays until Unsubscribe, whether the program runs or not.
func Subscribe(ctx context.Context, db *sql.DB, s Subscription, cfg chanq.Config) error {
	return failed("subscribe "+s.Queue+" to", s.Topic, subscribe(ctx, db, s, cfg))
}

func subscribe(ctx context.Context, db *sql.DB, s Subscription, cfg chanq.Config) error {
	if err := checkTopic(s.Topic); err != nil {
		return err
	}
	filter, err := json.Marshal(s.Filter)
	if err != nil {
		return err
	}
	names, err := existing(ctx, db, cfg)
	if err != nil {
		return err
	}
	stored, err := chanq.StoredConfig(ctx, db, s.Queue, cfg)
	switch {
	case err != nil:
		return err
	case stored.Shard.Count > 0:
		return errors.New("the queue is a shard: send to all shards with package chanqshards")
	}
	var queue string
	err = queryRow(ctx, db, render(names, subscribeText), []any{s.Topic, s.Queue, filter}, &queue)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%w: there is no such queue; run chanq.Migrate, or the command: chanq migrate %s", chanq.ErrNoSchema,
			s.Queue)
	}
	return err
}

// Unsubscribe deletes a subscription. Messages in the queue stay. The error is ErrNoSubscriptions if there is none. It
// uses Dialect and Schema of cfg, and costs two round trips.
func Unsubscribe(ctx context.Context, db *sql.DB, topic, queue string, cfg chanq.Config) error {
	names, err := existing(ctx, db, cfg)
	if err == nil {
		err = queryRow(ctx, db, render(names, unsubscribeText), []any{topic, queue}, &queue)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoSubscriptions
	}
	return failed("unsubscribe "+queue+" from", topic, err)
}

// List returns the subscriptions of all topics, by topic and queue. It uses Dialect and Schema of cfg, and costs two round
// trips.
func List(ctx context.Context, db *sql.DB, cfg chanq.Config) ([]Subscription, error) {
	names, err := existing(ctx, db, cfg)
	if err != nil {
		return nil, failed("list", "topics", err)
	}
	stored, err := read(ctx, db, names, listText)
	var list []Subscription
	for _, s := range stored {
		list = append(list, s.Subscription)
	}
	return list, failed("list", "topics", err)
}

// failed returns an error with what has failed, or nil.
func failed(op, topic string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chanqtopic: %s %s: %w", op, topic, err)
}
