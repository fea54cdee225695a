package chanqweb_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
)

// largest returns the size of the largest value that the queries of a function return.
func (s *shop) largest(f func()) (most int) {
	for _, one := range s.sent(f) {
		rows, err := s.DB.QueryContext(s.T.Context(), one.text, one.args...)
		if err != nil {
			continue // it needs a transaction
		}
		columns, err := rows.Columns()
		require.NoError(s.T, err)
		row, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		for rows.Next() {
			require.NoError(s.T, rows.Scan(into...))
			for _, v := range row {
				most = max(most, len(v))
			}
		}
		require.NoError(s.T, rows.Err())
		require.NoError(s.T, rows.Close())
	}
	return most
}

// Whatever is stored, no page reads more than 64 KiB of a body or an error, and hidden bodies are not read. A download has all of it.
func TestAPageReadsABoundedPartOfABody(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.Postgres} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			testdb.InBubble(t, e.Bubble, func(t *testing.T) {
				shop := &shop{webshop.New(t, e)}
				large := shop.Queue("large", chanq.Config{Spec: chanq.Spec{MaxBody: 8 << 20}})
				body := bytes.Repeat([]byte("0123456789abcdef"), 2_500_000/16+1)
				live := shop.Send(large, chanq.Message[[]byte]{Body: body})[0]
				lease := testdb.Lease(t, large, 1, time.Minute)[0]
				require.NoError(t, lease.Nack(chanq.RetryAfter(time.Hour, fmt.Errorf("%s", strings.Repeat("x", 300_000)))))
				path := "/q/large/m/" + live.String()
				hidden, shown := shop.open(chanqweb.Rights{}), shop.open(chanqweb.Rights{Bodies: true})
				require.Less(t, shop.largest(func() { hidden.see(path) }), 4<<10)
				require.LessOrEqual(t, shop.largest(func() { require.Contains(t, shown.see(path), "save it to see the rest") }), 64<<10)
				for _, list := range []string{"/", "/q/large/", "/q/large/messages?state=scheduled"} {
					require.Less(t, shop.largest(func() { shown.see(list) }), 4<<10, list)
				}
				saved := shown.get(path + "/body")
				require.Equal(t, http.StatusOK, saved.StatusCode)
				require.True(t, saved.text == string(body), "all of the body")
				require.LessOrEqual(t, shop.largest(func() { shown.get(path + "/body") }), 1<<20)

				redacted := shop.open(chanqweb.Rights{Bodies: true}, func(c *chanqweb.Config) {
					c.Redact = func(_ string, m *chanqadmin.Entry) {
						if m.Body != nil && len(m.Body) != len(body) {
							t.Error("a part of a body was given to Redact")
						}
						m.Body = bytes.ReplaceAll(m.Body, []byte("0123456789"), []byte("*"))
					}
				})
				text := redacted.see(path)
				require.Contains(t, text, "longer than a page shows")
				require.NotContains(t, text, "abcdef")
				require.True(t, redacted.get(path+"/body").text == strings.Repeat("*abcdef", len(body)/16))
			})
		})
	}
}

// Other programs may store errors of any length in SQLite and PostgreSQL, and bodies that are hostile to a page.
func TestNoPageIsLargerThanAMegabyte(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		deep := `{"a":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "}"
		evil := strings.Repeat("\u202e", 60_000)
		headers := map[string]string{}
		for i := range 60 {
			headers[fmt.Sprintf("\u202e%d", i)] = strings.Repeat("\u202e", 50)
		}
		var ids []chanq.ID
		for _, body := range []string{deep, evil, strings.Repeat("\x00", 60_000), strings.Repeat("\xff", 500_000)} {
			ids = append(ids, shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte(body), Headers: headers})...)
		}
		_, err := shop.DB.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150)
			INSERT INTO chanq_mail__dead (id, priority, enqueued_at, ended_at, cause, fingerprint, fence, attempts, last_error, body)
			SELECT CAST(printf('%016d', i) AS BLOB), 0, 900000000000, 900000000000 + i, 1, i, 1, 10, ?1, x'00' FROM n`, evil)
		require.NoError(t, err)
		dead, err := testdb.Peek(t.Context(), shop.Mail, chanqadmin.StateDead, 1)
		require.NoError(t, err)
		require.Len(t, []rune(dead[0].LastError), 2000, "the beginning of an error")
		s := shop.open(everything)
		paths := []string{"/", "/q/mail/", "/q/mail/failures", "/q/mail/messages?state=dead", "/q/mail/messages", "/q/mail/m/" + dead[0].ID.String()}
		for _, id := range ids {
			for _, as := range []string{"", "?as=json", "?as=text", "?as=hex"} {
				paths = append(paths, "/q/mail/m/"+id.String()+as)
			}
		}
		for _, path := range paths {
			require.LessOrEqual(t, len(s.see(path)), 1<<20, path)
			require.LessOrEqual(t, shop.largest(func() { s.see(path) }), 64<<10, path)
		}
	})
}
