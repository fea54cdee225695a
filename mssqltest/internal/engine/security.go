package engine

import (
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// security runs CREATE LOGIN, CREATE USER, CREATE ROLE, ALTER ROLE and GRANT, as far as tests of errors 229, 230 and 262 need them:
// permissions on objects, columns, schemas and the database, granted to users and roles.
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
		return true, db.addUser(st.Name.Value)
	case *ast.CreateRoleStatement:
		return true, db.addUser(st.Name.Value)
	case *ast.AlterRoleStatement:
		add, ok := st.Action.(*ast.AddMemberAlterRoleAction)
		if !ok {
			return true, errUnsupported("ALTER ROLE but ADD MEMBER")
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		role, member := db.users[lower(st.Name.Value)], db.users[lower(add.Member.Value)]
		if role == nil || member == nil {
			return true, sqlError(15151, "Cannot alter the role '%s', because it does not exist or you do not have permission.", st.Name.Value)
		}
		member.roles = append(member.roles, role)
		return true, nil
	case *ast.GrantStatement:
		return true, x.permit(st.Permissions, st.Principals, st.SecurityTargetObject)
	}
	return false, nil
}

// addUser creates a user or a role.
func (db *database) addUser(name string) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.users[lower(name)] != nil {
		return sqlError(15023, "User, group, or role '%s' already exists in the current database.", name)
	}
	db.users[lower(name)] = &user{name: name, granted: map[string]bool{}}
	return nil
}

func (x *exec) permit(perms []*ast.Permission, to []*ast.SecurityPrincipal, on *ast.SecurityTargetObject) error {
	db := x.s.e.db
	target := wholeDatabase
	if on != nil && on.ObjectName != nil {
		parts := on.ObjectName.MultiPartIdentifier.Identifiers
		schema, name := "dbo", parts[len(parts)-1].Value
		if len(parts) > 1 {
			schema = parts[len(parts)-2].Value
		}
		target = objectKey(schema, name)
		if on.ObjectKind == "Schema" {
			target = lower(name) + ".*"
		} else if db.object(schema, name) == nil {
			return sqlError(15151, "Cannot find the object '%s', because it does not exist or you do not have permission.", name)
		}
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
			rule := strings.Join(words, " ") + " " + target
			columns := perm.Columns
			if on != nil {
				columns = append(columns[:len(columns):len(columns)], on.Columns...)
			}
			if len(columns) == 0 {
				u.granted[rule] = true
			}
			for _, c := range columns {
				u.granted[rule+" "+lower(c.Value)] = true
			}
		}
	}
	return nil
}

// wholeDatabase is the target of a permission that names none.
const wholeDatabase = "*"

// has reports whether the session's user has one permission, directly or by a role.
func (s *Session) has(permission, schema, name string) bool {
	return s.granted(permission, objectKey(schema, name), lower(schema)+".*", wholeDatabase)
}

// sees reports whether a user has a permission on an object, on its schema or on all objects. A user without one finds no metadata of
// it, and neither does a procedure that the user calls ("Metadata Visibility Configuration").
func (s *Session) sees(o *object) bool {
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE", "REFERENCES", "ALTER", "CONTROL", "VIEW DEFINITION"} {
		if s.has(right, o.schema, o.name) {
			return true
		}
		if o.table != nil && slices.ContainsFunc(o.table.cols, func(c *column) bool { return s.hasColumn(right, o.table, o.table.column(c.name)) }) {
			return true
		}
	}
	return false
}

// hasColumn decides the same for one column of a table of which the user may not read all columns.
func (s *Session) hasColumn(permission string, t *table, column int) bool {
	return s.granted(permission, objectKey(t.schema, t.name)+" "+lower(t.cols[column].name))
}

// granted reports whether one of the targets is granted.
func (s *Session) granted(permission string, targets ...string) bool {
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
	for _, principal := range append([]*user{u}, u.roles...) {
		for _, target := range targets {
			if principal.granted[permission+" "+target] {
				return true
			}
		}
	}
	return false
}

// allowed checks a statement's tables. Inside a procedure the permission on the procedure is enough: dbo owns all objects.
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
	read := func(u *baseUse) error {
		if u.view != nil { // dbo owns the view, as it owns the table
			if s.has("SELECT", u.view.schema, u.view.name) {
				return nil
			}
			return errDenied("SELECT", u.view.name, s.e.db.name, u.view.schema)
		}
		err := check("SELECT", u.table)
		if err == nil {
			return nil
		}
		some := false
		for c := range u.table.cols {
			some = some || s.hasColumn("SELECT", u.table, c)
		}
		if !some {
			return err
		}
		for c := range u.need {
			if !s.hasColumn("SELECT", u.table, c) {
				return sqlError(230, "The SELECT permission was denied on the column '%s' of the object '%s', database '%s', schema '%s'.",
					u.table.cols[c].name, u.table.name, s.e.db.name, u.table.schema)
			}
		}
		return nil
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
			if err := read(u); err != nil {
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
