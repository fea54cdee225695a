package mssqlnotify_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var _ chanq.Notifier = (*mssqlnotify.Notifier)(nil)

// rarely is the config of a consumer that polls only when it is woken, once its queue is live. A message that it
// receives soon was found by the Notifier.
var rarely = chanq.ConsumerConfig{PollEvery: time.Hour}

// world is one test's database.
type world struct{ *testdb.World }

// each runs a test on the emulator, in a bubble, and on SQL Server.
func each(t *testing.T, test func(*world)) {
	testdb.OnEach(t, []testdb.Engine{testdb.Emulator, testdb.SQLServer}, func(w *testdb.World) { test(&world{w}) })
}

// notifier returns a Notifier that ends with the test, and the values that it passes to Changed.
func (w *world) notifier(db *sql.DB) (*mssqlnotify.Notifier, chan error) {
	changed := make(chan error, 100)
	b := mssqlnotify.New(db, mssqlnotify.Config{Changed: func(err error) { changed <- err }})
	w.Cleanup(func() { require.NoError(w, b.Close()) })
	return b, changed
}

// sender returns a producer of an existing queue in another process.
func (w *world) sender(name string) *chanq.Producer[string] {
	_, elsewhere := w.Connect()
	return testdb.Produce(w, testdb.OpenOn[string](w, elsewhere, name, chanq.Config{}), chanq.ProducerConfig{})
}

// asleep waits until a consumer has polled after the first value.
func (w *world) asleep(c *chanq.Consumer[string]) {
	w.Eventually("it is idle", func() bool { return c.Stats().Looks > 1 })
	w.settle(100 * time.Millisecond)
}

// pass sends a message, receives it from the consumer, and acks it.
func (w *world) pass(body string, by *chanq.Producer[string], to *chanq.Consumer[string]) {
	testdb.SendBy(w, by, chanq.Message[string]{Body: body})
	l := testdb.Take(w, to, 1)[0]
	require.Equal(w, body, l.Body)
	require.NoError(w, l.Ack())
}

// settle waits for d, during which nothing should happen.
func (w *world) settle(d time.Duration) {
	select {
	case <-w.Context().Done():
	case <-time.After(d):
	}
}

// isRequest reports whether op is a request of a Notifier.
func isRequest(op faultdb.Op) bool {
	return op.Kind == faultdb.Query && strings.Contains(textOf(op), "WAITFOR DELAY @every")
}

// textOf returns the text of a statement, which is the first argument of sp_executesql.
func textOf(op faultdb.Op) string {
	if len(op.Args) == 0 {
		return ""
	}
	text, _ := op.Args[0].Value.(string)
	return text
}

// isClosed reports whether a channel is closed and has no value.
func isClosed(woken <-chan struct{}) bool {
	select {
	case _, open := <-woken:
		return !open
	default:
		return false
	}
}

// failEach makes each request fail.
func (w *world) failEach(c sqlbatch.Class) {
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if isRequest(op) {
			return faultdb.Fail(w.Engine.Errors[c])
		}
		return faultdb.Fault{}
	})
}
