package chanqweb

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Protection against requests that other sites cause a browser to send.

// policy allows a page only its own files and forms, and forbids framing it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func harden(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// The token of a form is a MAC of a random cookie and the user. Another site can cause a browser to send the cookie, but it cannot read
// it and does not know the key.
const (
	cookieName  = "chanq_form"
	cookieBytes = 32
)

// nonce returns the value of the cookie. If there is none, it sets one.
func nonce(w http.ResponseWriter, r *http.Request) string {
	if n, ok := sentNonce(r); ok {
		return n
	}
	raw := make([]byte, cookieBytes)
	rand.Read(raw) // never fails
	n := hex.EncodeToString(raw)
	http.SetCookie(w, newCookie(r, cookieName, n, 0))
	return n
}

// newCookie returns a cookie that lasts for a time, or until the browser is closed if that is 0.
func newCookie(r *http.Request, name, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(lasts / time.Second), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
}

func sentNonce(r *http.Request) (string, bool) {
	c, err := r.Cookie(cookieName)
	if err != nil || len(c.Value) != 2*cookieBytes {
		return "", false
	}
	_, err = hex.DecodeString(c.Value)
	return c.Value, err == nil
}

func (h *Handler) token(nonce, user string) string { return h.mac("form", nonce, user) }

// mac returns the MAC of values, keyed with Config.Secret.
func (h *Handler) mac(values ...string) string { return mac(h.cfg.Secret, values...) }

func mac(key []byte, values ...string) string {
	mac := hmac.New(sha256.New, key)
	for _, v := range values {
		fmt.Fprintf(mac, "%d:%s", len(v), v)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// genuine reports whether this UI made the form, for this user.
func (h *Handler) genuine(r *http.Request, user string) bool {
	n, ok := sentNonce(r)
	return ok && h.origin.Check(r) == nil && equal(h.token(n, user), r.PostFormValue("token"))
}

// permit refuses a change by a visitor who may not make it, and by a form that this UI has not made. of says in the log what was to change.
func (h *Handler) permit(v *visit, of ...any) error {
	why := errNoToken
	switch {
	case !v.rights.Change:
		why = errNoChange
	case h.genuine(v.Request, v.rights.User):
		return nil
	}
	h.cfg.Log.Warn("chanqweb: a change was refused", append(of, "user", v.rights.User, "from", v.RemoteAddr, "why", why.text)...)
	return why
}

// LocalOnly rejects every request that does not come from a loopback address, or whose Host is neither localhost nor a loopback address.
// The address alone is not enough: another site may let its own name resolve to 127.0.0.1, and a browser on this machine would then pass
// it the responses. Requests of a proxy on this machine are accepted if their Host is localhost: everyone who reaches that proxy sees the
// UI.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) || !loopback(r.RemoteAddr) {
			harden(w.Header())
			http.Error(w, "This web UI serves its own machine only: use the address localhost.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
