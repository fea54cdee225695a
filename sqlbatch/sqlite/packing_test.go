package sqlite_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/stretchr/testify/require"
)

func FuzzRowsArePacked(f *testing.F) { suite.FuzzRows(f, sqlite.Dialect, rowsOf) }

func FuzzSettlesArePacked(f *testing.F) {
	suite.FuzzSettles(f, sqlite.Dialect, endsOf, func(s string) string { return s })
}

const recordSize = 88

// digits reads a fixed-width decimal number of a record, from 1 as SUBSTR does.
func digits(t *testing.T, record []byte, from, width int) int64 {
	v, err := strconv.ParseInt(string(record[from-1:from-1+width]), 10, 64)
	require.NoError(t, err)
	return v
}

func rowsOf(t *testing.T, st sqlbatch.Statement) (rows []sqlbatch.Row) {
	list, data := st.Args[0].([]byte), st.Args[1].([]byte)
	require.Zero(t, len(list)%recordSize)
	for ; len(list) > 0; list = list[recordSize:] {
		d := func(from, width int) int64 { return digits(t, list, from, width) }
		r := sqlbatch.Row{ID: [16]byte(list[:16]), Priority: int8(d(17, 1)) - 1, Delay: time.Duration(d(18, 13)) * time.Millisecond, TTL: time.Duration(d(31, 13)) * time.Millisecond}
		r.Key = string(suite.Part(data, d(44, 9), d(53, 3)))
		if headers := suite.Part(data, d(56, 9), d(65, 6)); len(headers) > 0 {
			r.Headers = headers
		}
		r.Body = suite.Part(data, d(71, 9), d(80, 9))
		rows = append(rows, r)
	}
	return rows
}

func endsOf(t *testing.T, what string, st sqlbatch.Statement) (ends []suite.End) {
	size := map[string]int{"items": 35, "nacks": 61, "releases": 48, "buries": 61}[what]
	list := st.Args[0].([]byte)
	require.Zero(t, len(list)%size)
	for ; len(list) > 0; list = list[size:] {
		e := suite.End{Item: sqlbatch.Item{ID: [16]byte(list[:16]), Fence: digits(t, list, 17, 19)}}
		switch what {
		case "releases":
			e.Due = digits(t, list, 36, 13)
		case "nacks", "buries":
			errs, _ := st.Args[1].([]byte)
			e.Delay = digits(t, list, 36, 13)
			if what == "buries" {
				e.Delay, e.Uncounted = 0, e.Delay == 1
			}
			e.Text = string(suite.Part(errs, digits(t, list, 49, 9), digits(t, list, 58, 4)))
		}
		ends = append(ends, e)
	}
	return ends
}
