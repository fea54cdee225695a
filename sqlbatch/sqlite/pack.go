package sqlite

import (
	"encoding/json"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

func jsonStrings(s []string) string {
	if len(s) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(s) // strings always marshal
	return string(b)
}

const listed = `(WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?1)) SELECT substr(?1, o, 16) FROM n)`

// The rows that a list of id 16, fence 19 names.
const matched = `SELECT q.rowid FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN {live} AS q ON q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 19) AS INTEGER)`

const itemSize = 16 + 19

func appendEnd(list, errs []byte, item sqlbatch.Item, amount int64, took time.Duration, text string) (newList, newErrs []byte) {
	text = build.Cut(text)
	list = appendItem(list, item)
	list = appendDigits(list, amount, 13)
	list = appendDigits(list, int64(len(errs)+1), 9)
	list = appendDigits(list, int64(len(text)), 4)
	list = appendDigits(list, min(build.Milliseconds(took), 9_999_999_999), 10)
	return list, append(errs, text...)
}

func packItems(items []sqlbatch.Item) []byte {
	list := make([]byte, 0, len(items)*itemSize)
	for i := range items {
		list = appendItem(list, items[i])
	}
	return list
}

func appendItem(list []byte, item sqlbatch.Item) []byte {
	return appendDigits(append(list, item.ID[:]...), item.Fence, 19)
}

func packIDs(ids [][16]byte) []byte {
	list := make([]byte, 0, len(ids)*16)
	for i := range ids {
		list = append(list, ids[i][:]...)
	}
	return list
}

// appendDigits appends v, which is not negative, as width decimal digits.
func appendDigits(b []byte, v int64, width int) []byte {
	n := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := n + width - 1; v > 0 && i >= n; i-- {
		b[i] = '0' + byte(v%10)
		v /= 10
	}
	return b
}
