package chanqweb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/prove/testdb"
)

// An operator finds the blocked keys: which message each waits for, until when, and how many messages are behind it.
func TestBlockedKeysAreListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		q := shop.Queue("payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4, DeadKey: chanq.DeadKeyHolds}})
		for _, key := range []string{"held", "tried", "stuck"} { // the first message of each key is delivered before the next key is sent
			shop.Send(q, chanq.Message[[]byte]{Key: key, Body: []byte("x")})
			leases := testdb.Lease(t, q, 1, time.Hour)
			switch key {
			case "held": // the database does not record newer leases of an ordered queue
				require.NoError(t, leases[0].Extend(t.Context(), time.Hour))
			case "tried":
				require.NoError(t, leases[0].Nack(chanq.RetryAfter(time.Hour, errors.New("no stock"))))
			case "stuck":
				require.NoError(t, leases[0].Nack(chanq.DeadLetter(errors.New("not a card"))))
			}
		}
		for i := range 9 {
			shop.Send(q, chanq.Message[[]byte]{Key: []string{"tried", "tried", "held"}[i%3], Body: []byte("x")})
		}
		shop.Send(q, chanq.Message[[]byte]{Key: "free", Body: []byte("x")}, chanq.Message[[]byte]{Body: []byte("x")})
		s := shop.open(chanqweb.Rights{}, func(c *chanqweb.Config) {
			c.Redact = func(_ string, e *chanqadmin.Entry) { e.Key = strings.ToUpper(e.Key) }
		})
		text := s.see("/q/payments/slots")
		_, text, found := strings.Cut(text, "Keys that wait")
		require.True(t, found)
		at := 0
		for _, k := range []struct{ key, why, messages, says string }{
			{"TRIED", "scheduled", "7", "no stock"}, {"HELD", "leased", "4", ""}, {"STUCK", "dead", "0", "not a card"},
		} {
			i := strings.Index(text[at:], ">"+k.key+"</a>")
			require.GreaterOrEqual(t, i, 0, "%s, in the order of their messages", k.key)
			at += i
			line, _, _ := strings.Cut(text[at:], "</tr>")
			require.Contains(t, line, `<span class="state `+k.why+`">`)
			require.Contains(t, line, fmt.Sprintf(`data-label="Messages">%s<`, k.messages))
			require.Contains(t, line, k.says)
		}
		require.NotContains(t, text, "FREE")
		require.Equal(t, 3, strings.Count(text, "<tr><th scope=\"row\">"))
	})
}

func TestTheWebUIReportsThatNoKeyIsBlocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		q := shop.Queue("payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
		shop.Send(q, chanq.Message[[]byte]{Key: "free", Body: []byte("x")})
		require.Contains(t, shop.open(chanqweb.Rights{}).see("/q/payments/slots"), "No key waits.")
	})
}

func TestAQueueIsOpenedByItsName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t).open(chanqweb.Rights{})
		require.Equal(t, s.url+"/q/mail/", s.get("/find?queue=mail").Request.URL.String())
		require.Equal(t, 404, s.get("/find?queue=..%2F..").StatusCode)
		require.Equal(t, 404, s.get("/find?queue=").StatusCode)
	})
}

// The table of queues is data: a name that is invalid, whatever its bytes, is listed with a sentence and hides no other queue.
func TestAnInvalidQueueNameIsListedSeparately(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Queue("payments", chanq.Config{})
		for _, name := range []string{"'No such <Name>'", "CAST(x'ff' AS TEXT)", "''"} {
			shop.Queue("broken", chanq.Config{})
			_, err := shop.DB.ExecContext(t.Context(), "UPDATE chanq__queues SET name = "+name+" WHERE name = 'broken'")
			require.NoError(t, err)
			_, err = shop.DB.ExecContext(t.Context(), "DELETE FROM chanq__queues WHERE name = 'broken'")
			require.NoError(t, err)
		}
		text := shop.open(chanqweb.Rights{}).see("/")
		for _, name := range []string{"mail", "payments"} {
			require.Contains(t, text, `id="q-`+name+`"`)
		}
		require.Contains(t, text, "No such &lt;Name&gt;")
		require.Contains(t, text, "5 queues")
	})
}
