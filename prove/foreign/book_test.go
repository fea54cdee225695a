package foreign

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
)

// others returns the SQL blocks for a dialect in all documents except the page about SQL.
func others(t *testing.T, dialect string) (list []block) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("../../docs", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".md" || filepath.Base(file) == "sql.md" {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			if m[2] == dialect {
				sends, _ := strconv.Atoi(m[3])
				list = append(list, block{m[4], sends})
			}
		}
		return err
	}))
	return list
}

// The SQL blocks of the documentation for an engine run on it. Blocks without an engine illustrate what chanq does, or
// need features that the emulator does not support.
func TestTheStatementsOfTheOtherDocumentsRun(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.SQLite, testdb.EmulatorSocket, testdb.Postgres, testdb.SQLServer} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			blocks := others(t, e.Dialect.Name())
			require.NotEmpty(t, blocks)
			s := open(t, e)
			t.Chdir(t.TempDir()) // for backup.db
			conn, err := s.DB.Conn(s.Soon())
			require.NoError(t, err)
			defer conn.Close()
			for _, b := range blocks {
				was := s.waiting()
				for statement := range strings.SplitSeq(b.text, ";\n") {
					if strings.TrimSpace(statement) != "" {
						_, err := conn.ExecContext(s.Soon(), statement)
						require.NoError(t, err, statement)
					}
				}
				require.Equal(t, b.sends, s.waiting()-was, "%s", b.text)
			}
		})
	}
}
