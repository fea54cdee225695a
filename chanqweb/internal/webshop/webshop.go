// Package webshop provides the database for tests of the web UI: queues with messages in every state. The
// tests of chanqweb share it with those of chanqweb/browsertest, which is another module.
package webshop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Shop is a database with the queue mail.
type Shop struct {
	T      *testing.T
	DB     *sql.DB
	Faults *faultdb.Connector // of DB
	Mail   *chanq.Queue[[]byte]
}

const (
	mails  = 120 // that are ready
	deaths = 60
)

// Everything has all permissions.
var Everything = chanqweb.Rights{User: "ada", Change: true, Bodies: true}

// New returns a shop on a database of an engine, with the queue mail.
func New(t *testing.T, e testdb.Engine) *Shop {
	t.Helper()
	w := testdb.New(t, e)
	w.Open()
	s := &Shop{T: t, DB: w.DB, Faults: w.Faults}
	s.Mail = s.Queue("mail", chanq.Config{})
	return s
}

// Queue creates a queue and opens it.
func (s *Shop) Queue(name string, cfg chanq.Config) *chanq.Queue[[]byte] {
	s.T.Helper()
	require.NoError(s.T, chanq.Migrate(s.T.Context(), s.DB, name, cfg))
	return testdb.OpenOn[[]byte](s.T, s.DB, name, cfg)
}

// Send returns the IDs of the messages.
func (s *Shop) Send(q *chanq.Queue[[]byte], ms ...chanq.Message[[]byte]) []chanq.ID {
	s.T.Helper()
	return testdb.Send(s.T, q, ms...)
}

// Kill dead-letters one message for each error.
func (s *Shop) Kill(q *chanq.Queue[[]byte], body string, headers map[string]string, causes ...error) (ids []chanq.ID) {
	s.T.Helper()
	for range causes {
		s.Send(q, chanq.Message[[]byte]{Body: []byte(body), Headers: headers, Priority: chanq.PriorityUrgent})
	}
	for i, l := range testdb.Lease(s.T, q, len(causes), time.Minute) {
		require.NoError(s.T, l.Nack(chanq.DeadLetter(causes[i])))
		ids = append(ids, l.ID)
	}
	return ids
}

// Fill puts messages of every state into the queues, for pages to show.
func (s *Shop) Fill() {
	s.T.Helper()
	var causes []error
	for i := range deaths {
		switch {
		case i%10 == 0:
			causes = append(causes, fmt.Errorf(`template "welcome-%d": field "name" is missing`, i))
		case i%4 == 0:
			causes = append(causes, fmt.Errorf("dial tcp 10.0.0.%d:25: connect: connection refused", i))
		case i == 7:
			causes = append(causes, errors.New("panic: runtime error: index out of range [3] with length 3\n\ngoroutine 41 [running]:\nmain.render(0xc000123450)\n\t/srv/mail/render.go:88 +0x1d"))
		default:
			causes = append(causes, fmt.Errorf("550 5.1.1 user %d of 'example.com' is unknown", 1000+i))
		}
	}
	s.Kill(s.Mail, `{"to":"ada@example.com","subject":"Welcome","tries":[1,2,3],"nested":{"html":"<b>hi</b>","rate":0.25}}`,
		map[string]string{"trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tenant": "acme"}, causes...)
	var ms []chanq.Message[[]byte]
	for i := range mails {
		ms = append(ms, chanq.Message[[]byte]{Body: fmt.Appendf(nil, `{"to":"user-%d@example.com"}`, i)})
	}
	for i := range 15 {
		ms = append(ms, chanq.Message[[]byte]{Body: []byte(`{}`), Delay: time.Duration(i+1) * time.Hour})
	}
	s.Send(s.Mail, ms...)
	s.Consume(s.Mail, "mailer-1", 12)
	s.Consume(s.Mail, "mailer-2", 7)

	payments := s.Queue("payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 8}})
	ms = nil
	for i := range 90 {
		ms = append(ms, chanq.Message[[]byte]{Body: []byte(`{"amount":100}`), Key: fmt.Sprintf("account-%d", i%(7+i%5))})
	}
	s.Send(payments, ms...)
	s.Consume(payments, "ledger", 3)
	require.NoError(s.T, testdb.Pause(s.T.Context(), s.Queue("reports", chanq.Config{})))
	s.Queue("thumbnails", chanq.Config{})
}

// Consume starts a consumer that holds n messages until the test ends.
func (s *Shop) Consume(q *chanq.Queue[[]byte], name string, n int) {
	s.T.Helper()
	c, err := q.Consume(s.T.Context(), chanq.ConsumerConfig{Name: name, Prefetch: n})
	require.NoError(s.T, err)
	s.T.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Shutdown(over) // its error means that messages were held
	})
	_, err = c.Receive(s.T.Context(), 1, 0)
	require.NoError(s.T, err)
}

// Stats returns the figures of a queue.
func (s *Shop) Stats(q *chanq.Queue[[]byte]) chanqadmin.Stats {
	s.T.Helper()
	stats, err := testdb.Admin(q).Stats(s.T.Context())
	require.NoError(s.T, err)
	return stats
}

// Waves is a history with rising and falling values.
type Waves struct{}

func (Waves) History(_ context.Context, queue string, since time.Time, step time.Duration) (list []chanqadmin.Sample, err error) {
	if queue == "thumbnails" {
		return nil, nil
	}
	now := time.Now()
	for at := since.Truncate(step).Add(step); at.Before(now); at = at.Add(step) {
		x := now.Sub(at).Hours() / max(step.Hours()*360, 1) * 2 * math.Pi
		if x > 3.2 && x < 3.6 {
			continue // there was no consumer
		}
		busy := 1 + math.Sin(x*2)*0.6 + 0.25*math.Sin(x*17)
		var waits, calls chanqadmin.Times
		waits[int(8+2*busy)], waits[12], calls[6], calls[int(6+2*busy)] = 8, 2, 7, 3
		list = append(list, chanqadmin.Sample{
			At: at, Counted: true, Ready: int(400 * busy), Leased: int(40 + 10*math.Sin(x*9)), Dead: int(60 - 8*x), OldestReady: time.Duration(busy * float64(4*time.Second)),
			Sent: int64(90 * busy * step.Seconds()), Acked: int64(88 * busy * step.Seconds() * (1 + 0.1*math.Sin(x*11))), Nacked: int64(3 * step.Seconds()), Delivered: 10,
			Waits: waits, Calls: calls,
		})
	}
	return list, nil
}

// samples is a history that ends.
type samples []chanqadmin.Sample

// SamplesUntil returns a history with a sample per minute, up to end.
func SamplesUntil(end time.Time) chanqweb.History {
	list := samples{}
	for at := end.Add(-20 * time.Minute); at.Before(end); at = at.Add(time.Minute) {
		list = append(list, chanqadmin.Sample{At: at, Step: time.Minute, Counted: true, Ready: 7, Sent: 60 * 333, Acked: 60 * 222})
	}
	return list
}

func (f samples) History(_ context.Context, _ string, since time.Time, _ time.Duration) (list []chanqadmin.Sample, err error) {
	for _, s := range f {
		if !s.At.Before(since) {
			list = append(list, s)
		}
	}
	return list, nil
}

// Evils are texts that would run scripts, or hide content, in a page that does not escape them.
var Evils = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' autofocus onfocus=alert(1) x='`, `</pre></title></textarea><svg onload=alert(1)>`,
	`{{.Token}}`, `javascript:alert(1)`, "\u202egnp.exe\u2066", "\x1b[31mred\x00", `{"a":"</script><b>"}`, "\xff\xfe<b>", "`${alert(1)}`", "data: x\n\nevent: y\n\n",
}
