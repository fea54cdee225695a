package chanqweb_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestWithoutPermissionThereAreNoFormsAndChangesFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		ids := shop.Kill(shop.Mail, "x", nil, fmt.Errorf("no"))
		s := shop.open(chanqweb.Rights{User: "eve", Bodies: true})
		for at, text := range s.crawl() {
			require.NotContains(t, text, `method="post"`, at)
		}
		token := shop.open(everything).token("/q/mail/")
		for do := range map[string]bool{"pause": true, "redrive": true, "purge": true, "cancel": true, "run": true, "stop": true} {
			r := s.post("mail", "do", do, "id", ids[0].String(), "sure", "yes", "reason", "x", "token", token)
			require.Equal(t, http.StatusForbidden, r.StatusCode, do)
		}
		stats := shop.Stats(shop.Mail)
		require.Equal(t, 1, stats.Dead)
		require.False(t, stats.Paused)
		require.Equal(t, 6, strings.Count(s.log.String(), "a change was refused"))
		require.Contains(t, s.log.String(), "user=eve")
	})
}

// The form is valid, but its user has lost the permission to make changes.
func TestARevokedPermissionEndsImmediately(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		var gone atomic.Bool
		s := shop.open(everything, func(c *chanqweb.Config) {
			c.Rights = func(*http.Request) chanqweb.Rights { return chanqweb.Rights{User: "ada", Change: !gone.Load()} }
		})
		token := s.token("/q/mail/")
		gone.Store(true)
		require.Equal(t, http.StatusForbidden, s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token).StatusCode)
		require.False(t, shop.Stats(shop.Mail).Paused)
	})
}

func TestAFormOfAnotherSiteChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		token := s.token("/q/mail/")
		refused := func(why string, r reply) {
			t.Helper()
			require.Equal(t, http.StatusForbidden, r.StatusCode, why)
			require.False(t, shop.Stats(shop.Mail).Paused, why)
		}
		refused("no token", s.post("mail", "do", "pause", "reason", "x", "sure", "yes"))
		refused("an invented token", s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", strings.Repeat("0", len(token))))

		other := shop.open(everything)
		refused("another visitor's", other.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token))
		other.token("/q/mail/") // now it has a cookie
		refused("that of another cookie", other.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token))

		secret := func(c *chanqweb.Config) { c.Secret = []byte(strings.Repeat("k", 32)) }
		ada, bob := shop.open(everything, secret), shop.open(chanqweb.Rights{User: "bob", Change: true}, secret)
		adas := ada.token("/q/mail/")
		bob.client.Jar.SetCookies(&url.URL{Scheme: "http", Host: "127.0.0.1"}, ada.client.Jar.Cookies(&url.URL{Scheme: "http", Host: "127.0.0.1"}))
		refused("that of another user, with the cookie", bob.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", adas))

		form := url.Values{"do": {"pause"}, "reason": {"x"}, "sure": {"yes"}, "token": {token}}.Encode()
		for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/q/mail/change", strings.NewReader(form))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set(header, value)
			refused(header, s.do(r))
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/q/mail/change?"+form, strings.NewReader(""))
		require.NoError(t, err)
		refused("in the address", s.do(r))

		require.Equal(t, http.StatusOK, s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token).StatusCode)
		require.True(t, shop.Stats(shop.Mail).Paused, "the page's own form")
	})
}

func TestTheCookieOfFormsIsLimitedToTheWebUI(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t).open(everything)
		cookies := s.get("/q/mail/").Cookies()
		require.Len(t, cookies, 1)
		require.True(t, cookies[0].HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, cookies[0].SameSite)
		require.Empty(t, s.get("/q/mail/").Cookies(), "it is kept")
	})
}

func TestChangesAreMadeAndLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		dead := shop.Kill(shop.Mail, "x", nil, fmt.Errorf("user 1 is unknown"), fmt.Errorf("user 2 is unknown"), fmt.Errorf("disk full"), fmt.Errorf("disk full"))
		ready := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("y")})[0]
		s := shop.open(everything)
		token := s.token("/q/mail/")
		did := func(says string, fields ...string) {
			t.Helper()
			r := s.post("mail", append(fields, "token", token)...)
			require.Equal(t, http.StatusOK, r.StatusCode, r.text)
			require.Contains(t, r.text, says)
		}
		did("The queue is paused", "do", "pause", "reason", "the <printer> burns", "sure", "yes")
		require.True(t, shop.Stats(shop.Mail).Paused)
		require.Regexp(t, `<span class="found">paused for [^<]* by ada: the &lt;printer&gt; burns <small>`, s.see("/q/mail/"))
		did("The queue is resumed", "do", "resume")
		require.False(t, shop.Stats(shop.Mail).Paused)

		did("One message is ready again", "do", "redrive", "id", dead[3].String(), "back", "dead")
		require.Equal(t, 3, shop.Stats(shop.Mail).Dead)
		did("The message is ready now: nothing was changed.", "do", "redrive", "id", dead[3].String(), "back", "dead")

		key := groupKey(t, s.see("/q/mail/failures"), "user 2 is unknown")
		did("2 messages are ready again", "do", "redrive", "group", key, "back", "failures")
		require.Equal(t, 1, shop.Stats(shop.Mail).Dead)

		last := groupKey(t, s.see("/q/mail/failures"), "disk full")
		did("Purge one message of queue mail?", "do", "purge", "group", last, "back", "failures")
		require.Equal(t, 1, shop.Stats(shop.Mail).Dead, "it requires a confirmation")
		require.Equal(t, http.StatusBadRequest, s.post("mail", "do", "cancel", "group", last, "sure", "yes", "token", token).StatusCode, "only dead ones have a cause")

		did("Purge one message of queue mail?", "do", "purge", "id", dead[2].String(), "back", "dead")
		require.Equal(t, 1, shop.Stats(shop.Mail).Dead, "it requires a confirmation")
		did("One message is purged", "do", "purge", "id", dead[2].String(), "back", "dead", "sure", "yes")
		require.Zero(t, shop.Stats(shop.Mail).Dead)

		did("If a handler is working on one, its context is cancelled within about a second.", "do", "cancel", "id", ready.String(), "back", "ready")
		did("One message is cancelled", "do", "cancel", "id", ready.String(), "back", "ready", "sure", "yes")
		require.Equal(t, 3, shop.Stats(shop.Mail).Ready, "those that were dead")

		for _, said := range []string{"do=pause", "do=resume", "do=redrive", "reason=\"the <printer> burns\"", "select.cause=rejected select.fingerprint=" + strings.TrimPrefix(key, "rejected-"), "changed=2", "do=purge", "do=cancel", "user=ada"} {
			require.Contains(t, s.log.String(), said)
		}
	})
}

// If the second statement fails for a group with more messages than one statement changes, the first part
// is purged.
func TestAFailedChangeShowsItsPartialResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		const dead, step = 1200, 1000
		causes := make([]error, dead)
		for i := range causes {
			causes[i] = fmt.Errorf("user %d is unknown", i)
		}
		shop.Kill(shop.Mail, "x", nil, causes...)
		s := shop.open(everything)
		page := s.see("/q/mail/failures")
		key, token := groupKey(t, page, "user"), s.token("/q/mail/failures")
		purges := sqlite.Dialect.Queue(sqlbatch.Names{Queue: "mail"}).Discard(nil)
		steps := 0
		shop.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if testdb.Runs(op, purges) {
				if steps++; steps == 2 {
					return faultdb.Fail(errors.New("host db7 is S3CRET"))
				}
			}
			return faultdb.Fault{}
		})
		r := s.post("mail", "do", "purge", "group", key, "back", "failures", "sure", "yes", "token", token)
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		require.Contains(t, r.text, "1\u2009000 messages are purged. Then the change failed, and its last step might have been applied; repeat it for the rest. The database")
		require.NotContains(t, r.text, "S3CRET")
		require.Contains(t, s.log.String(), "S3CRET")
		require.Equal(t, dead-step, shop.Stats(shop.Mail).Dead)
	})
}

// groupKey returns the form value for the group of an error.
func groupKey(t *testing.T, page, text string) string {
	t.Helper()
	before, _, found := strings.Cut(page, "<h2>"+text)
	require.True(t, found, text)
	key, _, _ := strings.Cut(before[strings.LastIndex(before, `id="c-`)+len(`id="c-`):], `"`)
	return key
}

func TestAnInvalidFormIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		token := s.token("/q/mail/")
		many := []string{"do", "redrive", "token", token}
		for range 101 {
			many = append(many, "id", chanq.NewID().String())
		}
		for _, fields := range [][]string{
			{"do", "drop"}, {"do", ""}, {"do", "redrive"}, {"do", "redrive", "id", "odd"}, {"do", "cancel", "sure", "yes"}, {"do", "redrive", "group", "odd"}, {"do", "redrive", "group", "rejected"}, {"do", "redrive", "group", "rejected-<b>"}, {"do", "pause", "reason", strings.Repeat("x", 401)}, many,
		} {
			r := s.post("mail", append(fields, "token", token)...)
			require.Equal(t, http.StatusBadRequest, r.StatusCode, fields[:2])
		}
		require.Equal(t, http.StatusNotFound, s.post("nothing", "do", "pause", "token", token).StatusCode)
		r := s.post("mail", "do", "pause", "token", token, "id", strings.Repeat("x", 300<<10))
		require.Equal(t, http.StatusBadRequest, r.StatusCode, "it is too long")
		require.False(t, shop.Stats(shop.Mail).Paused)
	})
}

// With any content, a form redirects only to addresses of the web UI.
func TestATextThatCannotBeSearchedIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t).open(everything)
		for text, says := range map[string]string{
			"": "The text has 0 bytes: it must have from 1 to ", strings.Repeat("x", 1_000_000): " bytes: it must have from 1 to ",
			"a%00": "The text is not in UTF-8, or has a zero character.", "%ff": "The text is not in UTF-8, or has a zero character.",
		} {
			r := s.get("/q/mail/find?text=" + text)
			require.Equal(t, http.StatusBadRequest, r.StatusCode, says)
			require.Contains(t, r.text, says)
		}
		require.NotContains(t, s.log.String(), "a statement failed")
	})
}

func TestAFormDoesNotRedirectElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		token := s.token("/q/mail/")
		for _, back := range []string{"https://evil.example", "//evil.example", "../../../..", "dead", "failures"} {
			r := s.post("mail", "do", "resume", "token", token, "back", back)
			require.Equal(t, http.StatusOK, r.StatusCode)
			require.True(t, strings.HasPrefix(r.Request.URL.String(), s.url+"/q/mail/"), r.Request.URL)
		}
	})
}

// Anyone can enter an address. It shows the result of a change only to the visitor who has just made the
// change.
func TestANoticeReportsTheLastChangeOfTheVisitor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		r := s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", s.token("/q/mail/"))
		require.Contains(t, r.text, `role="status">The queue is paused`)
		own := strings.TrimPrefix(r.Request.URL.String(), s.url)
		require.Contains(t, s.see(own), `role="status">The queue is paused`, "loaded again")
		require.NotContains(t, s.see(strings.Replace(own, "paused", "resumed", 1)), `class="notice" role="status"`, "another deed")
		for _, query := range []string{"?said=all+is+lost", "?said=<b>", "?said=all+is+lost&at=" + fmt.Sprint(time.Now().Unix()), "?said=all+is+lost&seal=" + strings.Repeat("0", 64) + "&at=" + fmt.Sprint(time.Now().Unix())} {
			require.NotContains(t, s.see("/q/mail/"+query), `class="notice" role="status"`, query)
		}
		for visitor, rights := range map[string]chanqweb.Rights{"may only look": {}, "another visitor": everything} {
			other := shop.open(rights)
			require.NotContains(t, other.see(own), `class="notice" role="status"`, visitor)
			require.NotContains(t, other.see(own), `class="notice" role="status"`, visitor)
		}
		time.Sleep(2 * time.Minute)
		require.NotContains(t, s.see(own), `class="notice" role="status"`, "it is long past")
	})
}
