package chanqweb

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Names and passwords of users.

// Password returns a check for WithLogin: one password, for any user name, which is not verified. It compares in a time that does not depend
// on where the passwords differ. If password is "", for example from an unset variable, every one is wrong.
func Password(password string, rights Rights) func(name, given string) (Rights, bool) {
	want := sha256.Sum256([]byte(password))
	return func(name, given string) (Rights, bool) {
		got := sha256.Sum256([]byte(given))
		of := rights
		of.User = name
		return of, subtle.ConstantTimeCompare(got[:], want[:]) == 1 && password != ""
	}
}

// WithLogin requires a name and a password by HTTP basic authentication. check, for example of Password, returns what the user may do, and
// false if the password is wrong. Config.Rights must be Login, or a function that calls it. A password is as secret as the connection: use
// TLS.
//
// Wrong passwords are logged. After 10 from an address in a minute, its requests are rejected until the minute is over. Browsers
// that have logged in continue: their cookie, which is no login by itself, lasts 30 days or until the process ends.
func WithLogin(next http.Handler, check func(name, password string) (Rights, bool), log *slog.Logger) http.Handler {
	l := &logins{check: check, log: cmp.Or(log, slog.Default()), key: make([]byte, leastSecret), from: map[netip.Prefix]*tries{}}
	rand.Read(l.key) // never fails
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, given := r.BasicAuth()
		rights, wait := Rights{}, time.Duration(0)
		if given {
			proof := mac(l.key, name, password)
			sent, _ := r.Cookie(loginCookie)
			known := sent != nil && equal(sent.Value, proof)
			if known {
				rights, known = check(name, password) // it may have been changed
			}
			if given = known; !known {
				rights, given, wait = l.try(r.RemoteAddr, name, password)
			}
			if given && !known {
				http.SetCookie(w, newCookie(r, loginCookie, proof, loginFor))
			}
		}
		if given {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), loginKey{}, rights)))
			return
		}
		harden(w.Header())
		if wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
			http.Error(w, "Too many wrong passwords came from your address: wait a minute.", http.StatusTooManyRequests)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="chanq", charset="UTF-8"`)
		http.Error(w, "This web UI requires a password.", http.StatusUnauthorized)
	})
}

// Login returns what the check of WithLogin returned for a request, or the zero Rights.
func Login(r *http.Request) Rights {
	rights, _ := r.Context().Value(loginKey{}).(Rights)
	return rights
}

type loginKey struct{}

const (
	loginCookie = "chanq_login"
	loginFor    = 30 * 24 * time.Hour

	mostWrong   = 10 // passwords of an address in wrongFor
	wrongFor    = time.Minute
	mostAddress = 10_000 // addresses that are remembered
)

// logins checks passwords, and counts the wrong ones of each address.
type logins struct {
	check func(name, password string) (Rights, bool)
	log   *slog.Logger
	key   []byte // of the cookies

	mu   sync.Mutex
	from map[netip.Prefix]*tries
}

// tries are the wrong passwords of an address since the first one.
type tries struct {
	mu    sync.Mutex // is held during a check, so that simultaneous requests are not checked before they are counted
	since time.Time
	wrong int
}

// try checks a password. If it does not because there were too many wrong ones, wait is for how long.
func (l *logins) try(address, name, password string) (rights Rights, ok bool, wait time.Duration) {
	t := l.of(address)
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.since) >= wrongFor {
		t.wrong = 0
	}
	if t.wrong >= mostWrong {
		return Rights{}, false, wrongFor - time.Since(t.since)
	}
	if rights, ok = l.check(name, password); ok {
		return rights, true, 0
	}
	if t.wrong++; t.wrong == 1 {
		t.since = time.Now()
	}
	l.log.Warn("chanqweb: a wrong password", "from", address, "user", clip(name, 100), "wrong", t.wrong, "most", mostWrong)
	return Rights{}, false, 0
}

// of returns the tries of an address. If there are too many addresses, it forgets all.
func (l *logins) of(address string) *tries {
	network := networkOf(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.from[network]
	if t == nil {
		if len(l.from) >= mostAddress {
			clear(l.from)
		}
		t = &tries{}
		l.from[network] = t
	}
	return t
}

// networkOf returns the addresses that one user can have: of IPv6 all of its network. An address without a form, for example of a unix
// socket, is the zero Prefix.
func networkOf(address string) netip.Prefix {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 64
	if ip = ip.Unmap(); ip.Is4() {
		bits = 32
	}
	network, _ := ip.WithZone("").Prefix(bits) // the bits are valid
	return network
}
