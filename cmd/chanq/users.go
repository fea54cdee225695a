package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/chanq/chanq/chanqweb"
)

// users are those of a file, as htpasswd -B writes it: a line has a name and the bcrypt hash of a password, and :change after it if the
// user may change queues.
type users struct {
	of   map[string]account
	none []byte   // a hash for names that are not in the file, so that they take as long
	salt [32]byte // of seen

	work chan struct{} // has a value for each run of bcrypt: wrong passwords use half of the processors

	mu   sync.Mutex
	seen map[string][sha256.Size]byte // passwords that bcrypt has accepted: a page has many requests, and each would take as long as the first
}

type account struct {
	hash   []byte
	change bool
}

const roleChange = "change"

// mostBcrypt is the largest cost: a check then takes about 4 s.
const mostBcrypt = 16

// readUsers reads a file. Its errors name the line, and not what is in it.
func readUsers(file string) (*users, error) {
	wrong := func(format string, args ...any) (*users, error) { return nil, usage("--users "+file+format, args...) }
	f, err := os.Open(file)
	if err != nil {
		return nil, usage("--users: %w", err)
	}
	defer f.Close()
	u := &users{of: map[string]account{}, work: make(chan struct{}, (runtime.GOMAXPROCS(0)+1)/2), seen: map[string][sha256.Size]byte{}}
	rand.Read(u.salt[:]) // never fails
	most := bcrypt.MinCost
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, ":")
		if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
			return wrong(", line %d: must be NAME:HASH or NAME:HASH:%s", n, roleChange)
		}
		if len(parts) == 3 && parts[2] != roleChange {
			return wrong(", line %d: after the hash is %q: must be %s, or nothing for a user who may only view", n, brief(parts[2], 40), roleChange)
		}
		cost, err := bcrypt.Cost([]byte(parts[1]))
		if err != nil || cost > mostBcrypt {
			return wrong(", line %d: the hash must be one of bcrypt, of a cost up to %d, as htpasswd -nB NAME prints it", n, mostBcrypt)
		}
		if _, twice := u.of[parts[0]]; twice {
			return wrong(", line %d: the name %s is in the file twice", n, brief(parts[0], 40))
		}
		u.of[parts[0]] = account{[]byte(parts[1]), len(parts) == 3}
		most = max(most, cost)
	}
	switch err := lines.Err(); {
	case err != nil:
		return wrong(": %w", err)
	case len(u.of) == 0:
		return wrong(": no user is in the file")
	}
	u.none, err = bcrypt.GenerateFromPassword([]byte(rand.Text()), most)
	if err != nil {
		return nil, fmt.Errorf("--users: %w", err)
	}
	return u, nil
}

// check is for chanqweb.WithLogin.
func (u *users) check(name, password string) (chanqweb.Rights, bool) {
	given := sha256.Sum256([]byte(string(u.salt[:]) + password))
	a, known := u.of[name]
	u.mu.Lock()
	seen, ok := u.seen[name]
	u.mu.Unlock()
	if !ok || subtle.ConstantTimeCompare(seen[:], given[:]) != 1 {
		if !known {
			a.hash = u.none
		}
		u.work <- struct{}{}
		wrong := bcrypt.CompareHashAndPassword(a.hash, []byte(password))
		<-u.work
		if wrong != nil || !known {
			return chanqweb.Rights{}, false
		}
		u.mu.Lock()
		u.seen[name] = given
		u.mu.Unlock()
	}
	return chanqweb.Rights{User: name, Change: a.change}, true
}
