package chanqweb_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// A shard of a queue over several databases is shown separately, with its number.
func TestAShardIsMarkedAsOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		cfg := chanq.Config{Shard: chanq.ShardMark{Index: 1, Count: 3, Set: chanq.NewID()}}
		require.NoError(t, chanq.Migrate(t.Context(), shop.DB, "spread", cfg))
		q, err := chanq.Open[[]byte](t.Context(), shop.DB, "spread", cfg)
		require.NoError(t, err)
		shop.Send(q, chanq.Message[[]byte]{Body: []byte("x")})
		s := shop.open(everything)
		for _, path := range []string{"/", "/q/spread/", "/q/spread/messages?state=ready"} {
			require.Contains(t, s.see(path), "shard 1 of 3", path)
		}
	})
}

// A redrive also includes messages behind those that the page has read.
func TestARedriveOfACauseRedrivesAllItsMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		const many = 4_500
		_, err := shop.DB.ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO chanq_mail__dead (id, priority, enqueued_at, ended_at, cause, fence, attempts, last_error, body)
			SELECT CAST(printf('%%016d', i) AS BLOB), 0, 900000000000, 900000000000 + i, 1, 1, 10, 'user ' || i || ' is unknown', x'00' FROM n`, many))
		require.NoError(t, err)
		s := shop.open(everything)
		page := s.see("/q/mail/failures")
		require.Contains(t, page, "4\u2009500 dead messages.")
		r := s.post("mail", "do", "redrive", "group", groupKey(t, page, "user 4500 is unknown"), "back", "failures", "sure", "yes", "token", s.token("/q/mail/failures"))
		require.Equal(t, http.StatusOK, r.StatusCode, r.text)
		require.Contains(t, r.text, "4\u2009500 messages are ready again")
		require.Zero(t, shop.Stats(shop.Mail).Dead)
	})
}
