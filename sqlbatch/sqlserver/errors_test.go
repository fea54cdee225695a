package sqlserver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestClassifiesByNumber(t *testing.T) {
	for class, numbers := range map[sqlbatch.Class][]int32{
		sqlbatch.RolledBack: {1205, 1222, 1204, 3960, 3961, 8645, 8651, 701, 41301, 41302, 41305, 41325, 41839},
		sqlbatch.Refused: {3906, 4060, 40613, 40501, 10928, 10929, 49918, 49919, 49920, 40143, 40540, 4221, 18456, 18401,
			983, 916, 51871},
		sqlbatch.Unknown:   {40197, 40549, 40550, 40551, 40552, 40553, 596, 0, 12345},
		sqlbatch.Duplicate: {2601, 2627},
		sqlbatch.BadRow:    {2628, 8152, 515, 547, 8115, 517, 3609, 3616, 50000, 51000, 2147483647},
		sqlbatch.NoSchema:  {208, 207, 2812, 308},
		sqlbatch.Permanent: {229, 230, 262, 297, 102, 156, 331, 332, 333, 334, 650, 1934, 8622, 8624, 8630, 8632, 2760, 51872},
	} {
		for _, n := range numbers {
			err := error(mssql.Error{Number: n, Message: "deadlock permission duplicate"})
			require.Equal(t, class, sqlserver.Dialect.Classify(err), "error %d", n)
			require.Equal(t, class, sqlserver.Dialect.Classify(fmt.Errorf("ack: %w", err)), "error %d, wrapped", n)
		}
	}
}

func TestClassifiesByAnEarlierErrorWhenTheLastIsUnknown(t *testing.T) {
	last := mssql.Error{Number: 1750}
	last.All = []mssql.Error{{Number: 262}, {Number: 1750}}
	require.Equal(t, sqlbatch.Permanent, sqlserver.Dialect.Classify(last))
	rolledBack := mssql.Error{Number: 3609, All: []mssql.Error{{Number: 1205}, {Number: 3609}}}
	require.Equal(t, sqlbatch.RolledBack, sqlserver.Dialect.Classify(rolledBack), "also in a trigger")
	require.Equal(t, sqlbatch.Permanent, sqlserver.Dialect.Classify(fmt.Errorf("migrate: %w", &last)), "a driver might return a pointer")
	last = mssql.Error{Number: 3609}
	last.All = []mssql.Error{{Number: 50000}, {Number: 3609}}
	require.Equal(t, sqlbatch.BadRow, sqlserver.Dialect.Classify(last), "RAISERROR and ROLLBACK in a trigger")
}

func TestClassifiesStatementsThatWereNeverSent(t *testing.T) {
	for _, err := range []error{
		driver.ErrBadConn,
		mssql.RetryableError{},
		sql.ErrConnDone,
		&net.OpError{Op: "dial", Err: errors.New("refused")},
		fmt.Errorf("unable to open tcp connection: %w", &net.OpError{Op: "dial", Err: context.DeadlineExceeded}),
		&net.DNSError{Err: "no such host"},
	} {
		require.Equal(t, sqlbatch.Refused, sqlserver.Dialect.Classify(err), "%T %v", err, err)
	}
}

func TestClassifiesABrokenRequestAsUnknown(t *testing.T) {
	for _, err := range []error{
		context.Canceled,
		context.DeadlineExceeded,
		io.EOF,
		io.ErrUnexpectedEOF,
		&net.OpError{Op: "Read", Err: io.EOF},
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")},
		mssql.StreamError{InnerError: errors.New("bad token")},
		mssql.ServerError{},
		errors.New("something else"),
		number(12345),
	} {
		require.Equal(t, sqlbatch.Unknown, sqlserver.Dialect.Classify(err), "%T %v", err, err)
	}
	require.Equal(t, sqlbatch.Permanent, sqlserver.Dialect.Classify(sql.ErrTxDone))
}

// number is an error that has only a number.
type number int32

func (n number) SQLErrorNumber() int32 { return int32(n) }
func (n number) Error() string         { return "error" }

func TestClassifiesWithoutTheDriversType(t *testing.T) {
	require.Equal(t, sqlbatch.Duplicate, sqlserver.Dialect.Classify(number(2627)))
}
