package chanqweb_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/prove/testdb"
)

// A queue of several shards is shown with all of them, and a page says which one a message is
// in; what one does not answer is told beside what the other says.
func TestAQueueOfSeveralShardsIsShownWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		other := testdb.New(t, testdb.Memory).Open()
		shards := []chanq.Shard{{Name: "east", DB: shop.DB}, {Name: "west", DB: other}}
		require.NoError(t, chanq.MigrateShards(t.Context(), shards, "spread", chanq.Config{}))
		q, err := chanq.OpenShards[[]byte](t.Context(), shards, "spread", chanq.Config{})
		require.NoError(t, err)
		for i := range 40 {
			shop.Send(q, chanq.Message[[]byte]{Body: []byte("x"), DedupKey: fmt.Sprint(i)})
		}
		require.Contains(t, shop.open(everything).see("/q/spread/"), "shard 0 of 2", "by itself it says what it is")

		s := shop.open(everything, func(c *chanqweb.Config) { c.Shards = shards })
		require.Contains(t, s.see("/"), "2 shards")
		list := s.see("/q/spread/messages?state=ready")
		for _, name := range []string{"east", "west"} {
			require.Contains(t, list, `<td data-label="Shard">`+name+`</td>`)
		}
		require.NoError(t, other.Close())
		r := s.get("/q/spread/messages?state=ready")
		require.Equal(t, http.StatusOK, r.StatusCode, r.text)
		require.Contains(t, r.text, "Shard west does not answer: what it has is missing here.")
		require.Contains(t, r.text, `<td data-label="Shard">east</td>`)
	})
}

// Also what lies behind the messages that the page has looked at.
func TestARedriveOfACauseReachesAllOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		const many = 4_500
		_, err := shop.DB.ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO chanq_mail_dead (id, priority, enqueued_at, ended_at, fence, attempts, last_error, body)
			SELECT CAST(printf('%%016d', i) AS BLOB), 0, 1700000000000, 1700000000000 + i, 1, 10, 'user ' || i || ' is unknown', x'00' FROM n`, many))
		require.NoError(t, err)
		s := shop.open(everything)
		page := s.see("/q/mail/failures")
		require.Contains(t, page, "there are more")
		r := s.post("mail", "do", "redrive", "cause", causeKey(t, page, "user … is unknown"), "back", "failures", "token", s.token("/q/mail/failures"))
		require.Equal(t, http.StatusOK, r.StatusCode, r.text)
		require.Contains(t, r.text, "4\u2009500 messages are ready again")
		require.Zero(t, shop.Stats(shop.Mail).Dead)
	})
}
