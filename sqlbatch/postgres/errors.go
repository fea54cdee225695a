package postgres

import (
	"database/sql"
	"errors"
	"net"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// Classify uses the SQLSTATE, from the method that errors of both pgx and lib/pq have. An error that the server reports
// undid the statement. The outcome is unknown if the connection broke, and for errors that come with the end of a
// connection.
func (dialect) Classify(err error) sqlbatch.Class {
	var server interface{ SQLState() string }
	if errors.As(err, &server) && len(server.SQLState()) == 5 {
		if server.SQLState() == "XX000" {
			return classifyText(err.Error())
		}
		return classifySQLState(server.SQLState())
	}
	var safe interface{ SafeToRetry() bool } // pgx: nothing was sent
	var network *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, sql.ErrConnDone),
		errors.As(err, &safe) && safe.SafeToRetry(),
		errors.As(err, &network) && network.Op == "dial",
		errors.As(err, &name):
		return sqlbatch.Refused
	}
	// driver.ErrBadConn is also Unknown: lib/pq returns it also when the connection ends before the answer.
	return sqlbatch.Unknown
}

// states has the SQLSTATEs (PostgreSQL's appendix A) that differ from their class, which is the first two characters.
var states = map[string]sqlbatch.Class{
	"08001": sqlbatch.Refused, "08004": sqlbatch.Refused, // not connected
	"23505": sqlbatch.Duplicate,
	"25006": sqlbatch.Refused,    // read-only: a standby, the first sign of a failover
	"25P02": sqlbatch.RolledBack, // the transaction had already failed
	"25P03": sqlbatch.RolledBack, // idle in transaction for too long: the transaction was rolled back
	"3D000": sqlbatch.Refused,    // no such database: it is being restored
	"3F000": sqlbatch.NoSchema,
	"40003": sqlbatch.Unknown,    // statement completion unknown
	"42P01": sqlbatch.NoSchema,   // table
	"42703": sqlbatch.NoSchema,   // column
	"42P05": sqlbatch.Refused,    // a pooler per transaction changed the server under a
	"26000": sqlbatch.Refused,    // prepared statement; a new connection prepares again
	"55P03": sqlbatch.RolledBack, // lock_timeout
	"55006": sqlbatch.RolledBack, // object in use
	"57014": sqlbatch.RolledBack, // statement_timeout, pg_cancel_backend
	"57P03": sqlbatch.Refused,    // starting up or shutting down
	"57P05": sqlbatch.Refused,    // idle for too long; the statement came afterwards
	"0A000": sqlbatch.Permanent,  // feature not supported
}

var stateClasses = map[string]sqlbatch.Class{
	"22": sqlbatch.BadRow,  // data exception
	"23": sqlbatch.BadRow,  // constraint, added by a DBA
	"28": sqlbatch.Refused, // login: a password is being rotated, or a standby takes over; the statement was not run
	"40": sqlbatch.RolledBack,
	"42": sqlbatch.Permanent, // permission, syntax, types
	"53": sqlbatch.Refused,   // no memory, disk, connections: undone, and an operator must act
	"54": sqlbatch.BadRow,    // too long for the program's limits
	"P0": sqlbatch.BadRow,    // a DBA's trigger refuses the row
}

// classifyText classifies an error of an INSERT that Citus has turned into a COPY to a worker by its text, since its
// SQLSTATE is meaningless. A COPY that failed this way is undone, but broken connections also have XX000 (see
// classifySQLState), so it matches only texts that certainly come from a worker: a duplicate, a constraint, and the end
// of a statement that waits. In a language other than English the error is Unknown, and the insert is repeated in a
// form whose errors keep their SQLSTATE.
func classifyText(text string) sqlbatch.Class {
	switch {
	case strings.Contains(text, "duplicate key value violates unique constraint"):
		return sqlbatch.Duplicate
	case strings.Contains(text, " violates "): // a constraint, chanq's or a DBA's
		return sqlbatch.BadRow
	case strings.Contains(text, "canceling statement due to "), // for example a lock timeout
		strings.Contains(text, "deadlock detected"),
		strings.Contains(text, "could not serialize access"):
		return sqlbatch.RolledBack
	}
	return sqlbatch.Unknown
}

// The end of a session (57P01, 57P02: shutdown, crash of another session) might follow a commit whose answer was lost.
// The same holds for errors of class 08, and those of classes 58 and XX (system, internal): a pooler reports with XX000
// and others that it lost the server's connection during a statement.
func classifySQLState(state string) sqlbatch.Class {
	if c, ok := states[state]; ok {
		return c
	}
	if c, ok := stateClasses[state[:2]]; ok {
		return c
	}
	return sqlbatch.Unknown
}
