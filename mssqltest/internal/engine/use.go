package engine

import (
	"strings"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// firstDatabase is the database that the login requested.
func (s *Session) firstDatabase() string {
	if s.login.Database == "" {
		return "master"
	}
	return s.login.Database
}

// use is USE. There is one database; master is an alias for it, as at the login, because drivers switch to it and back.
func (s *Session) use(name string) error {
	if !strings.EqualFold(name, s.e.db.name) && !strings.EqualFold(name, "master") {
		return sqlError(911, "Database '%s' does not exist. Make sure that the name is entered correctly.", name)
	}
	was := s.database
	s.database = name
	s.sentResult(s.out.Database(name, was))
	s.report(&sqltype.Error{Number: 5701, State: 1, Message: "Changed database context to '" + name + "'."})
	return nil
}
