package sqlserver

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"reflect"
	"slices"

	"github.com/chanq/chanq/sqlbatch"
)

// serverError is an error that the server reported, as the driver returns it. It is recognized by its method, and by its field All, so
// that a program on another database does not link the driver.
type serverError interface {
	error
	SQLErrorNumber() int32
}

// Classify uses the number of the last error that the server reported, then earlier ones of the same response (2714 before 1750: the
// cause comes first).
//
// An unknown error is Unknown, and so is the end of a context or of a connection during a request: the server might have applied it. So
// is an mssql.Error without a number: the driver returns one when a commit finds its transaction gone, but also when a response fails
// without a reason.
func (dialect) Classify(err error) sqlbatch.Class {
	var e serverError
	if errors.As(err, &e) {
		numbers := numbersOf(e)
		for _, n := range numbers {
			if c, ok := errorClasses[n]; ok {
				return c
			}
		}
		if slices.ContainsFunc(numbers, raised) {
			return sqlbatch.BadRow
		}
		return sqlbatch.Unknown
	}
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		// The connection was already known to be broken, or the request could not be sent completely (mssql.RetryableError): a server runs
		// only complete requests.
		return sqlbatch.Refused
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns):
		return sqlbatch.Refused
	case errors.Is(err, sql.ErrTxDone):
		return sqlbatch.Permanent
	}
	return sqlbatch.Unknown
}

// raised reports whether a user's trigger caused an error: by THROW or RAISERROR, or by a ROLLBACK (3609) or an error (3616) that ended
// its transaction. The same rows would cause it again. After a RAISERROR without a ROLLBACK the statement has nevertheless been
// executed.
func raised(number int32) bool { return number >= 50000 || number == 3609 || number == 3616 }

// numbersOf returns the numbers of a response's errors, the last first: All has them from first to last.
func numbersOf(e serverError) []int32 {
	numbers := []int32{e.SQLErrorNumber()}
	v := reflect.Indirect(reflect.ValueOf(e))
	if v.Kind() != reflect.Struct {
		return numbers
	}
	all := v.FieldByName("All")
	if all.Kind() != reflect.Slice {
		return numbers
	}
	for i := all.Len() - 1; i >= 0; i-- {
		if earlier, ok := all.Index(i).Interface().(serverError); ok {
			numbers = append(numbers, earlier.SQLErrorNumber())
		}
	}
	return numbers
}

var errorClasses = classes(map[sqlbatch.Class][]int32{
	sqlbatch.RolledBack: {
		1205, // deadlock victim
		1222, // lock timeout
		1204, // no lock resources
		601,  // a page moved during a read of uncommitted data
		errGate,
		3960, 3961, 3930, 3998, // snapshot conflict; a transaction that cannot be committed
		701,        // no memory
		8645, 8651, // no memory grant
		41301, 41302, 41305, 41325, 41839, // memory-optimised tables
	},
	sqlbatch.Refused: {
		4060, 4064, // cannot open the database: also while it fails over
		18401, 18451, 18461, 6005, 17142, // the server starts, stops or admits only administrators
		// A failed login is not permanent: it happens while a secondary takes over before its logins exist, and while a password is rotated.
		// No statement was run, whatever the cause; a wrong password shows when the queue is opened.
		18456, 18452, 18486, 18487, 18488,
		916,                          // no user in the database: after a failover, until its logins exist
		922, 924, 926, 927, 942, 945, // the database recovers, restores or is offline
		976, 978, 979, 983, // availability group: not the primary, or changing roles
		3906,      // read-only: a former primary, until the next connection finds the new one
		8628, 802, // no time or memory to compile or run
		9002, 1101, 1105, 40544, // log or data files full: undone, and an operator must act
		40613, 40501, 40143, 40540, 40642, 40648, 40671, 4221, // Azure: unavailable, throttled
		10928, 10929, 10936, 49918, 49919, 49920,
		errLockNotGranted,
	},
	sqlbatch.Unknown: {
		40197, 40549, 40550, 40551, 40552, 40553, // Azure ended the session in progress
		596, 0,
	},
	sqlbatch.Duplicate: {2601, 2627},
	sqlbatch.BadRow: {
		2628, 8152, // too long
		515,                 // NULL
		547,                 // a user's CHECK or foreign key
		8115, 220, 517, 535, // overflow
		241, 242, 245, 8114, // conversion
		511, 1946, // row or index key too long
		8023, // not a valid value of its type
	},
	sqlbatch.NoSchema: {
		208, 207, 2812, // table, column, procedure
		213, 308, // columns of an INSERT, index of a hint
	},
	sqlbatch.Permanent: {
		229, 230, 262, 297, 300, 15151, // permission
		102, 105, 137, 156, 170, 201, 319, 1069, 4104, 8144, 8145, 8178, // syntax and parameters
		206, 257, 402, 8003, 8623, 10738, // types, counts
		331, 332, 333, 334, // trigger, foreign key or CHECK that OUTPUT does not allow
		650, 1934, 1935, 4140, 8622, // isolation, SET options, hints
		8624, 8630, 8632, // no plan: internal errors of the optimizer
		3908,                    // emergency mode
		2714, 2760, errNoSchema, // DDL
	},
})

func classes(numbers map[sqlbatch.Class][]int32) map[int32]sqlbatch.Class {
	m := map[int32]sqlbatch.Class{}
	for c, list := range numbers {
		for _, n := range list {
			m[n] = c
		}
	}
	return m
}
