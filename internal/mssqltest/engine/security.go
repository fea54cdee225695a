package engine

import (
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// security runs CREATE LOGIN, CREATE USER, GRANT, DENY and REVOKE, as much of
// them as tests of error 229 need: permissions on objects, given to users.
func (x *exec) security(st ast.Statement) (done bool, _ error) {
	e, db := x.s.e, x.s.e.db
	switch st := st.(type) {
	case *ast.CreateLoginStatement:
		src, ok := st.Source.(*ast.PasswordCreateLoginSource)
		if !ok {
			return true, errUnsupported("CREATE LOGIN without PASSWORD")
		}
		password, ok := src.Password.(*ast.StringLiteral)
		if !ok {
			return true, errUnsupported("CREATE LOGIN with a hashed password")
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, has := e.logins[lower(st.Name.Value)]; has {
			return true, sqlError(15025, "The server principal '%s' already exists.", st.Name.Value)
		}
		e.logins[lower(st.Name.Value)] = password.Value
		return true, nil
	case *ast.CreateUserStatement:
		db.mu.Lock()
		defer db.mu.Unlock()
		if db.users[lower(st.Name.Value)] != nil {
			return true, sqlError(15023, "User, group, or role '%s' already exists in the current database.", st.Name.Value)
		}
		db.users[lower(st.Name.Value)] = &user{name: st.Name.Value, rules: map[string]bool{}}
		return true, nil
	case *ast.GrantStatement:
		return true, x.permit(st.Permissions, st.Principals, st.SecurityTargetObject, true)
	case *ast.DenyStatement:
		return true, x.permit(st.Permissions, st.Principals, st.SecurityTargetObject, false)
	}
	return false, nil
}

func (x *exec) permit(perms []*ast.Permission, to []*ast.SecurityPrincipal, on *ast.SecurityTargetObject, allow bool) error {
	db := x.s.e.db
	if on == nil || on.ObjectName == nil {
		return errUnsupported("permission on the database")
	}
	parts := on.ObjectName.MultiPartIdentifier.Identifiers
	schema, name := "dbo", parts[len(parts)-1].Value
	if len(parts) > 1 {
		schema = parts[len(parts)-2].Value
	}
	target := objectKey(schema, name)
	if on.ObjectKind == "Schema" {
		target = lower(name) + ".*"
	} else if db.object(schema, name) == nil {
		return sqlError(15151, "Cannot find the object '%s', because it does not exist or you do not have permission.", name)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, p := range to {
		if p.Identifier == nil {
			return errUnsupported("permission for PUBLIC")
		}
		u := db.users[lower(p.Identifier.Value)]
		if u == nil {
			return sqlError(15151, "Cannot find the user '%s', because it does not exist or you do not have permission.", p.Identifier.Value)
		}
		for _, perm := range perms {
			words := make([]string, len(perm.Identifiers))
			for i, w := range perm.Identifiers {
				words[i] = strings.ToUpper(w.Value)
			}
			u.rules[strings.Join(words, " ")+" "+target] = allow
		}
	}
	return nil
}

// has decides one permission: DENY is stronger than GRANT.
func (s *Session) has(permission, schema, name string) bool {
	if s.user == "dbo" {
		return true
	}
	db := s.e.db
	db.mu.RLock()
	defer db.mu.RUnlock()
	u := db.users[lower(s.user)]
	if u == nil {
		return false
	}
	granted := false
	for _, target := range []string{objectKey(schema, name), lower(schema) + ".*"} {
		if allow, known := u.rules[permission+" "+target]; known {
			if !allow {
				return false
			}
			granted = true
		}
	}
	return granted
}

// allowed checks a statement's tables. Inside a procedure the procedure's
// permission is enough: the owner of all is dbo.
func (s *Session) allowed(n *node, uses []*baseUse, writes []*table) error {
	if s.user == "dbo" || s.frame != nil && s.frame.proc != "" {
		return nil
	}
	check := func(action string, t *table) error {
		if t.private || s.has(action, t.schema, t.name) {
			return nil
		}
		return errDenied(action, t.name, s.e.db.name, t.schema)
	}
	for _, u := range uses {
		if u.target {
			action := "UPDATE"
			if _, ok := n.st.(*ast.DeleteStatement); ok {
				action = "DELETE"
			}
			if err := check(action, u.table); err != nil {
				return err
			}
		}
		if !u.target || len(u.need) > 0 {
			if err := check("SELECT", u.table); err != nil {
				return err
			}
		}
	}
	for _, t := range writes {
		if err := check("INSERT", t); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) mayExecute(o *object) error {
	if s.user == "dbo" || s.frame != nil && s.frame.proc != "" || s.has("EXECUTE", o.schema, o.name) {
		return nil
	}
	return errDenied("EXECUTE", o.name, s.e.db.name, o.schema)
}
