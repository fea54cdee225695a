package engine

import (
	"fmt"
	"strings"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// sqlError returns an error of severity 16, the most common.
func sqlError(number int32, format string, args ...any) *sqltype.Error {
	return severity(16, number, format, args...)
}

func severity(class uint8, number int32, format string, args ...any) *sqltype.Error {
	return &sqltype.Error{Number: number, State: 1, Class: class, Message: fmt.Sprintf(format, args...)}
}

func errSyntaxNear(near string) error {
	return severity(15, 102, "Incorrect syntax near '%s'.", near)
}

// errUnsupported names a part that the emulator does not support. It is a syntax error of the kind that Azure SQL
// returns for unsupported features.
func errUnsupported(what string) error {
	return sqlError(40517, "Keyword or statement option '%s' is not supported by this emulator of SQL Server.", what)
}

func errLogin(user string) error { return severity(14, 18456, "Login failed for user '%s'.", user) }

func errUndeclared(name string) error {
	return severity(15, 137, "Must declare the scalar variable \"%s\".", name)
}

func errUndeclaredTable(name string) error {
	return severity(15, 1087, "Must declare the table variable \"%s\".", name)
}

func errNoObject(name string) error { return sqlError(208, "Invalid object name '%s'.", name) }

func errNoColumn(name string) error { return sqlError(207, "Invalid column name '%s'.", name) }

func errAmbiguous(name string) error { return sqlError(209, "Ambiguous column name '%s'.", name) }

func errUnbound(name string) error {
	return sqlError(4104, "The multi-part identifier \"%s\" could not be bound.", name)
}

func errNoProc(name string) error {
	return sqlError(2812, "Could not find stored procedure '%s'.", name)
}

func errMissingParam(proc, name string) error {
	return sqlError(201, "Procedure or function '%s' expects parameter '%s', which was not supplied.", proc, name)
}

func errDuplicateKey(t *table, ix *index, value string) error {
	if ix.primary {
		return severity(14, 2627, "Violation of PRIMARY KEY constraint '%s'. Cannot insert duplicate key in object '%s'. The duplicate key value is (%s).",
			ix.name, t.qualified(), value)
	}
	return severity(14, 2601, "Cannot insert duplicate key row in object '%s' with unique index '%s'. The duplicate key value is (%s).",
		t.qualified(), ix.name, value)
}

func errNullColumn(t *table, column, verb string) error {
	return sqlError(515, "Cannot insert the value NULL into column '%s', table '%s'; column does not allow nulls. %s fails.",
		column, t.fullName(), verb)
}

func errCheck(t *table, k *checkConstraint, verb string) error {
	where := fmt.Sprintf("table \"%s.%s\"", t.schema, t.name)
	if k.column != "" {
		where += ", column '" + k.column + "'"
	}
	return sqlError(547, "The %s statement conflicted with the CHECK constraint \"%s\". The conflict occurred in database \"%s\", %s.",
		verb, k.name, t.db.name, where)
}

func errTruncated(t *table, column, value string) error {
	if len(value) > 100 {
		value = value[:100]
	}
	return sqlError(2628, "String or binary data would be truncated in table '%s', column '%s'. Truncated value: '%s'.",
		t.fullName(), column, value)
}

func errDateConversion() error {
	return sqlError(241, "Conversion failed when converting date and/or time from character string.")
}

func errClash(from, to sqltype.Type) error {
	return sqlError(206, "Operand type clash: %s is incompatible with %s", typeName(from), typeName(to))
}

func errImplicit(from, to sqltype.Type) error {
	return sqlError(257, "Implicit conversion from data type %s to %s is not allowed. Use the CONVERT function to run this query.",
		kindName(from.Kind), kindName(to.Kind))
}

func errExplicit(from, to sqltype.Type) error {
	return sqlError(529, "Explicit conversion from data type %s to %s is not allowed.", kindName(from.Kind), kindName(to.Kind))
}

// errNoConversion is for a conversion that SQL Server allows and the emulator does not support.
func errNoConversion(from, to sqltype.Type) error {
	return errUnsupported("conversion of " + kindName(from.Kind) + " to " + kindName(to.Kind))
}

func errArithmetic(to sqltype.Type) error {
	return sqlError(8115, "Arithmetic overflow error converting expression to data type %s.", kindName(to.Kind))
}

func errDivide() error { return sqlError(8134, "Divide by zero error encountered.") }

func errDateAdd(column string) error {
	return sqlError(517, "Adding a value to a '%s' column caused an overflow.", column)
}

func errDateDiff() error {
	return sqlError(535, "The datediff function resulted in an overflow. The number of dateparts separating two date/time "+
		"instances is too large. Try to use datediff with a less precise datepart.")
}

func errReadPast() error {
	return sqlError(650, "You can only specify the READPAST lock in the READ COMMITTED or REPEATABLE READ isolation levels.")
}

func errNoPlan() error {
	return sqlError(8622, "Query processor could not produce a query plan because of the hints defined in this query. "+
		"Resubmit the query without specifying any hints and without using SET FORCEPLAN.")
}

func errTrigger(t *table) error {
	return sqlError(334, "The target table '%s' of the DML statement cannot have any enabled triggers if the statement "+
		"contains an OUTPUT clause without INTO clause.", t.name)
}

func errWrongSet(verb string, wrong []string) error {
	return sqlError(1934, "%s failed because the following SET options have incorrect settings: '%s'. "+
		"Verify that SET options are correct for use with indexed views and/or indexes on computed columns and/or filtered "+
		"indexes and/or query notifications and/or XML data type methods and/or spatial index operations.", verb, strings.Join(wrong, ", "))
}

func errDenied(action, object, database, schema string) error {
	return severity(14, 229, "The %s permission was denied on the object '%s', database '%s', schema '%s'.",
		action, object, database, schema)
}

func errConflict(t *table, database string) error {
	return sqlError(3960, "Snapshot isolation transaction aborted due to update conflict. You cannot use snapshot isolation "+
		"to access table '%s' directly or indirectly in database '%s' to update, delete, or insert the row that has been "+
		"modified or deleted by another transaction. Retry the transaction or change the isolation level for the "+
		"update/delete statement.", t.qualified(), database)
}

// endsBatch reports whether SQL Server does not run the rest of the batch after the error, even with XACT_ABORT OFF.
func endsBatch(e *sqltype.Error) bool {
	switch e.Number {
	case 1205, 3609, 3960, 241, 245, 8114, 8169, 206, 257, 529:
		return true
	}
	return e.Class >= 20
}

// rollsBack reports whether an error of endsBatch also ends the transaction.
func rollsBack(e *sqltype.Error) bool {
	return endsBatch(e) && e.Number != 206 && e.Number != 257 && e.Number != 529
}

// endsScope reports whether the error was found when a statement was compiled: such errors end only the procedure or
// batch that contains it.
func endsScope(e *sqltype.Error) bool {
	switch e.Number {
	case 102, 156, 207, 208, 209, 137, 1087, 4104, 650, 8622, 40517, 201, 10738, 331, 333, 334, 4140, 1065, 308, 109, 110, 1011, 8155:
		return true
	}
	return false
}
