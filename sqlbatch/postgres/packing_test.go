package postgres_test

import (
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

func FuzzRowsArePacked(f *testing.F) { suite.FuzzRows(f, postgres.Dialect, rowsOf) }

func FuzzSettlesArePacked(f *testing.F) {
	suite.FuzzSettles(f, postgres.Dialect, endsOf, func(s string) string {
		return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	})
}

// elements reads an array literal of numbers or hexadecimal digits; {} means n times standard.
func elements(t *testing.T, literal any, n int, standard string) []string {
	text := literal.(string)
	require.Regexp(t, `^\{([0-9a-f-]+|NULL)?(,([0-9a-f-]+|NULL))*\}$`, text)
	text = strings.ReplaceAll(text, "NULL", standard)
	if text == "{}" {
		return strings.Split(strings.Repeat(","+standard, n), ",")[1:]
	}
	list := strings.Split(text[1:len(text)-1], ",")
	require.Len(t, list, n)
	return list
}

func numbers(t *testing.T, literal any, n int) []int64 {
	var out []int64
	for _, text := range elements(t, literal, n, "0") {
		v, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		out = append(out, v)
	}
	return out
}

func idsOf(t *testing.T, literal any) (ids [][16]byte) {
	for _, text := range strings.Split(strings.Trim(literal.(string), "{}"), ",") {
		b, err := hex.DecodeString(text)
		require.NoError(t, err)
		ids = append(ids, [16]byte(b[:16]))
	}
	return ids
}

func rowsOf(t *testing.T, st sqlbatch.Statement) (rows []sqlbatch.Row) {
	a := st.Args
	ids := idsOf(t, a[0])
	n := len(ids)
	priorities, delays, ttls, keys := numbers(t, a[1], n), numbers(t, a[2], n), numbers(t, a[3], n), numbers(t, a[4], n)
	namesAt, names := numbers(t, a[5], n), numbers(t, a[6], n)
	bodyAt, body := numbers(t, a[7], n), numbers(t, a[8], n)
	for i, id := range ids {
		both := suite.Part(a[9].([]byte), namesAt[i], names[i])
		r := sqlbatch.Row{
			ID: id, Priority: int8(priorities[i]), Key: string(both[:keys[i]&255]), Type: string(both[keys[i]&255:][:keys[i]>>8]),
			Delay: time.Duration(delays[i]) * time.Millisecond, TTL: time.Duration(ttls[i]) * time.Millisecond,
		}
		if headers := both[keys[i]&255+keys[i]>>8:]; len(headers) > 0 {
			r.Headers = headers
		}
		r.Body = suite.Part(a[10].([]byte), bodyAt[i], body[i])
		rows = append(rows, r)
	}
	return rows
}

// endsOf reads ids, the first fence, the difference of each fence to it, and the values that the kind of settle adds.
func endsOf(t *testing.T, what string, st sqlbatch.Statement) (ends []suite.End) {
	ids := idsOf(t, st.Args[0])
	n := len(ids)
	first, above := st.Args[1].(int64), numbers(t, st.Args[2], n)
	for i, id := range ids {
		e := suite.End{Item: sqlbatch.Item{ID: id, Fence: first + above[i]}}
		text, errors := false, 5
		switch what {
		case "nacks":
			e.Delay, text = numbers(t, st.Args[3], n)[i], true
		case "dead-letters":
			end := numbers(t, st.Args[3], n)[i]
			e.Uncounted, e.Cause, e.Print, text = end&1 == 1, sqlbatch.Cause(end>>1), numbers(t, st.Args[5], n)[i], true
			errors++
		}
		if text {
			e.Took = numbers(t, st.Args[4], n)[i]
			e.Text = string(suite.Part(st.Args[errors+2].([]byte), numbers(t, st.Args[errors], n)[i], numbers(t, st.Args[errors+1], n)[i]))
		}
		ends = append(ends, e)
	}
	return ends
}
