package session

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// number is an error of SQL Server, and code one of SQLite.
type (
	number int
	code   int
)

func (n number) Error() string         { return fmt.Sprint(int(n)) }
func (n number) SQLErrorNumber() int32 { return int32(n) }
func (c code) Error() string           { return fmt.Sprint(int(c)) }
func (c code) Code() int               { return int(c) }

func TestTheDocumentHasTheClassOfEachCode(t *testing.T) {
	text, err := os.ReadFile("../../docs/internals/errors.md")
	require.NoError(t, err)
	documented := map[string]map[string]sqlbatch.Class{} // per section
	section := ""
	for line := range strings.Lines(string(text)) {
		if title, is := strings.CutPrefix(line, "## "); is {
			section = strings.TrimSpace(title)
			documented[section] = map[string]sqlbatch.Class{}
		}
		for class := sqlbatch.Unknown; class <= sqlbatch.Permanent; class++ {
			codes, is := strings.CutPrefix(line, "| "+class.String()+" | ")
			if !is || section == "What follows" {
				continue
			}
			for _, c := range strings.Split(strings.TrimSuffix(codes, " |\n"), ", ") {
				require.NotContains(t, documented[section], c)
				documented[section][c] = class
			}
		}
	}
	for c, class := range documented["PostgreSQL"] {
		require.Equal(t, class, Classify(postgres.Dialect, state((c + "ZZZ")[:5])), c)
	}
	require.Greater(t, len(documented["PostgreSQL"]), 25)
	for _, e := range []struct {
		section string
		dialect sqlbatch.Dialect
		last    int
		err     func(n int) error
	}{
		{"SQL Server", sqlserver.Dialect, 60_000, func(n int) error { return number(n) }},
		{"SQLite", sqlite.Dialect, 255, func(n int) error { return code(n) }},
	} {
		for n := range e.last {
			class, listed := documented[e.section][strconv.Itoa(n)]
			if !listed && e.dialect == sqlserver.Dialect && n >= 50_000 {
				class = sqlbatch.BadRow
			}
			require.Equal(t, class, Classify(e.dialect, e.err(n)), "%s: %d", e.section, n)
		}
		for c, class := range documented[e.section] {
			n, err := strconv.Atoi(c)
			require.NoError(t, err)
			require.Equal(t, class, Classify(e.dialect, e.err(n)), "%s: %d", e.section, n)
		}
	}
}
