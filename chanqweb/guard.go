package chanqweb

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// What keeps others out: other sites by what their pages may make a browser do, and other
// people by a password.

// policy lets a page use its own files only, and be shown in no frame. Forms go to the
// page itself.
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

// The token of a form is a MAC over a random cookie and the user: another site can have a
// browser send the cookie, but neither reads it nor knows the key.
const (
	cookieName  = "chanq_form"
	cookieBytes = 32
)

// nonce returns that of the cookie, or a new one that it has the browser keep.
func nonce(w http.ResponseWriter, r *http.Request) string {
	if n, ok := sentNonce(r); ok {
		return n
	}
	raw := make([]byte, cookieBytes)
	rand.Read(raw) // which never fails
	n := hex.EncodeToString(raw)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: n, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	return n
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

// mac is that of some values, by Config.Secret.
func (h *Handler) mac(values ...string) string {
	mac := hmac.New(sha256.New, h.cfg.Secret)
	for _, v := range values {
		fmt.Fprintf(mac, "%d:%s", len(v), v)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// genuine reports whether a form is one that this page gave to this user.
func (h *Handler) genuine(r *http.Request, user string) bool {
	n, ok := sentNonce(r)
	return ok && h.origin.Check(r) == nil && equal(h.token(n, user), r.PostFormValue("token"))
}

// LocalOnly answers only requests that come from this machine, over a loopback address, and
// ask for it by one of its own names: localhost or a loopback address. That they come from it
// is not enough: a site elsewhere may have its own name lead there, and then a browser here
// gives it the answers. A proxy on this machine passes only if it asks for localhost; who
// reaches that sees the page.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) || !loopback(r.RemoteAddr) {
			harden(w.Header())
			http.Error(w, "This page is for this machine: ask for it as localhost.", http.StatusMisdirectedRequest)
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

// WithPassword asks for a password (HTTP's basic authentication), whatever the user's name
// is, which User returns. It is no more secret than the connection: use TLS. If it is "", as
// that of a variable that nobody has set, no password is right.
func WithPassword(next http.Handler, password string) http.Handler {
	want := sha256.Sum256([]byte(password))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, ok := r.BasicAuth()
		got := sha256.Sum256([]byte(given))
		if !ok || password == "" || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			harden(w.Header())
			w.Header().Set("WWW-Authenticate", `Basic realm="chanq", charset="UTF-8"`)
			http.Error(w, "A password is needed.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// User is the name that somebody gave with the password of WithPassword; "" is none.
// Nobody has checked it: any name goes with the password.
func User(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return name
}
