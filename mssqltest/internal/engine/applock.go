package engine

import (
	"strings"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

var appModes = map[string]lock.Mode{
	"shared": lock.S, "update": lock.U, "exclusive": lock.X, "intentshared": lock.IS, "intentexclusive": lock.IX,
}

// named arranges the arguments of a system procedure by its parameters.
func named(proc string, args []argument, names ...string) ([]string, error) {
	out := make([]string, len(names))
	for i, a := range args {
		at := i
		if a.name != "" {
			at = -1
			for j, n := range names {
				if sameName(a.name, n) {
					at = j
				}
			}
		}
		if at < 0 || at >= len(names) {
			return nil, sqlError(8145, "%s is not a parameter for procedure %s.", a.name, proc)
		}
		if a.val == nil {
			continue
		}
		text, err := toText(a.val, a.typ, 0)
		if err != nil {
			return nil, err
		}
		out[at] = text
	}
	return out, nil
}

// appOwner returns the owner of an application lock: the transaction, or the session, which keeps it after statements,
// transactions and sp_reset_connection until it releases it or ends. It is nil if there is no such owner.
func (s *Session) appOwner(name string) lock.Owner {
	switch {
	case strings.EqualFold(name, "Session"):
		if s.apps == nil {
			s.apps = s.e.locks.NewOwner(s.id, s.set.deadlockPriority)
		}
		return s.apps
	case s.tx != nil && (name == "" || strings.EqualFold(name, "Transaction")):
		return s.tx.owner
	}
	return nil
}

// appResource returns the lock of a name, of which the first 255 characters count.
func appResource(name string) lock.Resource {
	return lock.Resource{App: cutText(name, sqltype.NVarChar, 255)}
}

// getAppLock takes an application lock. It returns a number, not an error: 0 granted at once, 1 after a wait, -1 timed
// out, -2 cancelled, -3 deadlock victim, -999 wrong call. Names are compared byte by byte, whatever the collation
// ("sp_getapplock (Transact-SQL)").
func (s *Session) getAppLock(args []argument) (int64, error) {
	v, err := named("sp_getapplock", args, "@Resource", "@LockMode", "@LockOwner", "@LockTimeout", "@DbPrincipal")
	if err != nil {
		return 0, err
	}
	mode, ok := appModes[strings.ToLower(v[1])]
	owner := s.appOwner(v[2])
	if !ok || owner == nil || v[0] == "" {
		return -999, nil
	}
	wait := lock.Wait{Timeout: s.set.lockTimeout}
	if v[3] != "" {
		n, err := toInteger(v[3], typeText, typeInt)
		if err != nil {
			return 0, err
		}
		wait.Timeout = time.Duration(n.(int64)) * time.Millisecond
		if n.(int64) < 0 {
			wait.Timeout = -1
		}
	}
	r := appResource(v[0])
	err = owner.Lock(s.ctx, r, mode, tryOnly)
	if err == nil {
		return 0, nil
	}
	err = owner.Lock(s.ctx, r, mode, wait)
	if err == nil {
		return 1, nil
	}
	if s.ctx.Err() != nil {
		return -2, s.ctx.Err()
	}
	if e, ok := err.(*sqltype.Error); ok {
		switch e.Number {
		case 1222:
			return -1, nil
		case 1205:
			return -3, nil
		}
	}
	return 0, err
}

// releaseAppLock releases the lock of one getAppLock: it returns 0, or an error and -999 if the
// owner does not hold it.
func (s *Session) releaseAppLock(args []argument) (int64, error) {
	v, err := named("sp_releaseapplock", args, "@Resource", "@LockOwner", "@DbPrincipal")
	if err != nil {
		return 0, err
	}
	r := appResource(v[0])
	owner := s.appOwner(v[1])
	if owner == nil || owner.Held(r) == lock.None {
		return -999, sqlError(1223, "Cannot release the application lock (Database Principal: 'public', Resource: '%s') because it is not currently held.", v[0])
	}
	owner.Unlock(r, owner.Held(r))
	return 0, nil
}
