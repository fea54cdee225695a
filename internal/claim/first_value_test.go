package claim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/notify"
)

// lateNotifier sends the first value 300 ms after Listen.
type lateNotifier struct{}

func (lateNotifier) Notify(string, int, []int) {}
func (lateNotifier) Listen(string, []int) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	time.AfterFunc(300*time.Millisecond, func() { c <- struct{}{} })
	return c, func() {}
}

// A consumer of another process may have released a message to its old place, before the head, while Listen was on its
// way. Nothing notifies of that.
func TestARescanFollowsTheFirstValueOfANotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		subscription := notify.NewSubscription(&notify.Debouncer{Notifier: lateNotifier{}}, nil)
		q := newQueue(t, func(c *claim.Config) { c.Subscription = &subscription; c.PollEvery = time.Minute })
		followed := false
		q.fail = func(op string) error {
			since := time.Since(began)
			followed = followed || op == "rescan" && since >= 300*time.Millisecond && since < 2*time.Second
			return nil
		}
		q.run(10 * time.Second)
		require.True(t, followed)
	})
}
