package guarantees

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// The statements of consumers that a notifier wakes.
var wakingStatements = []test{
	{"AMessageSentWithAnotherIsDeliveredWhenItIsDue", dueLater},
	{"ANotificationDuringAClaimCausesAnotherOne", notificationBesideClaim},
	{"NotificationsWithoutMessagesCauseFewClaims", ringingInVain},
}

// sleeper returns a consumer that waits for notifications, and a producer on another *sql.DB that
// notifies it.
func (w *world) sleeper() (*chanq.Producer[string], *chanq.Consumer[string]) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	_, elsewhere := w.Connect()
	p := testdb.Produce(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{Notifier: b}), chanq.ProducerConfig{})
	c := testdb.Start(w, q, seldom)
	w.asleep(c, b)
	return p, c
}

// dueLater: a consumer that was notified for a message and has it does not have to look for another
// message of the same send immediately, but does so within a second.
func dueLater(w *world) {
	p, c := w.sleeper()
	testdb.SendBy(w, p, chanq.Message[string]{Body: "now"}, chanq.Message[string]{Body: "later", Delay: 300 * time.Millisecond})
	for _, body := range []string{"now", "later"} {
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, body, l.Body)
		require.NoError(w, l.Ack())
	}
}

// notificationBesideClaim: a notification during a claim might be for a message that the claim did
// not see, so it causes one more claim. The consumer counts as busy, so another claim follows when it listens again.
func notificationBesideClaim(w *world) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	st := w.Statements("work")
	c := testdb.Start(w, q, seldom)
	w.asleep(c, b)
	_, elsewhere := w.Connect()
	testdb.Send(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{}), testdb.Texts("a")...)
	before := c.Stats().EmptyClaims
	gate := make(chan struct{})
	claim := w.Strike(faultdb.Hold(gate).Applied(), func(op faultdb.Op) bool { return claims(op, st) })
	b.Notify(chanq.Notification{Queue: "", Messages: 1})
	w.Eventually("the consumer has claimed", func() bool { return claim.Struck() != "" })
	b.Notify(chanq.Notification{Queue: "", Messages: 1})
	close(gate)
	require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
	w.Eventually("the consumer has claimed once more", func() bool { return c.Stats().EmptyClaims > before })
	w.asleep(c, b)
	require.LessOrEqual(w, c.Stats().EmptyClaims, before+2)
}

func ringingInVain(w *world) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	c := testdb.Start(w, q, seldom)
	w.asleep(c, b)
	before, began := c.Stats().EmptyClaims, time.Now()
	for range 60 {
		b.Notify(chanq.Notification{Queue: "", Messages: 1})
		w.pass(10 * time.Millisecond)
	}
	most := 12 + int64(time.Since(began)/(80*time.Millisecond)) // of the 60 notifications
	require.LessOrEqual(w, c.Stats().EmptyClaims-before, most)
	_, elsewhere := w.Connect()
	testdb.Send(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{Notifier: b}), testdb.Texts("a")...)
	testdb.Take(w, c, 1)
}
