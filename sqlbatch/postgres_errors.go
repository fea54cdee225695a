package sqlbatch

import (
	"context"
	"database/sql"
	"errors"
	"net"
)

// Classify goes by SQLSTATE, by the method that pgx and lib/pq both give their
// errors. An error that the server reports undid the statement; unknown are broken
// connections, and errors that come with the end of one.
func (postgres) Classify(err error) Class {
	var server interface{ SQLState() string }
	if errors.As(err, &server) && len(server.SQLState()) == 5 {
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
		return Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unknown
	}
	// Not classifyCommon: lib/pq returns driver.ErrBadConn also when the
	// connection ends before the answer.
	return Unknown
}

// SQLSTATEs (PostgreSQL's appendix A) that differ from their class, which is the
// first two characters.
var postgresStates = map[string]Class{
	"08001": Refused, "08004": Refused, // not connected
	"23505": Duplicate,
	"25006": Refused,    // read-only: a standby, the first sign of a failover
	"25P02": RolledBack, // the transaction failed before
	"25P03": RolledBack, // idle in transaction for too long: what was open is undone
	"3D000": Refused,    // no such database: it is being restored
	"3F000": NoSchema,
	"40003": Unknown,    // statement completion unknown
	"42P01": NoSchema,   // table
	"42703": NoSchema,   // column
	"42P05": Refused,    // a pool of transactions changed the server under a
	"26000": Refused,    // prepared statement; a new connection prepares anew
	"55P03": RolledBack, // lock_timeout
	"55006": RolledBack, // object in use
	"57014": RolledBack, // statement_timeout, pg_cancel_backend
	"57P03": Refused,    // starting up or shutting down
	"57P05": Refused,    // idle for too long; the statement came after
	"0A000": Permanent,  // feature not supported
}

var postgresStateClasses = map[string]Class{
	"22": BadRow,  // data exception
	"23": BadRow,  // constraint, of a DBA's
	"28": Refused, // login: a password is being rotated, or a standby takes over; nothing was run
	"40": RolledBack,
	"42": Permanent, // permission, syntax, types
	"53": Refused,   // no memory, disk, connections: undone, and an operator has to act
	"54": BadRow,    // too long for the program's limits
	"P0": BadRow,    // a trigger of a DBA's refuses
}

// The end of a session (57P01, 57P02: shutdown, crash of another session) may
// follow a commit whose answer was lost; so do errors of class 08, and those of
// classes 58 and XX (system, internal): with XX000 and others a pooler in between
// says that it lost the server's connection under a statement.
func classifySQLState(state string) Class {
	if c, ok := postgresStates[state]; ok {
		return c
	}
	if c, ok := postgresStateClasses[state[:2]]; ok {
		return c
	}
	return Unknown
}
