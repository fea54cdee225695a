package chanqweb_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
)

var (
	tags = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	text = regexp.MustCompile(`"[^"]*"`)
)

// shapes returns the tags of a page, without the values of their attributes.
func shapes(page string) map[string]bool {
	found := map[string]bool{}
	for _, tag := range tags.FindAllString(page, -1) {
		found[text.ReplaceAllString(tag, `""`)] = true
	}
	return found
}

// benign returns the tags of all pages of a shop without hostile texts.
func benign(t *testing.T) map[string]bool {
	t.Helper()
	harmless.mu.Lock()
	defer harmless.mu.Unlock()
	if harmless.shapes != nil {
		return harmless.shapes
	}
	shop := newShop(t)
	shop.Fill()
	all := map[string]bool{}
	s := shop.open(everything)
	for range 2 { // the first visit makes a history
		for at, page := range s.crawl() {
			if !strings.Contains(at, "/assets/") && !strings.HasSuffix(at, "/body") {
				for shape := range shapes(page) {
					all[shape] = true
				}
			}
		}
		time.Sleep(2 * chanqadmin.StepFine)
	}
	harmless.shapes = all
	return all
}

// harmless caches the result of the first test.
var harmless struct {
	mu     sync.Mutex
	shapes map[string]bool
}

// hostile puts a text into every text field of messages, and returns the pages that show it.
func hostile(t testing.TB, shop *shop, evil string) map[string]string {
	t.Helper()
	headers := map[string]string{"h": evil}
	if !utf8.ValidString(evil) {
		headers = nil
	}
	dead := shop.Kill(shop.Mail, evil, headers, fmt.Errorf("%s", evil), fmt.Errorf("also: %s", evil))
	s := shop.open(chanqweb.Rights{User: evil, Change: true, Bodies: true}, func(c *chanqweb.Config) { c.Title = evil })
	pages := map[string]string{}
	for _, path := range []string{
		"/", "/q/mail/", "/q/mail/messages?state=dead", "/q/mail/failures", "/q/mail/consumers",
		"/q/mail/m/" + dead[0].String(), "/q/mail/m/" + dead[0].String() + "?as=text", "/q/mail/m/" + dead[0].String() + "?as=hex",
	} {
		pages[path] = s.see(path)
	}
	_, err := testdb.PurgeIDs(t.Context(), shop.Mail, dead...)
	require.NoError(t, err)
	return pages
}

// requireBenign requires that evil is readable on a page and adds no tag to it.
func requireBenign(t testing.TB, known map[string]bool, pages map[string]string) {
	t.Helper()
	for path, page := range pages {
		require.Equal(t, 1, strings.Count(page, "<script"), path)
		require.True(t, utf8.ValidString(page), path)
		for shape := range shapes(page) {
			require.True(t, known[shape], "%s has %s", path, shape)
		}
		require.False(t, strings.ContainsAny(page, "\u202e\u2066\u200f\x00\x1b"), "%s hides something", path)
	}
}

func TestHostileTextsAreShownAsText(t *testing.T) {
	bubble(t, func(t *testing.T) {
		known := benign(t)
		shop := newShop(t)
		for _, evil := range webshop.Evils {
			requireBenign(t, known, hostile(t, shop, evil))
		}
	})
}

// Other programs also choose the names of consumers.
func TestTheNameOfAConsumerIsShownUnchanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		known := benign(t)
		shop := newShop(t)
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})
		shop.Consume(shop.Mail, `<img src=x onerror=alert(1)>`, 1)
		s := shop.open(everything)
		pages := map[string]string{"consumers": s.see("/q/mail/consumers"), "queue": s.see("/q/mail/"), "leased": s.see("/q/mail/messages?state=leased")}
		requireBenign(t, known, pages)
		for where, page := range pages {
			require.Contains(t, page, "&lt;img src=x", where)
		}
	})
}
